"""A trainer group that loses ranks goes on from its newest manifest, and ends with the weights it would have had."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import unknot
from unknot.recovery import points

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=240)
STEPS = 7


@ray.remote
@unknot.trainer
class Rank:
    """A small sharded model with dropout; each step takes two numbers, the same ones on every rank."""

    def setup(self, group: Any) -> None:
        torch.set_num_threads(1)
        self.group = group
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4))
        fully_shard(self.model, mesh=group.mesh())
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def state_dict(self) -> dict[str, Any]:
        return dict(zip(("model", "optim"), get_state_dict(self.model, self.opt), strict=True))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.opt, model_state_dict=state["model"], optim_state_dict=state["optim"])

    def run(self) -> None:
        for step in unknot.steps(until=STEPS, manifest_every=3):
            with step:
                numbers = [item.value for item in step.take("numbers", 2)]
                data = torch.full((4, 8), float(sum(numbers) + self.group.rank))
                self.model(data).pow(2).mean().backward()
                self.opt.step()
                self.opt.zero_grad()
            unknot.progress("step")


def train(new_run: NewRun, *, size: int = 2) -> tuple[unknot.Report, list[int]]:
    """One run over the same numbers; its report, and what the mailbox says: queued, acknowledged."""
    with new_run(external_after_s=60.0) as run:
        numbers = run.mailbox("numbers", senders="driver/*", receivers="trainer/*", ack="manifest")
        for n in range(2 * STEPS):
            numbers.send(n)
        run.group(Rank, size=size)
        report = run.wait(timeout=LIMIT)
        left = numbers.statistics()
    return report, [left.queued, left.acked]


@pytest.fixture(scope="module")
def undisturbed() -> dict[int, str]:
    """The digest of a run without faults, by number of ranks; made once."""
    return {}


def faulty(monkeypatch: pytest.MonkeyPatch, log: Path, faults: str) -> None:
    monkeypatch.setenv(points.FAULTS_ENV, faults)
    monkeypatch.setenv(points.LOG_ENV, str(log))


@pytest.mark.ray
@pytest.mark.torch
@pytest.mark.parametrize("fault", ["train.vote.before#5@trainer/1=kill", "train.body.before#2@trainer/0=kill"])
def test_a_killed_rank_is_replaced_and_the_weights_are_those_of_an_undisturbed_run(
    new_run: NewRun, undisturbed: dict[int, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    if 2 not in undisturbed:
        undisturbed[2] = train(new_run)[0].digests["policy"]
    faulty(monkeypatch, tmp_path / "faults", fault)
    report, left = train(new_run)
    assert points.fired(str(tmp_path / "faults")) == [fault]
    assert set(report.outcomes.values()) == {"done"}
    assert report.digests["policy"] == undisturbed[2]
    assert left == [0, 2 * STEPS], "every item was consumed once"
    crashes = [i for i in report.incidents if i.kind == "crash"]
    lost = fault.partition("@")[2].partition("=")[0]
    assert [(i.culprits, i.state) for i in crashes] == [((f"{lost}#1",), "resolved")]
    assert [i for i in report.incidents if i.cause == "deadlock"] == []
    (recovery,) = report.recoveries
    assert set(recovery.marks) >= {"noticed", "registered", "entered", "formed", "restored", "committed"}


@pytest.mark.ray
@pytest.mark.torch
def test_of_three_ranks_one_is_killed_and_one_stopped_and_the_third_is_freed_and_all_train_on(
    new_run: NewRun, undisturbed: dict[int, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    undisturbed[3] = train(new_run, size=3)[0].digests["policy"]
    faults = ["train.vote.before#5@trainer/1=kill", "train.vote.before#5@trainer/2=stop"]
    faulty(monkeypatch, tmp_path / "faults", " ".join(faults))
    report, left = train(new_run, size=3)
    assert sorted(points.fired(str(tmp_path / "faults"))) == faults
    assert set(report.outcomes.values()) == {"done"}
    assert report.digests["policy"] == undisturbed[3]
    assert left == [0, 2 * STEPS]
    silent = [i for i in report.incidents if i.cause == "unresponsive" and i.culprits == ("trainer/2#1",)]
    assert [(a.remedy, a.outcome) for a in silent[-1].actions] == [("restart", "done")]
    assert {i.culprits for i in report.incidents if i.kind == "crash"} == {("trainer/1#1",), ("trainer/2#1",)}
