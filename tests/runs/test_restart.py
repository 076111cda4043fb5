"""Members whose process is killed are started again as their policy says, and nothing of the lost process is in anybody's way."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
import ray

import unknot
from unknot.recovery.marks import marks_of

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=120)


def tell(what: str) -> None:
    unknot.Mailbox("told").send((what, os.getpid()))


@ray.remote
@unknot.agent
class Holder:
    """Takes an item and a lock and keeps both for ever; the next process of it acknowledges the item and is done."""

    def run(self) -> None:
        box = unknot.Mailbox("work")
        item = box.receive()
        with unknot.Lock("shared"):
            tell(item.value)
            if ray.get_runtime_context().was_current_actor_reconstructed:
                box.ack(item)
                return
            unknot.Mailbox("never").receive()


@ray.remote
@unknot.agent
class Waiter:
    """Needs the lock."""

    def run(self) -> None:
        with unknot.Lock("shared"):
            tell("got it")


@ray.remote
@unknot.agent(restart=unknot.temporary())
class Once:
    """Dies, and is not to come again."""

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@ray.remote
@unknot.agent(restart=unknot.transient(intensity=2))
class Hopeless:
    """Dies whenever it is started."""

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@ray.remote
@unknot.agent(restart=unknot.permanent(intensity=1))
class Raising:
    """Raises the first time, and returns the second time; then its policy has had enough of it."""

    def run(self) -> None:
        tell("tried")
        if not ray.get_runtime_context().was_current_actor_reconstructed:
            raise ValueError("the first time")


@pytest.mark.ray
def test_a_killed_agent_frees_its_lock_and_its_item_at_once_and_its_successor_finishes(
    new_run: NewRun, eventually: Any
) -> None:
    with new_run() as run:
        told = run.mailbox("told", senders="agent/*", receivers="driver/*")
        work = run.mailbox("work")
        run.mailbox("never")
        work.send("item")
        run.spawn(Holder, name="h")
        what, pid = told.receive(timeout_s=120.0).value
        run.spawn(Waiter, name="w")
        os.kill(pid, signal.SIGKILL)
        news = [told.receive(timeout_s=120.0).value[0] for _ in range(2)]
        report = run.wait(timeout=LIMIT)
        eventually(lambda: run.incidents() == [])
        found = [i for i in run.incidents(open_only=False) if i.kind == "crash"]
        store = run._process.store
        marks = marks_of(store, "agent/h")[2]
    assert (what, sorted(news)) == ("item", ["got it", "item"])
    assert report.outcomes == {"agent/h": "done", "agent/w": "done"}
    assert [(i.culprits, i.actions[0].remedy, i.actions[0].outcome) for i in found] == [(("agent/h#1",), "restart", "done")]
    assert set(marks) == {"noticed", "fenced", "process", "registered", "entered"}
    times = [marks[what] for what in ("noticed", "fenced", "registered", "entered")]
    assert times == sorted(times), "the process may be one that Ray had ready before"


@pytest.mark.ray
def test_a_temporary_member_that_is_killed_ends_the_run(new_run: NewRun) -> None:
    with new_run() as run:
        run.spawn(Once, name="o")
        with pytest.raises(unknot.RunFailed, match="agent/o ended first with ActorDiedError"):
            run.wait(timeout=LIMIT)


@pytest.mark.ray
def test_a_member_that_dies_again_and_again_is_given_up_and_the_run_says_so(new_run: NewRun) -> None:
    with new_run() as run:
        run.spawn(Hopeless, name="h")
        with pytest.raises(unknot.RunFailed, match="agent/h"):
            run.wait(timeout=LIMIT)
        assert run._keeper.restarts == 2


@pytest.mark.ray
def test_a_permanent_member_is_started_again_also_after_an_error_and_after_its_end(new_run: NewRun) -> None:
    with new_run() as run:
        told = run.mailbox("told", senders="agent/*", receivers="driver/*")
        run.spawn(Raising, name="r")
        report = run.wait(timeout=LIMIT)
        assert [told.receive(timeout_s=1.0).value[0] for _ in range(2)] == ["tried", "tried"]
        assert report.outcomes == {"agent/r": "done"}
