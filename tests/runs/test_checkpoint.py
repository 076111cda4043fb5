"""The driver asks for a manifest; and a manifest that was not made is an incident until one is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
import ray
import torch
import torch.distributed as dist

import unknot
from unknot.recovery import points
from unknot.recovery.checkpoint_errors import CheckpointFailed
from unknot.recovery.checkpoints import committed_manifests
from unknot.recovery.mailbox import Mailbox
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.redis_store import RedisStore

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=120)
pytestmark = [pytest.mark.ray, pytest.mark.torch]


class Summing:
    """A sum that all ranks keep."""

    def setup(self, group: Any) -> None:
        self.group = group
        self.total = torch.zeros(1)

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"].clone()


@ray.remote
@unknot.trainer
class Looping(Summing):
    """Adds the numbers of a mailbox up, in a loop of its own."""

    def run(self) -> None:
        for step in unknot.steps(until=4):
            with step:
                self.total += step.take("numbers", 1)[0].value


@ray.remote
@unknot.trainer
class Unsaved(Summing):
    """Makes two steps, with a save before, between and after them."""

    def run(self) -> None:
        for step in unknot.steps(until=2, manifest_every=1):
            with step:
                self.total += 1


@ray.remote
@unknot.trainer
class Called(Summing):
    """Adds what the driver says."""

    def add(self, number: float) -> float:
        share = torch.tensor([number])
        dist.all_reduce(share)
        self.total += share
        return float(self.total)


@ray.remote
@unknot.trainer
class Stateless:
    """Has nothing to save."""

    def setup(self, group: Any) -> None:
        self.group = group

    def nothing(self) -> None:
        pass


def manifests(run: unknot.Run) -> list[tuple[str, int]]:
    """Id and step of the committed ones, newest first."""
    with RedisStore.connect(run.redis_url, run.name) as store:
        return [(one.id, one.seq) for one in committed_manifests(store)]


def waits_for_more(numbers: Mailbox, *, taken: int) -> bool:
    """Whether both ranks stand in the step after `taken` steps, so the boundary before it is behind them."""
    now = numbers.statistics()
    return now.taken == taken and len(now.receivers_waiting) == 2


def test_a_manifest_is_made_at_the_next_step_boundary_of_a_group_that_runs_itself(new_run: NewRun, eventually: Any) -> None:
    with new_run() as run:
        numbers = run.mailbox("numbers", senders="driver/*", receivers="trainer/*", ack="manifest")
        run.group(Looping, size=2)
        numbers.send(1.0)
        eventually(lambda: waits_for_more(numbers, taken=1), limit_s=90.0)
        with pytest.raises(TimeoutError):
            run.checkpoint(timeout=timedelta(seconds=0.3))
        for n in (2.0, 3.0):
            numbers.send(n)
        eventually(lambda: waits_for_more(numbers, taken=3), limit_s=60.0)
        assert [seq for _, seq in manifests(run)] == [0], "nobody waits for a manifest any more"
        numbers.send(4.0)
        made = run.checkpoint(timeout=LIMIT)
        assert made == manifests(run)[0][0]
        assert manifests(run)[0][1] == 4
        run.wait(timeout=LIMIT)
        assert run.checkpoint() == made, "a group that has ended has its last one"


def test_a_called_group_makes_one_at_once_and_goes_on_from_it_when_a_rank_is_lost(new_run: NewRun) -> None:
    with new_run() as run:
        group = run.group(Called, size=2)
        group.call("add", 1.0, timeout=LIMIT)
        made = run.checkpoint(timeout=LIMIT)
        assert manifests(run)[0] == (made, 2), "the call, and the empty step at whose end it was made"
        ray.kill(group.members[1].actor, no_restart=False)
        assert group.call("add", 2.0, timeout=LIMIT) == [6.0, 6.0]
        with pytest.raises(unknot.ConfigError, match="group 'critic', which has no state here; say which one: group= one of policy"):
            run.checkpoint(group="critic")


def test_without_a_trainer_that_has_a_state_there_is_nothing_to_save(new_run: NewRun) -> None:
    with new_run() as run:
        run.group(Stateless, size=1)
        with pytest.raises(unknot.ConfigError, match="no trainer group with a state"):
            run.checkpoint()


def test_a_manifest_that_is_not_made_is_an_error_for_who_asked_and_an_incident_until_one_is(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setenv(points.FAULTS_ENV, "manifest.shards.before#2=raise")
    with new_run() as run:
        group = run.group(Called, size=2)
        group.call("add", 1.0, timeout=LIMIT)
        with pytest.raises(CheckpointFailed, match=r"a fault was injected at manifest\.shards\.before"):
            run.checkpoint(timeout=LIMIT)
        eventually(lambda: [i.cause for i in run.incidents()] == ["checkpoint"], limit_s=30.0)
        (incident,) = run.incidents()
        assert "the checkpoint of group policy before step 2 was not made: FaultInjected" in incident.headline
        assert group.call("add", 1.0, timeout=LIMIT) == [4.0, 4.0], "training goes on"
        made = run.checkpoint(timeout=LIMIT)
        assert manifests(run)[0] == (made, 4)
        eventually(lambda: not run.incidents(), limit_s=30.0)
        (over,) = run.incidents(open_only=False)
        assert (over.id, over.resolution) == (incident.id, "a checkpoint was committed")


def test_a_run_whose_checkpoints_all_failed_says_so_at_its_end_and_leaves_it_to_be_seen(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(points.FAULTS_ENV, " ".join(f"manifest.shards.before#{n}=raise" for n in (3, 2, 1)))
    with new_run() as run:
        url, name = run.redis_url, run.name
        run.group(Unsaved, size=1)
        report = run.wait(timeout=LIMIT)
    said = "3 checkpoints of group policy failed, none was committed: FaultInjected: a fault was injected at manifest.shards.before"
    assert report.unsaved["policy"].startswith(said)
    assert report.outcomes == {"trainer/0": "done"}
    assert [i.cause for i in report.incidents] == ["checkpoint"]
    assert capsys.readouterr().out.count(f"told='{said}") == 1
    with RedisStore.connect(url, name) as store:
        (left,) = IncidentStore(store).list(open_only=True)
    assert left.headline.startswith(f"CHECKPOINT in run {name}: {said}")
