"""Threads that do what a test tells them, one thing at a time, and clocks that stand still."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from unknot.graph import events as ev
from unknot.supervisor.recorder.slots import WaitHandle
from unknot.supervisor.recorder.table import Snapshot, WaitTable


class Puppet:
    """A thread that runs functions for the test; `do` returns once the function has."""

    def __init__(self, name: str = "puppet") -> None:
        self._todo: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        while (function := self._todo.get()) is not None:
            self._done.put(function())

    def do(self, function: Callable[[], Any]) -> Any:
        self._todo.put(function)
        return self._done.get(timeout=10)

    def end(self) -> None:
        self._todo.put(None)
        self.thread.join(10)
        assert not self.thread.is_alive()


class Clock:
    """Stands still until it is set."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def make_table(clock: Clock | None = None, member: str = "agent/b") -> WaitTable:
    return WaitTable(member=member, incarnation=1, role=member.partition("/")[0], clock=clock or Clock())


def lock(name: str) -> ev.Resource:
    return ev.Resource(r=f"lock:{name}", type="lock")


def need(name: str) -> ev.Clause:
    return ev.Clause(k=1, of=(ev.Atom(r=f"lock:{name}"),))


def stand(table: WaitTable, name: str, **more: Any) -> WaitHandle:
    """The calling thread begins to wait for lock `name`; leave the handle to end that."""
    return table.wait(table.next_ticket(), [need(name)], [lock(name)], **more).__enter__()


def waits(snapshot: Snapshot) -> dict[str, int]:
    """Who is told to wait, by ticket."""
    return {event.p: event.ticket for event in snapshot.events if isinstance(event, ev.Wait)}


def holds(snapshot: Snapshot) -> set[tuple[str, str]]:
    """Who is told to hold what."""
    return {(event.p, event.r) for event in snapshot.events if isinstance(event, ev.Hold)}


def look(table: WaitTable, publish_after_s: float = 0.0) -> Snapshot:
    return table.snapshot(publish_after_s=publish_after_s)
