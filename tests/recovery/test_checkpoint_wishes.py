"""A driver's wish for a manifest, and the saves that failed, as the store has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recovery.manifests import GROUP, form, record
from unknot.recovery.checkpoint_errors import CheckpointFailed
from unknot.recovery.checkpoint_wishes import (
    Begun,
    begun,
    failed_saves,
    forget_wish,
    note_begun,
    note_failed_save,
    wish,
    wished,
)
from unknot.recovery.checkpoints import Checkpoints, Place
from unknot.recovery.errors import FencedError
from unknot.recovery.group import break_group
from unknot.recovery.run import RunClaim
from unknot.supervisor.store.redis_store import RedisStore


@pytest.fixture
def checkpoints(store: RedisStore, tmp_path: Path) -> Checkpoints:
    """Of the store's run."""
    return Checkpoints(store, tmp_path / "checkpoints")


def failure(seq: int, why: str = "No space left on device") -> CheckpointFailed:
    return CheckpointFailed(group=GROUP, seq=seq, why=why, todo="free disk space")


def test_a_wish_stands_until_its_driver_has_its_manifest_and_says_where_the_save_has_begun(store: RedisStore) -> None:
    place, _ = form(store)
    assert (wished(store, GROUP), begun(store, GROUP, "x")) == ("", None)
    token = wish(store, GROUP)
    assert wished(store, GROUP) == token
    note_begun(store, place, token, 7)
    assert begun(store, GROUP, token) == Begun(1, 7)
    newer = wish(store, GROUP)
    assert begun(store, GROUP, newer) is None, "that save was for the wish before"
    forget_wish(store, GROUP, token)
    assert wished(store, GROUP) == newer
    forget_wish(store, GROUP, newer)
    assert wished(store, GROUP) == ""


def test_of_one_save_the_first_failure_stays_and_a_later_one_keeps_since_when_it_is_so(store: RedisStore) -> None:
    zero, one = form(store)
    note_failed_save(store, one, failure(3))
    note_failed_save(store, zero, failure(3, "rank 1 could not write"))
    first = failed_saves(store)[GROUP]
    assert (first.seq, first.why, first.source) == (3, "No space left on device", one.source)
    assert first.error().seq == 3
    note_failed_save(store, zero, failure(6, "Disk quota exceeded"))
    later = failed_saves(store)[GROUP]
    assert (later.seq, later.why, later.since) == (6, "Disk quota exceeded", first.since)


def test_all_that_failed_since_the_last_commit_are_told_in_one_sentence(store: RedisStore, checkpoints: Checkpoints) -> None:
    places = form(store)
    note_failed_save(store, places[0], failure(0))
    assert failed_saves(store)[GROUP].told() == "1 checkpoint of group policy failed, none was committed: No space left on device"
    commit(checkpoints, places, 3)
    note_failed_save(store, places[0], failure(6))
    note_failed_save(store, places[1], failure(6, "another rank's"))
    note_failed_save(store, places[0], failure(9, "Disk quota exceeded"))
    assert failed_saves(store)[GROUP].told() == (
        "2 checkpoints of group policy failed, none was committed since step 3: No space left on device"
    )


def test_a_commit_ends_it(store: RedisStore, checkpoints: Checkpoints) -> None:
    places = form(store)
    note_failed_save(store, places[0], failure(3))
    commit(checkpoints, places, 6)
    assert failed_saves(store) == {}


def test_a_generation_that_is_over_tells_of_no_failed_save_and_neither_does_a_process_that_was_replaced(
    store: RedisStore,
) -> None:
    old, _ = form(store)
    break_group(store, GROUP, 1, reason="a rank was lost")
    note_failed_save(store, old, failure(3))
    assert failed_saves(store) == {}
    form(store)
    with pytest.raises(FencedError):
        note_failed_save(store, old, failure(3))


def test_a_run_that_begins_anew_knows_of_no_wish_and_no_failed_save(store: RedisStore) -> None:
    claim = RunClaim.take(store)
    place, _ = form(store)
    wish(store, GROUP)
    note_failed_save(store, place, failure(3))
    claim.close()
    RunClaim.take(store)
    assert (wished(store, GROUP), failed_saves(store)) == ("", {})


def commit(checkpoints: Checkpoints, places: list[Place], seq: int) -> None:
    """All ranks answer."""
    for place in places:
        attempt = checkpoints.prepare(place, seq).id
        checkpoints.folder(attempt).mkdir(exist_ok=True)
        answered = checkpoints.answer(attempt, place, record(place.rank, source=place.source))
    assert answered.outcome == "committed"
