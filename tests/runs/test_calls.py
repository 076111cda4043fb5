"""The single-controller style: the driver calls the methods of a group's ranks, and of other members."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
import torch.distributed as dist

import unknot
from unknot.recovery import points

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=120)
pytestmark = [pytest.mark.ray, pytest.mark.torch]


@ray.remote
@unknot.trainer
class Adder:
    """Keeps a sum that all ranks add to: they agree on each number first."""

    def setup(self, group: Any) -> None:
        self.group = group
        self.total = torch.zeros(1)
        self.added = 0

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "added": self.added}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.added = state["total"].clone(), state["added"]

    def add(self, number: float, *, times: int = 1) -> tuple[int, float, int]:
        share = torch.tensor([number * times])
        dist.all_reduce(share)
        self.total += share
        self.added += 1
        return self.group.rank, float(self.total), self.added

    def add_but_one_fails(self, number: float, failing: int) -> None:
        self.total += number
        if self.group.rank == failing:
            raise ValueError(f"no gradient for {number}")
        dist.all_reduce(torch.ones(1))

    def give_back_a_generator(self) -> Any:
        return (n for n in range(3))

    def wait_for_the_driver(self) -> Any:
        if self.group.rank == 0:
            unknot.Mailbox("answers").receive()
        dist.all_reduce(torch.ones(1))


class Dying:
    """Has no state, and a method that ends its process."""

    def setup(self, group: Any) -> None:
        self.group = group

    def die(self, rank: int) -> None:
        if self.group.rank == rank:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.all_reduce(torch.ones(1))


@ray.remote
@unknot.trainer(restart=unknot.temporary())
class Mortal(Dying):
    """Is not started again."""


@ray.remote
@unknot.trainer(restart=unknot.transient(intensity=1))
class Fragile(Dying):
    """Is started again once."""


@ray.remote
@unknot.trainer
class Counting:
    """Has no state that anybody keeps."""

    def setup(self, group: Any) -> None:
        self.group = group

    def count(self, n: int) -> int:
        counted = torch.ones(1) * n
        dist.all_reduce(counted)
        return int(counted)


@ray.remote
@unknot.trainer
class Runs:
    """Has a loop of its own."""

    def setup(self, group: Any) -> None:
        self.group = group

    def run(self) -> None:
        unknot.Mailbox("answers").receive()

    def add(self, number: float) -> None:
        pass


@ray.remote
@unknot.environment
class Maze:
    """Has no loop: it is called."""

    def move(self, where: str) -> str:
        if where == "wall":
            raise LookupError("there is a wall")
        return f"moved {where}"

    def vanish(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def wait(self) -> None:
        unknot.Mailbox("answers").receive()


@ray.remote
@unknot.agent
class Looping:
    """Is in its loop until the run ends."""

    def run(self) -> None:
        unknot.Mailbox("answers").receive()

    def peek(self) -> str:
        return "still in it"


def test_a_call_is_a_step_on_every_rank_and_its_results_come_in_the_order_of_ranks(new_run: NewRun) -> None:
    with new_run() as run:
        group = run.group(Adder, size=2)
        assert group.call("add", 2.0, timeout=LIMIT) == [(0, 4.0, 1), (1, 4.0, 1)]
        assert group.call("add", 1.0, times=3, timeout=LIMIT) == [(0, 10.0, 2), (1, 10.0, 2)]
        assert run.wait(timeout=LIMIT).outcomes == {}, "nobody has a run that could end"
        assert run.incidents(open_only=False) == []


def test_what_could_never_be_answered_is_refused_before_anything_is_sent(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("answers", senders="driver/*")
        group = run.group(Adder, size=1)
        with pytest.raises(unknot.ConfigError, match=r"Adder has no method 'ad'; did you mean 'add'\?"):
            group.call("ad", 1.0)
        with pytest.raises(unknot.ConfigError, match="'setup' that can be called: Unknot enters it itself"):
            group.call("setup")
        with pytest.raises(TypeError, match="number"):
            group.call("add")
        with pytest.raises(unknot.ConfigError, match="is a rank; call its group"):
            group.members[0].call("add", 1.0)
        assert run.mailbox_statistics("calls.policy").sent == 0
        looping = run.spawn(Looping, name="a")
        with pytest.raises(unknot.ConfigError, match=r"agent/a is in its run\(\).*max_concurrency"):
            looping.call("peek")
        with pytest.raises(unknot.ConfigError, match=r"Maze has no method 'mov'; did you mean 'move'\?"):
            run.spawn(Maze, name="m").call("mov")


def test_the_ranks_of_a_group_that_runs_itself_take_no_calls(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("answers")
        with pytest.raises(unknot.ConfigError, match=r"have a run\(\) of their own"):
            run.group(Runs, size=1).call("add", 1.0)


def test_a_method_that_raises_on_one_rank_reaches_the_caller_and_leaves_nothing_behind(new_run: NewRun) -> None:
    with new_run() as run:
        group = run.group(Adder, size=2)
        group.call("add", 1.0, timeout=LIMIT)
        with pytest.raises(unknot.CallFailed, match=r"trainer/1#1 ended it first with ValueError: no gradient") as failed:
            group.call("add_but_one_fails", 5.0, failing=1, timeout=LIMIT)
        assert isinstance(failed.value.__cause__, ValueError)
        assert (failed.value.target, failed.value.method) == ("group policy", "add_but_one_fails")
        with pytest.raises(unknot.CallFailed, match="pickle"):
            group.call("give_back_a_generator", timeout=LIMIT)
        assert group.call("add", 1.0, timeout=LIMIT) == [(0, 4.0, 2), (1, 4.0, 2)], "both ranks went back, and go on"


@pytest.mark.parametrize("at", ["train.vote.before", "train.vote.after", "take.granted", "observation off"])
def test_a_call_in_which_a_rank_is_killed_is_repeated_by_the_re_formed_group_and_counts_once(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: str
) -> None:
    if at == "observation off":
        monkeypatch.setenv("SUPERVISOR_DISABLED", "1")
        at = "train.vote.after"
    fault = f"{at}#3@trainer/1=kill"
    monkeypatch.setenv(points.FAULTS_ENV, fault)
    monkeypatch.setenv(points.LOG_ENV, str(tmp_path / "faults"))
    with new_run() as run:
        group = run.group(Adder, size=2)
        results = [group.call("add", float(n), timeout=LIMIT) for n in (1, 2, 3, 4)]
        assert points.fired(str(tmp_path / "faults")) == [fault]
        assert results == [[(rank, total, n) for rank in (0, 1)] for n, total in enumerate((2.0, 6.0, 12.0, 20.0), 1)]
        assert {i.kind for i in run.incidents(open_only=False)} <= {"crash"}, "never a deadlock"


def test_ranks_without_a_state_carry_out_only_the_call_that_was_lost_again(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(points.FAULTS_ENV, "train.vote.before#3@trainer/1=kill")
    monkeypatch.setenv(points.LOG_ENV, str(tmp_path / "faults"))
    with new_run() as run:
        group = run.group(Counting, size=2)
        assert [group.call("count", n, timeout=LIMIT) for n in (1, 2, 3, 4)] == [[2, 2], [4, 4], [6, 6], [8, 8]]
        assert len(points.fired(str(tmp_path / "faults"))) == 1


def test_a_call_in_which_a_rank_dies_for_good_raises_the_first_error(new_run: NewRun) -> None:
    with new_run() as run:
        group = run.group(Mortal, size=2)
        with pytest.raises(unknot.RunFailed, match="trainer/1 ended first"):
            group.call("die", 1, timeout=LIMIT)


def test_a_call_that_kills_its_rank_each_time_is_not_repeated_for_ever(new_run: NewRun) -> None:
    with new_run() as run:
        group = run.group(Fragile, size=2)
        with pytest.raises(unknot.RunFailed, match="trainer/1 ended first"):
            group.call("die", 1, timeout=LIMIT)


def test_a_ring_through_the_driver_is_seen_and_the_call_ends(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("answers", senders="driver/*", receivers="trainer/*")
        group = run.group(Adder, size=2)
        group.call("add", 1.0, timeout=LIMIT)
        with pytest.raises(unknot.CallFailed, match="StepAborted: step 1 of group policy was broken off 3 times"):
            group.call("wait_for_the_driver")
        ring = next(i for i in run.incidents(open_only=False) if i.cause == "deadlock")
        assert {"driver/main#1", "trainer/0#1"} <= set(ring.core)
        assert group.call("add", 1.0, timeout=LIMIT)[0][1:] == (4.0, 2)


def test_a_call_that_does_not_end_in_time_says_so(new_run: NewRun) -> None:
    with new_run() as run:
        answers = run.mailbox("answers", senders="driver/*")
        group = run.group(Adder, size=2)
        group.call("add", 1.0, timeout=LIMIT)
        maze = run.spawn(Maze, name="m")
        with pytest.raises(TimeoutError):
            group.call("wait_for_the_driver", timeout=timedelta(seconds=0.5))
        with pytest.raises(TimeoutError):
            maze.call("wait", timeout=timedelta(seconds=0.5))
        answers.send("for the rank")
        answers.send("for the maze")
        assert group.call("add", 1.0, timeout=LIMIT)[1] == (1, 4.0, 2), "late replies are no answers to the next call"
        assert maze.call("move", "on", timeout=LIMIT) == "moved on"


def test_a_member_is_called_and_its_error_or_death_reaches_the_caller(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("answers")
        maze = run.spawn(Maze, name="m")
        assert maze.call("move", "left", timeout=LIMIT) == "moved left"
        with pytest.raises(unknot.CallFailed, match="environment/m ended it first with LookupError: there is a wall") as failed:
            maze.call("move", "wall", timeout=LIMIT)
        assert isinstance(failed.value.__cause__, LookupError)
        with pytest.raises(unknot.CallFailed, match="environment/m"):
            maze.call("vanish", timeout=LIMIT)
        looping = run.spawn(Looping, name="a", ray={"max_concurrency": 2})
        assert looping.call("peek", timeout=LIMIT) == "still in it"
