"""SIGKILL of a real rank at every named point of save, commit, sweep and restore.

After each, whoever reads sees the manifest before or the new one, whole, never half; the next generation goes on from it with exactly
the bits that were saved; and housekeeping leaves nothing of what was not committed. One run goes through all points of a kind, so
that each generation is also the successor of the crash before.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
from pathlib import Path

import pytest

from tests.torch.savers import GROUP, Plan, Told, run_ranks
from unknot.integrations.torch.restore import RESTORE_POINTS
from unknot.recovery.checkpoint_files import read_shelf
from unknot.recovery.checkpoints import Checkpoints, committed_manifests
from unknot.recovery.group import break_group, group_status
from unknot.recovery.manifest import COMMIT_POINTS, SAVE_POINTS, SWEEP_POINTS, Manifest
from unknot.recovery.points import fired
from unknot.supervisor.store.redis_store import RedisStore

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(900)]


class Crashing:
    """A run whose generations die at points, and what must hold after each."""

    def __init__(self, store: RedisStore, redis_url: str, tmp_path: Path) -> None:
        self.store = store
        self.directory = tmp_path / "checkpoints"
        self.saved: dict[tuple[int, int, int], str] = {}
        self._redis = redis_url
        self._tmp = tmp_path
        self._numbers = itertools.count()
        self._checkpoints = Checkpoints(store, self.directory, keep=2)

    def train(self, *, saves: tuple[int, ...], until: int, faults: str = "") -> list[Told]:
        """One generation; remembers the digest of every state that it began to save."""
        number = next(self._numbers)
        plans = [
            Plan(
                redis=self._redis, run=self.store.run, directory=str(self.directory), rank=rank, saves=saves, until=until,
                keep=2, faults=faults, faults_log=str(self._tmp / f"fired-{number}"), story=str(self._tmp / f"{number}-{rank}"),
            )
            for rank in range(2)
        ]  # fmt: skip
        ranks = run_ranks(plans)
        for rank, told in enumerate(ranks):
            for line in told.of("saving"):
                self.saved[(line["generation"], line["seq"], rank)] = line["digest"]
        assert fired(str(self._tmp / f"fired-{number}")) == faults.split(), ranks
        return ranks

    def crash(self, point: str, *, member: str = "") -> list[Told]:
        """A generation that goes on, saves, and loses one rank at `point`."""
        seq = self.next_seq()
        number_before = self.newest_number()
        whom = f"@{member}" if member else ""
        ranks = self.train(saves=(seq,), until=seq + 1, faults=f"{point}#1{whom}=kill")
        assert min(told.code or 0 for told in ranks) == -signal.SIGKILL, ranks
        self.check(point, number_before)
        return ranks

    def newest_number(self) -> int:
        found = committed_manifests(self.store)
        return found[0].number if found else 0

    def next_seq(self) -> int:
        """A step after the newest manifest's."""
        return committed_manifests(self.store)[0].seq + 1

    def check(self, point: str, number_before: int) -> None:
        """Readers see the one before or one more, whole, in Redis and in the directory."""
        seen = committed_manifests(self.store)
        assert seen[0].number in (number_before, number_before + 1), point
        for manifest in (*seen, *read_shelf(self.directory).manifests):
            self.is_whole(manifest, point)
        assert read_shelf(self.directory).unreadable == (), point
        assert {one.id for one in read_shelf(self.directory).manifests} <= self.known(), point

    def known(self) -> set[str]:
        return {attempt.id for attempt in self._checkpoints.attempts() if attempt.state in ("committed", "dropped")}

    def is_whole(self, manifest: Manifest, point: str) -> None:
        assert manifest.validate() == (), point
        assert self._checkpoints.examine(manifest) == (), point
        for record in manifest.ranks:
            assert record.state_sha256 == self.saved[(manifest.generation, manifest.seq, record.rank)], point

    def goes_on(self, point: str) -> None:
        """The next generation restores the newest, bit by bit."""
        newest = committed_manifests(self.store)[0]
        for rank, told in enumerate(self.train(saves=(), until=0)):
            back = told.one("restored")
            assert (back["id"], back["same"]) == (newest.id, True), point
            assert back["digest"] == self.saved[(newest.generation, newest.seq, rank)], point
            assert told.code == 0, point

    def sweeps_clean(self, point: str) -> None:
        """Once the generation is over, housekeeping leaves the committed ones alone."""
        break_group(self.store, GROUP, group_status(self.store, GROUP).generation, reason="a test ends it")
        self._checkpoints.settle()
        seen = committed_manifests(self.store)
        assert read_shelf(self.directory).manifests == seen, point
        assert sorted(entry.name for entry in os.scandir(self.directory) if entry.is_dir()) == sorted(one.id for one in seen)
        assert [attempt.validate() for attempt in self._checkpoints.attempts()] == [()] * len(seen), point
        assert len(seen) <= 2, point
        assert list(self.directory.glob("*/*.tmp")) == [], point


@pytest.fixture
def crashing(store: RedisStore, redis_url: str, tmp_path: Path) -> Crashing:
    run = Crashing(store, redis_url, tmp_path)
    run.train(saves=(1,), until=2)
    assert run.newest_number() == 1
    return run


def test_every_point_is_described_in_order() -> None:
    text = (Path(__file__).parents[2] / "docs" / "design.md").read_text()
    points = (*SAVE_POINTS, *COMMIT_POINTS, *SWEEP_POINTS, *RESTORE_POINTS)
    assert re.findall(r"^\| \d+ \| `((?:manifest|restore)\.[a-z.]+)` \|", text, re.MULTILINE) == list(points)


def test_a_rank_killed_at_any_point_of_saving_leaves_the_manifest_before_or_the_new_one(crashing: Crashing) -> None:
    for point in SAVE_POINTS:
        before = crashing.newest_number()
        crashing.crash(point, member="trainer/1")
        if point != "manifest.answer.after":
            assert crashing.newest_number() == before, point
        crashing.goes_on(point)
        crashing.sweeps_clean(point)


def test_a_rank_killed_at_any_point_of_the_commit_leaves_a_manifest_that_is_written_again(crashing: Crashing) -> None:
    for point in COMMIT_POINTS:
        before = crashing.newest_number()
        crashing.crash(point)
        assert crashing.newest_number() == before + 1, point
        crashing.goes_on(point)
        crashing.sweeps_clean(point)


def test_a_rank_killed_at_any_point_of_the_sweep_leaves_what_the_next_one_removes(crashing: Crashing) -> None:
    crashing.train(saves=(2, 3), until=4)
    for point in SWEEP_POINTS:
        before = crashing.newest_number()
        crashing.crash(point)
        assert crashing.newest_number() == before + 1, point
        crashing.goes_on(point)
        crashing.sweeps_clean(point)


def test_a_rank_killed_at_any_point_of_a_restore_changes_nothing_that_is_committed(crashing: Crashing) -> None:
    before = committed_manifests(crashing.store)
    for point in RESTORE_POINTS:
        ranks = crashing.train(saves=(), until=2, faults=f"{point}#1@trainer/1=kill")
        assert ranks[1].code == -signal.SIGKILL
        assert committed_manifests(crashing.store) == before, point
        crashing.goes_on(point)
