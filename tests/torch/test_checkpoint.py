"""Two real ranks save a sharded model beside training and go on from it: bit by bit, or not at all."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.torch.savers import Plan, Told, run_ranks
from unknot.recovery.checkpoint_files import read_shelf
from unknot.recovery.checkpoint_wishes import failed_saves
from unknot.recovery.checkpoints import Checkpoints, committed_manifests
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]
Train = Callable[..., list[Told]]


@pytest.fixture
def train(store: RedisStore, redis_url: str, tmp_path: Path) -> Train:
    """`train(size=2, **plan)` runs the ranks of one generation to their ends."""
    stories = itertools.count()

    def run(size: int = 2, each: Callable[[int], dict[str, Any]] = lambda _: {}, **plan: Any) -> list[Told]:
        limit_s = plan.pop("limit_s", 150.0)
        usual = {"redis": redis_url, "faults_log": os.devnull, "directory": str(tmp_path / "checkpoints")}
        plans = [
            Plan(
                run=store.run, rank=rank, size=size, story=str(tmp_path / f"story-{next(stories)}"),
                **(usual | plan | each(rank)),
            )
            for rank in range(size)
        ]  # fmt: skip
        return run_ranks(plans, limit_s=limit_s)

    return run


def ended_well(ranks: list[Told]) -> list[Told]:
    assert [(rank.code, rank.of("failed"), len(rank.of("left"))) for rank in ranks] == [(0, [], 1)] * len(ranks), ranks
    return ranks


def digests(ranks: list[Told], what: str = "trained") -> list[str]:
    return [rank.one(what)["digest"] for rank in ranks]


def test_a_run_that_goes_on_from_a_manifest_ends_with_the_same_weights_optimizer_and_generators(
    train: Train, store: RedisStore, tmp_path: Path
) -> None:
    first = ended_well(train(until=6, saves=(3,)))
    again = ended_well(train(until=6))
    assert digests(again, "restored") == digests(first, "saving"), "what was saved, not what training made of it meanwhile"
    assert [rank.one("restored")["same"] for rank in again] == [True, True]
    assert digests(again) == digests(first), "and three steps later the same"
    (manifest,) = committed_manifests(store)
    assert read_shelf(tmp_path / "checkpoints").manifests == (manifest,)
    assert (manifest.seq, manifest.size, manifest.validate()) == (3, 2, ())
    assert [record.state_sha256 for record in manifest.ranks] == digests(first, "saving")


def test_another_number_of_ranks_goes_on_from_it_and_says_that_a_new_rank_has_no_generators(train: Train) -> None:
    ended_well(train(until=2, saves=(2 - 1,)))
    three = ended_well(train(size=3, until=2))
    assert [rank.one("restored")["rng"] for rank in three] == [True, True, False]
    assert [rank.one("restored")["same"] for rank in three] == [None] * 3
    ended_well(train(size=1, until=2))


def test_a_damaged_manifest_is_passed_over_for_the_older_one(train: Train, store: RedisStore, tmp_path: Path) -> None:
    first = ended_well(train(until=3, saves=(1, 2)))
    newest = committed_manifests(store)[0]
    shard = tmp_path / "checkpoints" / newest.id / "__1_0.distcp"
    body = bytearray(shard.read_bytes())
    body[len(body) // 2] ^= 1
    shard.write_bytes(body)
    again = ended_well(train(until=3))
    assert [rank.one("restored")["passed_over"] for rank in again] == [[newest.id]] * 2
    assert [rank.one("restored")["seq"] for rank in again] == [1, 1]
    assert digests(again) == digests(first)


def test_when_no_manifest_is_whole_the_run_does_not_silently_begin_anew(
    train: Train, store: RedisStore, tmp_path: Path
) -> None:
    ended_well(train(until=2, saves=(1,)))
    (manifest,) = committed_manifests(store)
    (tmp_path / "checkpoints" / manifest.id / "__0_0.distcp").unlink()
    for rank in train(until=2):
        failed = rank.one("failed")
        assert failed["kind"] == "NoWholeCheckpoint"
        assert f"{manifest.id}: __0_0.distcp: is missing" in failed["text"]


def test_a_manifest_that_cannot_be_read_is_never_a_reason_to_begin_anew_when_redis_was_lost(
    train: Train, store: RedisStore, tmp_path: Path
) -> None:
    ended_well(train(until=2, saves=(1,)))
    (older,) = committed_manifests(store)
    ended_well(train(until=3, saves=(2,)))
    newer = committed_manifests(store)[0]
    for key in store.command("KEYS", store.key("*")):
        store.command("DEL", key)
    flip_a_bit(tmp_path / "checkpoints" / newer.id / "manifest.json")
    for rank in ended_well(train(until=2)):
        assert (rank.one("restored")["id"], rank.one("restored")["passed_over"]) == (older.id, [newer.id])
    flip_a_bit(tmp_path / "checkpoints" / older.id / "manifest.json")
    for rank in train(until=2):
        failed = rank.one("failed")
        assert failed["kind"] == "NoWholeCheckpoint"
        assert f"{older.id}: manifest.json: cannot be read" in failed["text"]


def flip_a_bit(path: Path) -> None:
    """The highest one of the first byte: no text any more."""
    body = bytearray(path.read_bytes())
    body[0] ^= 0x80
    path.write_bytes(body)


def test_another_shape_of_the_model_is_an_error_that_names_what_differs(train: Train) -> None:
    ended_well(train(until=2, saves=(1,)))
    for rank in train(until=2, width=10):
        failed = rank.one("failed")
        assert failed["kind"] == "StateMismatch"
        assert "model.0.weight has the shape (8, 6) there and (10, 6) here" in failed["text"]


def test_weights_of_another_precision_are_not_rounded_without_a_word(train: Train) -> None:
    ended_well(train(until=2, saves=(1,)))
    for rank in train(until=2, half=True):
        failed = rank.one("failed")
        assert failed["kind"] == "StateMismatch"
        assert "model.0.weight is of torch.float32 there and of torch.bfloat16 here" in failed["text"]


def test_a_full_disk_costs_the_checkpoint_and_neither_the_training_nor_the_one_before(
    train: Train, store: RedisStore, tmp_path: Path
) -> None:
    ended_well(train(until=2, saves=(1,)))
    before = committed_manifests(store)
    limited = ended_well(train(until=3, saves=(2,), each=lambda rank: {"file_limit": 4096 if rank == 1 else 0}))
    assert [rank.one("saved")["outcome"] for rank in limited] == ["failed"] * 2
    assert all("free disk space" in rank.one("saved")["error"] for rank in limited), limited
    assert committed_manifests(store) == before
    told = failed_saves(store)["policy"]
    assert (told.seq, "free disk space" in told.todo) == (2, True), "people are told, until the next commit"
    Checkpoints(store, tmp_path / "checkpoints").settle()
    assert [one.name for one in (tmp_path / "checkpoints").iterdir() if one.is_dir()] == [before[0].id]
    ended_well(train(until=3, saves=(2,)))
    assert failed_saves(store) == {}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a quarter of a megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a file system takes rights that this user has not; the limit of file sizes is tested above")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_without_space_is_told_as_such_and_saving_goes_on_once_there_is_some(
    train: Train, store: RedisStore, small_disk: Path
) -> None:
    place = str(small_disk / "checkpoints")
    ended_well(train(until=2, saves=(1,), directory=place))
    ballast = small_disk / "ballast"
    free = os.statvfs(small_disk)
    ballast.write_bytes(b"x" * (free.f_bavail * free.f_bsize - 8192))
    for rank in ended_well(train(until=3, saves=(2,), directory=place)):
        assert rank.one("saved")["outcome"] == "failed"
        assert "No space left on device" in rank.one("saved")["error"]
        assert "free disk space" in rank.one("saved")["error"]
    ballast.unlink()
    ranks = ended_well(train(until=3, saves=(2,), directory=place))
    assert [rank.one("restored")["seq"] for rank in ranks] == [1, 1]
    assert [manifest.seq for manifest in committed_manifests(store)] == [2, 1]
    assert len([one for one in (small_disk / "checkpoints").iterdir() if one.is_dir()]) == 2, "what was half written is gone"


def test_a_plain_value_that_differs_between_ranks_is_refused_since_one_would_be_lost(train: Train, store: RedisStore) -> None:
    ranks = ended_well(train(until=2, saves=(1,), each=lambda rank: {"cursor": rank}))
    for rank in ranks:
        assert "cursor differs between rank 0 and rank 1" in rank.one("saved")["error"]
    assert committed_manifests(store) == ()


def test_only_the_newest_whole_manifests_are_kept(train: Train, store: RedisStore, tmp_path: Path) -> None:
    ended_well(train(until=5, saves=(1, 2, 3, 4), keep=2))
    assert [manifest.seq for manifest in committed_manifests(store)] == [4, 3]
    assert [manifest.seq for manifest in read_shelf(tmp_path / "checkpoints").manifests] == [4, 3]


def test_a_redis_that_is_away_costs_that_checkpoint_alone(train: Train, store: RedisStore, tmp_path: Path) -> None:
    with start_redis(tmp_path / "redis") as server, RedisStore.connect(server.url, store.run) as own:
        pid = server.pid
        ranks = ended_well(train(until=3, saves=(1, 2), each=lambda _: {"redis": server.url, "redis_pid": pid}))
        (manifest,) = committed_manifests(own)
    assert manifest.seq == 2
    for rank in ranks:
        first, second = rank.of("saved")
        assert (first["outcome"], second["outcome"] in ("committed", "waiting")) == ("failed", True)
        assert "StoreUnavailable" in first["error"]
        assert rank.one("trained")["failed"] == 1


def test_a_save_in_which_another_rank_stands_still_is_given_up_at_once(
    train: Train, store: RedisStore, tmp_path: Path
) -> None:
    log = tmp_path / "fired"
    began = train(
        until=1, drops=True, faults="manifest.shards.before#1@trainer/1=stop", faults_log=str(log), limit_s=20,
    )  # fmt: skip
    dropped = began[0].one("dropped")
    assert (dropped["ended"], dropped["dropped"], dropped["failed"]) == (True, 1, 0)
    assert committed_manifests(store) == ()
