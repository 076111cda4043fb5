"""Checkpoints in a real Redis and a real directory: what is refused, what survives a crash, and what housekeeping may touch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.recovery.manifests import GROUP, entry, form, manifest, record, write_files
from unknot.recovery import checkpoint_files as files
from unknot.recovery.answers import ask
from unknot.recovery.checkpoints import Checkpoints, Place
from unknot.recovery.errors import ConfigError, StoreCorrupt
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.manifest import Manifest
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.run import RunClaim
from unknot.recovery.take import kept_items, take
from unknot.recovery.weights import Weights
from unknot.supervisor.store.redis_store import RedisStore


@pytest.fixture
def checkpoints(store: RedisStore, tmp_path: Path) -> Checkpoints:
    return Checkpoints(store, tmp_path / "checkpoints", keep=2)


def commit(checkpoints: Checkpoints, places: list[Place], seq: int) -> Manifest:
    attempt = checkpoints.prepare(places[0], seq).id
    for place in places:
        mine = record(place.rank, source=place.source)
        write_files(checkpoints.folder(attempt), mine)
        answered = checkpoints.answer(attempt, place, mine)
    assert answered.manifest is not None
    return answered.manifest


def test_all_ranks_get_the_same_id_for_a_step_and_another_one_in_the_next_generation(
    checkpoints: Checkpoints, store: RedisStore
) -> None:
    first = {checkpoints.prepare(place, 5).id for place in form(store)}
    again = {checkpoints.prepare(place, 5).id for place in form(store)}
    assert (len(first), len(again)) == (1, 1)
    assert first != again
    assert {attempt.id: attempt.state for attempt in checkpoints.attempts()} == {
        first.pop(): "abandoned", again.pop(): "preparing",
    }  # fmt: skip


def test_a_late_answer_of_an_old_generation_commits_nothing(checkpoints: Checkpoints, store: RedisStore) -> None:
    old = form(store)
    attempt = checkpoints.prepare(old[0], 5).id
    checkpoints.answer(attempt, old[0], record(0))
    new = form(store)
    late = msgspec.structs.replace(old[1], incarnation=new[1].incarnation)
    said = checkpoints.answer(attempt, late, record(1))
    assert (said.outcome, said.why) == ("over", "generation 1 is over")
    assert checkpoints.manifests() == ()


def test_an_attempt_that_a_rank_gave_up_is_not_begun_again_in_its_generation(
    checkpoints: Checkpoints, store: RedisStore
) -> None:
    first, second = form(store)
    attempt = checkpoints.prepare(first, 5).id
    assert checkpoints.abandon(attempt, first, "disk full")
    said = checkpoints.prepare(second, 5)
    assert (said.id, said.why) == ("", "disk full")
    late = checkpoints.answer(attempt, second, record(1))
    assert (late.outcome, late.why) == ("over", "disk full")


def test_the_record_of_what_is_committed_or_may_yet_be_cannot_be_forgotten(
    checkpoints: Checkpoints, store: RedisStore
) -> None:
    places = form(store)
    kept = commit(checkpoints, places, 1).id
    live = checkpoints.prepare(places[0], 2).id
    assert ask(store, "manifest_forget", kept, live, "unknown") == ("ok", (0,))
    assert {attempt.id for attempt in checkpoints.attempts()} == {kept, live}


def test_an_item_that_a_commit_acknowledges_and_its_manifest_are_there_together(
    checkpoints: Checkpoints, store: RedisStore
) -> None:
    (place,) = form(store, size=1)
    rank = NullRecorder(place.member, place.incarnation)
    box = Mailbox("scored", store, rank).declare(8)
    for value in (1, 2):
        box.send(value)
    first, second = box.receive().id, box.receive().id
    attempt = checkpoints.prepare(place, 4).id
    mine = record(0, source=place.source, items=(first,))
    for _ in range(2):
        answered = checkpoints.answer(attempt, place, mine)
        assert answered.manifest is not None
        (cursor,) = answered.manifest.mailboxes
        assert (cursor.name, cursor.sent, cursor.taken, cursor.acked) == ("scored", 2, 2, 1)
    assert store.command("HKEYS", store.key("unacked", "trainer/0")) == [second.encode()]


def test_what_the_newest_manifest_makes_final_is_settled_with_it_and_nothing_later(
    checkpoints: Checkpoints, store: RedisStore
) -> None:
    (place,) = form(store, size=1)
    rank = NullRecorder(place.member, place.incarnation)
    box = Mailbox("scored", store, rank).declare(8, ack="manifest")
    weights = Weights("policy", store, rank)
    for seq in range(3):
        box.send(seq)
        take(store, rank, group=GROUP, seq=seq, call=0, mailbox="scored", n=1)
        weights.publish(seq, place.generation)
    attempt = checkpoints.prepare(place, 2).id
    mine = msgspec.structs.replace(record(0, source=place.source), covers={"policy": 2})
    write_files(checkpoints.folder(attempt), mine)
    checkpoints.answer(attempt, place, mine)
    for _ in range(2):
        checkpoints.settle()
        assert kept_items(store, GROUP) == 1, "the item of step 2, which is repeated from this manifest"
        assert (box.statistics().acked, weights.latest().provisional) == (2, True)
    assert weights.latest(exact=2).provisional is False


def test_ranks_that_disagree_about_their_number_are_told(checkpoints: Checkpoints, store: RedisStore) -> None:
    places = form(store)
    checkpoints.prepare(places[0], 5)
    with pytest.raises(ConfigError, match="was begun with 2 ranks, not 3"):
        checkpoints.prepare(msgspec.structs.replace(places[1], size=3), 5)


def test_a_key_of_another_type_is_named_and_nothing_is_committed(checkpoints: Checkpoints, store: RedisStore) -> None:
    (place,) = form(store, size=1)
    attempt = checkpoints.prepare(place, 5).id
    store.command("SET", store.key("step", "trainer/0"), "not a hash")
    with pytest.raises(StoreCorrupt, match="step:trainer/0"):
        checkpoints.answer(attempt, place, record(0))
    assert checkpoints.manifests() == ()
    store.command("DEL", store.key("step", "trainer/0"))
    assert checkpoints.answer(attempt, place, record(0)).outcome == "committed"


def test_a_directory_belongs_to_one_run(checkpoints: Checkpoints, redis_url: str, store: RedisStore) -> None:
    with RedisStore.connect(redis_url, f"{store.run}-other") as other, pytest.raises(ConfigError, match="holds the checkpoints of run"):
        Checkpoints(other, checkpoints.directory)


def test_a_directory_that_cannot_be_written_is_told(store: RedisStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot hold checkpoints"):
        Checkpoints(store, tmp_path / "file" / "below")
    with pytest.raises(ConfigError, match="keep at least 1"):
        Checkpoints(store, tmp_path, keep=0)


def test_housekeeping_touches_nothing_that_is_not_named_like_a_checkpoint_of_the_run(
    checkpoints: Checkpoints, store: RedisStore
) -> None:
    kept = commit(checkpoints, form(store), 3)
    (checkpoints.directory / "notes").mkdir()
    (checkpoints.directory / "notes.txt").write_text("mine")
    checkpoints.settle()
    assert {name.name for name in checkpoints.directory.iterdir()} == {"notes", "notes.txt", "run.json", kept.id}


def test_what_is_written_for_a_live_attempt_is_not_swept(checkpoints: Checkpoints, store: RedisStore) -> None:
    places = form(store)
    attempt = checkpoints.prepare(places[0], 5).id
    write_files(checkpoints.folder(attempt), record(0))
    assert checkpoints.settle().swept == ()
    form(store)
    assert checkpoints.settle().swept == (attempt,)


def test_a_damaged_manifest_is_not_counted_among_those_that_are_kept(checkpoints: Checkpoints, store: RedisStore) -> None:
    places = form(store)
    first, second = commit(checkpoints, places, 1), commit(checkpoints, places, 2)
    (checkpoints.folder(second.id) / "rng-0").unlink()
    third = commit(checkpoints, places, 3)
    assert checkpoints.settle().dropped == ()
    fourth = commit(checkpoints, places, 4)
    assert checkpoints.settle().dropped == (second.id, first.id)
    assert [one.id for one in checkpoints.manifests()] == [fourth.id, third.id]


def test_numbers_go_on_where_the_directory_stands_when_redis_has_begun_anew(checkpoints: Checkpoints, store: RedisStore) -> None:
    places = form(store)
    commit(checkpoints, places, 1)
    second = commit(checkpoints, places, 2)
    for key in store.command("KEYS", store.key("manifest*")):
        store.command("DEL", key)
    third = commit(checkpoints, form(store), 3)
    assert third.number == second.number + 1
    assert files.read_shelf(checkpoints.directory).manifests[0] == third
    assert checkpoints.settle().swept == (), "whole checkpoints that this Redis does not know are not its to remove"


def test_a_run_whose_redis_was_lost_may_go_on_from_its_directory(checkpoints: Checkpoints, store: RedisStore) -> None:
    kept = commit(checkpoints, form(store), 1)
    assert checkpoints.candidates() == (kept,)
    for key in store.command("KEYS", store.key("*")):
        store.command("DEL", key)
    assert (checkpoints.manifests(), checkpoints.candidates()) == ((), (kept,))
    newer = commit(checkpoints, form(store), 2)
    assert newer.number == kept.number + 1
    assert checkpoints.candidates() == (newer,)


def test_a_run_that_begins_anew_knows_no_checkpoint_and_leaves_the_files(checkpoints: Checkpoints, store: RedisStore) -> None:
    claim = RunClaim.take(store)
    kept = commit(checkpoints, form(store), 1)
    claim.close()
    RunClaim.take(store)
    assert checkpoints.candidates() == ()
    checkpoints.settle()
    assert files.read_shelf(checkpoints.directory).manifests == (kept,)


def test_a_commit_whose_manifest_file_cannot_be_written_is_a_commit_and_settled_later(
    checkpoints: Checkpoints, store: RedisStore
) -> None:
    (place,) = form(store, size=1)
    attempt = checkpoints.prepare(place, 1).id
    write_files(checkpoints.folder(attempt), record(0))
    (checkpoints.folder(attempt) / "manifest.json").mkdir()
    said = checkpoints.answer(attempt, place, record(0))
    assert said.outcome == "committed"
    assert "manifest.json could not be written" in said.why
    (checkpoints.folder(attempt) / "manifest.json").rmdir()
    assert checkpoints.settle().written == (attempt,)
    assert files.read_shelf(checkpoints.directory).manifests == checkpoints.manifests()


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "has 6 bytes instead of 7"),
        (lambda path: path.write_bytes(b"Weights"), "has SHA-256"),
        (lambda path: (path.unlink(), path.mkdir()), "is no file"),
    ],
)
def test_each_kind_of_damage_is_told(tmp_path: Path, harm: object, told: str) -> None:
    write_files(tmp_path, record(0))
    assert files.damage_of(tmp_path, record(0).files) == ()
    harm(tmp_path / "__0_0.distcp")  # type: ignore[operator]
    (damage,) = files.damage_of(tmp_path, record(0).files)
    assert damage.path == "__0_0.distcp"
    assert told in damage.why


def test_a_manifest_that_names_files_outside_of_its_folder_reads_none_of_them(tmp_path: Path) -> None:
    (damage,) = files.damage_of(tmp_path, [entry("../secret", b"x")])
    assert damage.why == "lies outside of the checkpoint"


def test_a_manifest_of_another_id_or_shape_is_unreadable_and_not_believed(tmp_path: Path) -> None:
    one = manifest(1)
    write_files(tmp_path / one.id, one.ranks[0])
    files.write_manifest(tmp_path, one)
    os.rename(tmp_path / one.id, tmp_path / manifest(2).id)
    shelf = files.read_shelf(tmp_path)
    assert shelf.manifests == ()
    assert shelf.unreadable == ((manifest(2).id, "it has the id of another"),)


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_whole(path, b"before")

    def full(_point: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        files.write_whole(path, b"after", reached=full)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_the_place_of_a_rank_is_that_of_its_join(store: RedisStore) -> None:
    (place,) = form(store, size=1)
    assert (place.group, place.generation, place.source) == (GROUP, 1, "trainer/0#1")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda key: ("DEL", key), "is gone"),
        (lambda key: ("HDEL", key, "seq"), "cannot be read ('seq')"),
        (lambda key: ("HSET", key, "rank:1", "{"), "cannot be read (Input data was truncated)"),
        (lambda key: ("HSET", key, "mbox:raw", "1 2"), "cannot be read (not enough values"),
        (lambda key: ("HSET", key, "number", b"\xff"), "cannot be read ('utf-8' codec"),
    ],
)
def test_the_record_of_a_checkpoint_that_somebody_else_changed_is_named_and_not_passed_over(
    checkpoints: Checkpoints, store: RedisStore, harm: Callable[[str], tuple[str | bytes, ...]], told: str
) -> None:
    places = form(store)
    commit(checkpoints, places, 1)
    newest = commit(checkpoints, places, 2)
    store.command(*harm(store.key("manifest", newest.id)))
    with pytest.raises(StoreCorrupt) as caught:
        checkpoints.manifests()
    assert told in str(caught.value)
    assert newest.id in str(caught.value)
    store.command("HDEL", store.key("manifest_ids"), *_field_of(store, newest.id))
    assert [one.seq for one in checkpoints.manifests()] == [1], "as the error says"


def _field_of(store: RedisStore, id_: str) -> list[bytes]:
    known: dict[bytes, bytes] = store.command("HGETALL", store.key("manifest_ids"))
    return [field for field, value in known.items() if value.decode() == id_]
