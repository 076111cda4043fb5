"""A trainer group that loses ranks goes on from its newest manifest, and ends with the weights it would have had."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import ray
import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import unknot
from unknot.graph.events import Record, Wait
from unknot.recovery import points
from unknot.supervisor.monitor.stream import full_record
from unknot.supervisor.store.redis_store import RedisStore

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=240)
STEPS = 7
# One at each point of a trainer's step.
DEATHS = (
    "train.vote.before#5@trainer/1=kill", "train.body.before#2@trainer/0=kill", "train.vote.after#4@trainer/1=kill",
    "train.commit.after#3@trainer/0=kill",
)  # fmt: skip


class Sharded:
    """A small sharded model with dropout; each step needs two numbers."""

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
                numbers = self.two_of(step)
                data = torch.full((4, 8), float(sum(numbers) + self.group.rank))
                self.model(data).pow(2).mean().backward()
                self.opt.step()
                self.opt.zero_grad()
            unknot.progress("step")

    def two_of(self, step: Any) -> list[float]:
        """The same ones on every rank."""
        return [item.value for item in step.take("numbers", 2)]


@ray.remote
@unknot.trainer
class Rank(Sharded):
    """Takes the numbers."""


@ray.remote
@unknot.trainer
class WithItsOwn(Sharded):
    """Receives them from a mailbox of its own."""

    def two_of(self, step: Any) -> list[float]:
        return [step.receive(f"numbers-{self.group.rank}").value for _ in range(2)]


@ray.remote
@unknot.trainer
class Late(Sharded):
    """Rank 1 comes late to the fifth step of the first generation, so that the others stand in a collective."""

    def two_of(self, step: Any) -> list[float]:
        if (self.group.generation, self.group.rank, step.seq) == (1, 1, 4):
            unknot.Mailbox("gate").receive()
        return super().two_of(step)


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
@pytest.mark.parametrize("fault", DEATHS)
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
def test_what_each_rank_received_since_the_manifest_comes_again_to_it(
    new_run: NewRun, undisturbed: dict[int, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if 2 not in undisturbed:
        undisturbed[2] = train(new_run)[0].digests["policy"]
    # Three steps after the manifest: more than a rank can go back in memory.
    fault = "train.vote.before#6@trainer/1=kill"
    faulty(monkeypatch, tmp_path / "faults", fault)
    with new_run(external_after_s=60.0) as run:
        boxes = [run.mailbox(f"numbers-{rank}", senders="driver/*", receivers=f"trainer/{rank}", ack="manifest") for rank in range(2)]
        for n in range(2 * STEPS):
            for box in boxes:
                box.send(n)
        run.group(WithItsOwn, size=2)
        report = run.wait(timeout=LIMIT)
        left = [(box.statistics().queued, box.statistics().acked) for box in boxes]
    assert points.fired(str(tmp_path / "faults")) == [fault]
    assert report.digests["policy"] == undisturbed[2]
    assert left == [(0, 2 * STEPS)] * 2, "every item was consumed once"


@pytest.mark.ray
@pytest.mark.torch
def test_of_three_ranks_one_is_killed_and_one_stopped_in_a_collective_and_the_third_is_freed_from_it_and_all_train_on(
    new_run: NewRun, undisturbed: dict[int, str], eventually: Callable[..., None]
) -> None:
    undisturbed[3] = train(new_run, size=3)[0].digests["policy"]
    with new_run(external_after_s=60.0) as run, RedisStore.connect(run.redis_url, run.name) as store:
        numbers = run.mailbox("numbers", senders="driver/*", receivers="trainer/*", ack="manifest")
        gate = run.mailbox("gate", senders="driver/*", receivers="trainer/*")
        for n in range(2 * STEPS):
            numbers.send(n)
        run.group(Late, size=3)
        eventually(lambda: gate.statistics().receivers_waiting and all(stands_in_a_collective(store, r) for r in (0, 2)), limit_s=120.0)
        os.kill(pid_of(store, 2), signal.SIGSTOP)
        assert stands_in_a_collective(store, 2)
        os.kill(pid_of(store, 1), signal.SIGKILL)
        first = pid_of(store, 0)
        report = run.wait(timeout=LIMIT)
        assert pid_of(store, 0) == first, "it has trained on in its process"
        left = numbers.statistics()
    assert set(report.outcomes.values()) == {"done"}
    assert report.digests["policy"] == undisturbed[3]
    assert (left.queued, left.acked) == (0, 2 * STEPS)
    silent = [i for i in report.incidents if i.cause == "unresponsive" and i.culprits == ("trainer/2#1",)]
    assert [(a.remedy, a.outcome) for a in silent[-1].actions] == [("restart", "done")]
    assert {i.culprits for i in report.incidents if i.kind == "crash"} == {("trainer/1#1",), ("trainer/2#1",)}


def pid_of(store: RedisStore, rank: int) -> int:
    return int(store.command("HGET", store.key("member", f"trainer/{rank}"), "pid"))


def stands_in_a_collective(store: RedisStore, rank: int) -> bool:
    """Whether the rank's process says so: its group queue waits."""
    source = f"trainer/{rank}#1"
    records = [msgspec.msgpack.decode(body, type=Record) for body in full_record(store, source)]
    return any(isinstance(event, Wait) and event.p == f"{source}/queue:policy" for record in records for event in record.events)
