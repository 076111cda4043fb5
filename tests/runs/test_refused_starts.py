"""What a run refuses while it lives and once it is closed: nothing half started remains, and what follows works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
import ray

import unknot
from unknot.supervisor import process as processes

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=60)
pytestmark = pytest.mark.ray


@ray.remote
@unknot.agent
class Sender:
    """Sends one item."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def run(self) -> None:
        unknot.Mailbox("raw").send(self.value)


@ray.remote
@unknot.agent(restart=unknot.temporary())
class Driving:
    """A member that takes itself for a driver."""

    def run(self) -> None:
        unknot.init("another")


@ray.remote
@unknot.trainer
class Rank:
    """Is started and never gets far."""

    def setup(self, group: unknot.Group) -> None: ...

    def run(self) -> None: ...


def known_members() -> list[str]:
    return [info.member for info in processes.current("a test").members()]


def test_a_member_that_was_refused_is_not_expected_and_its_name_can_be_used(new_run: NewRun) -> None:
    with new_run() as run:
        raw = run.mailbox("raw")
        for value, options in ((1, {"num_cpuss": 1}), (1, {"num_cpus": "x"}), (threading.Lock(), None)):
            with pytest.raises(unknot.ConfigError):
                run.spawn(Sender, value, name="a", ray=options)
        with pytest.raises(unknot.ConfigError, match="missing a required argument: 'value'"):
            run.spawn(Sender, name="a")
        assert known_members() == ["driver/main"]
        run.spawn(Sender, 7, name="a")
        assert raw.receive(timeout_s=60.0).value == 7
        assert run.wait(timeout=LIMIT).outcomes == {"agent/a": "done"}


def test_an_argument_that_cannot_be_sent_is_told_in_one_line(new_run: NewRun) -> None:
    with new_run() as run, pytest.raises(unknot.ConfigError, match=r"Ray could not start it .* nothing was started") as caught:
        run.spawn(Sender, threading.Lock(), name="a")
    assert "\n" not in str(caught.value)


def test_a_group_of_which_one_rank_cannot_be_made_leaves_no_rank(new_run: NewRun, eventually: Callable[..., None]) -> None:
    def is_gone() -> bool:
        try:
            ray.get_actor("only-one")
        except ValueError:
            return True
        return False

    with new_run() as run:
        with pytest.raises(unknot.ConfigError, match=r"run\.group: Ray could not start it"):
            run.group(Rank, size=2, ray={"name": "only-one"})
        assert "starting" not in {info.state for info in processes.current("a test").members()}
        eventually(is_gone, 60.0)
        group = run.group(Rank, size=2)
        assert [handle.member for handle in group.members] == ["trainer/0", "trainer/1"]


def test_a_second_group_has_members_of_its_own_names(new_run: NewRun) -> None:
    with new_run() as run:
        assert [h.member for h in run.group(Rank, size=1, name="critic").members] == ["trainer/critic-0"]
        with pytest.raises(unknot.NameTaken, match="trainer/critic-0"):
            run.group(Rank, size=1, name="critic")
        assert sorted(known_members()) == ["driver/main", "trainer/critic-0"]


def test_a_second_run_in_one_process_is_refused_until_the_first_is_closed(new_run: NewRun) -> None:
    with new_run() as first:
        for name in (first.name, "another", None):
            with pytest.raises(unknot.ConfigError, match=f"run {first.name} is open in this process") as caught:
                unknot.init(name)
            assert "run.close()" in str(caught.value)
        assert first.mailbox("raw").statistics().queued == 0, "the first run goes on"
    with new_run() as second:
        assert second.name != first.name
        assert processes.current("a test").settings.run == second.name


def test_a_member_that_would_start_a_run_is_told_that_it_is_in_one(new_run: NewRun) -> None:
    with new_run() as run:
        run.spawn(Driving, name="d")
        told = f"agent/d#1, a member of run {run.name}; call it in the driver alone"
        with pytest.raises(unknot.RunFailed, match=told):
            run.wait(timeout=LIMIT)


def test_a_closed_run_refuses_every_call_at_once_and_closing_twice_is_closing_once(new_run: NewRun) -> None:
    with new_run() as run:
        box = run.mailbox("raw")
    run.close()
    calls: dict[str, Callable[[], object]] = {
        "run.spawn": lambda: run.spawn(Sender, 1, name="a"),
        "run.group": lambda: run.group(Rank, size=1),
        "run.mailbox": lambda: run.mailbox("more"),
        "run.weights": lambda: run.weights("policy", publishers="judge/*"),
        "run.checkpoint": lambda: run.checkpoint(),
        "run.mailbox_statistics": lambda: run.mailbox_statistics("raw"),
        "run.wait": lambda: run.wait(),
        "run.incidents": lambda: run.incidents(),
        "what belongs to it": lambda: box.statistics(),
    }
    for name, call in calls.items():
        with pytest.raises(unknot.RunClosed, match=f"run {run.name} is closed: use {name} before close"):
            call()


@pytest.mark.parametrize("timeout", [5, "5", timedelta(seconds=-1)])
def test_a_time_to_wait_that_is_none_is_refused(new_run: NewRun, timeout: Any) -> None:
    with new_run() as run, pytest.raises(unknot.ConfigError, match=r"run\.wait: timeout="):
        run.wait(timeout=timeout)


def test_times_are_refused_and_zero_is_one_look(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("raw")
        run.spawn(Sender, 1, name="a")
        with pytest.raises(TimeoutError, match="still running after 0:00:00: agent/a"):
            run.wait(timeout=timedelta(0))
