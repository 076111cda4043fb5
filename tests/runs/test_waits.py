"""Waits of real members of a real run: a Ray call, a person, a wait inside of another."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ray

import unknot
from unknot.graph.events import Atom, Clause
from unknot.supervisor.cli.snapshot import read_snapshot
from unknot.supervisor.recorder.table import WaitTable

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=90)


@ray.remote
@unknot.environment
class Guarded:
    """An environment whose every call takes the shared lock."""

    def use(self) -> str:
        with unknot.Lock("shared"):
            return "used"

    def echo(self, value: int) -> int:
        return value


class Occupant:
    """Holds all CPUs of the tests' cluster, so that others cannot start."""

    def there(self) -> bool:
        return True


@ray.remote
@unknot.agent
class Caller:
    """Calls the environment while it holds the lock that the call needs; once interrupted it lets go first."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def run(self) -> None:
        results = unknot.Mailbox("results")
        try:
            with unknot.Lock("shared"):
                ray.get(self.environment.use.remote())
        except unknot.DeadlockInterrupted as error:
            results.send((type(error).__name__, error.incident))
        results.send(ray.get(self.environment.use.remote()))


@ray.remote
@unknot.agent
class Semantics:
    """Compares the wrapped calls with what Ray promises."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def run(self) -> None:
        echo = self.environment.echo
        refs = [echo.remote(n) for n in range(4)]
        found: list[Any] = [ray.get(refs), ray.get(refs[1]), ray.get([])]
        ready, rest = ray.wait(refs, num_returns=2)
        found += [len(ready), len(rest)]
        try:
            ray.get(self.environment.never.remote(), timeout=0.3)
        except ray.exceptions.GetTimeoutError:
            found.append("timeout")
        ready, rest = ray.wait([self.environment.never.remote()], timeout=0.2)
        found += [len(ready), len(rest)]
        unknot.Mailbox("results").send(found)


@ray.remote
@unknot.environment
class Slow:
    """Answers some calls, and one never."""

    def echo(self, value: int) -> int:
        return value

    def never(self) -> None:
        unknot.Mailbox("never").receive()


@ray.remote
@unknot.agent
class Listening:
    """Waits for a message of the driver."""

    def run(self) -> None:
        unknot.Mailbox("orders").receive()


@ray.remote
@unknot.agent
class Asking:
    """Waits for a person, who answers through a named pipe."""

    def __init__(self, pipe: str) -> None:
        self.pipe = pipe

    def run(self) -> None:
        with unknot.external("approval", kind="human", who="maria"):
            Path(self.pipe).read_text()


@pytest.mark.ray
def test_a_call_that_needs_a_lock_of_its_caller_is_found_and_the_caller_is_interrupted(new_run: NewRun) -> None:
    with new_run() as run:
        results = run.mailbox("results", senders="agent/*", receivers="driver/*")
        environment = run.spawn(Guarded, name="e")
        run.spawn(Caller, environment.actor, name="a")
        kind, incident = results.receive(timeout_s=120.0).value
        assert kind == "DeadlockInterrupted"
        assert results.receive(timeout_s=120.0).value == "used"
        found = {i.id: i for i in run.incidents(open_only=False)}[incident]
        assert {"agent/a#1", "environment/e#1"} <= set(found.core)
        assert [(a.remedy, a.target) for a in found.actions] == [("interrupt", "agent/a#1")]


@pytest.mark.ray
def test_a_call_of_a_member_that_has_not_started_yet_is_known_for_one_as_soon_as_it_has(
    new_run: NewRun, eventually: Any
) -> None:
    with new_run() as run:
        results = run.mailbox("results", senders="agent/*", receivers="driver/*")
        occupant: Any = ray.remote(Occupant)
        taken = occupant.options(num_cpus=8).remote()
        ray.get(taken.there.remote())
        environment = run.spawn(Guarded, name="e", ray={"num_cpus": 1})
        run.spawn(Caller, environment.actor, name="a")
        store = run._process.store
        eventually(lambda: "agent/a#1" in {w.participant for w in read_snapshot(store).waits}, limit_s=120.0)
        ray.kill(taken)
        kind, _ = results.receive(timeout_s=120.0).value
        assert kind == "DeadlockInterrupted"


@pytest.mark.ray
def test_wrapped_ray_calls_answer_as_ray_does(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("never")
        results = run.mailbox("results", senders="agent/*", receivers="driver/*")
        environment = run.spawn(Slow, name="e")
        run.spawn(Semantics, environment.actor, name="a")
        assert results.receive(timeout_s=120.0).value == [[0, 1, 2, 3], 1, [], 2, 2, "timeout", 0, 1]


@pytest.mark.ray
def test_a_wait_for_a_person_is_told_as_such_with_who_was_asked_and_ends_with_the_answer(
    new_run: NewRun, eventually: Any, tmp_path: Path
) -> None:
    pipe = tmp_path / "answer"
    os.mkfifo(pipe)
    with new_run(external_after_s=0.5) as run:
        run.spawn(Asking, str(pipe), name="a")
        eventually(lambda: any(i.cause == "external" for i in run.incidents()), limit_s=120.0)
        told = next(i for i in run.incidents() if i.cause == "external")
        assert "human: approval (asked maria)" in told.lines[0].text
        assert not [i for i in run.incidents(open_only=False) if i.cause == "deadlock"]
        pipe.write_text("yes")
        run.wait(timeout=LIMIT)
        eventually(lambda: run.incidents() == [])


def test_a_wait_inside_of_another_takes_its_place_and_gives_it_back_under_a_new_ticket() -> None:
    table = WaitTable(member="agent/a", incarnation=1, role="agent", clock=lambda: 0.0)
    outside, inside = Clause(k=1, of=(Atom(external="outside"),)), Clause(k=1, of=(Atom(r="lock:x"),))
    with table.wait(table.next_ticket(), [outside]):
        first = table.waits()["agent/a#1"]
        with table.wait(table.next_ticket(), [inside]):
            assert table.waits()["agent/a#1"].needs == (inside,)
        again = table.waits()["agent/a#1"]
        assert again.needs == (outside,)
        assert again.ticket > first.ticket
    assert table.waits() == {}


@pytest.mark.ray
def test_a_ring_through_the_driver_is_a_deadlock_though_the_drivers_wait_has_a_limit(
    new_run: NewRun, eventually: Any
) -> None:
    with new_run() as run:
        run.mailbox("orders", senders="driver/*", receivers="agent/*")
        run.spawn(Listening, name="a")
        store = run._process.store
        eventually(lambda: "agent/a#1" in {w.participant for w in read_snapshot(store).waits}, limit_s=120.0)
        with pytest.raises(TimeoutError):
            run.wait(timeout=timedelta(seconds=5))
        found = [i for i in run.incidents(open_only=False) if i.cause == "deadlock"]
        assert [(i.kind, set(i.core)) for i in found] == [("cycle", {"agent/a#1", "driver/main#1"})]
