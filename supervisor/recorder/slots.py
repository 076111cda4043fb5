"""A slot for each thread: what it waits for now, and what it holds.

Only its own thread writes a slot's wait. Holds live in a dict of the slot, written by the thread that acquires or
releases. The order of the writes is the promise that a verdict rests on (docs/design.md): a wait is written before
blocking and cleared after waking; a hold is written after that, and removed after releasing.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from unknot.graph.events import Clause, Resource


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One announced wait. `since` is wall-clock seconds; `owner_of` tells which thread holds an in-process lock."""

    ticket: int
    needs: tuple[Clause, ...]
    resources: tuple[Resource, ...]
    since: float
    site: str | None
    deadline: float | None = None
    limit: float | None = None
    label: str | None = None
    interruptible: bool = False
    owner_of: Callable[[], int | None] | None = None


class Held(NamedTuple):
    """What a thread holds: how much of it, since when (wall-clock seconds), and where it took it."""

    resource: Resource
    units: int
    since: float
    site: str | None


class Life:
    """Lies in a thread's local storage, and so ends with the thread."""

    __slots__ = ("__weakref__",)


class Slot:
    """The place of one thread in the wait table.

    Identifiers of threads are used again as soon as a thread has ended, so a slot knows the thread itself: by its
    `Thread`, or by a `Life` in its local storage once it has been here. (Threads of C libraries have no `Thread`;
    asking for it makes one that never ends.) A slot whose thread ended while it held something is kept: `ended_at`
    (seconds, by the table's clock) is set once that was seen.
    """

    __slots__ = ("ended_at", "holds", "ident", "interrupt", "life", "participant", "thread", "wait")

    def __init__(self, participant: str, ident: int, thread: threading.Thread | None) -> None:
        self.participant = participant
        self.ident = ident
        self.wait: Waiting | None = None
        self.holds: dict[str, Held] = {}
        self.interrupt: tuple[int, Exception] | None = None
        self.ended_at: float | None = None
        self.thread = weakref.ref(thread) if thread is not None else None
        self.life: weakref.ref[Life] | None = None

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        if self.life is not None:
            return self.life() is not None
        thread = self.thread() if self.thread is not None else None
        return thread is not None and thread.is_alive()


class WaitHandle:
    """One wait of one slot, as the primitive that blocks sees it: the context manager of `WaitTable.wait`.

    A wait inside of another one (a call in a block that is marked as waiting for the outside) takes its place. When it
    ends, the outer one stands again, with a new ticket: the thread ran in between, and no proof may span that.
    """

    __slots__ = ("_outer", "_slot", "_table", "_waiting", "number")

    def __init__(self, table: Any, slot: Slot | None, waiting: Waiting) -> None:
        self._table = table
        self._slot = slot
        self._waiting = waiting
        self._outer: Waiting | None = None
        self.number = waiting.ticket

    def __enter__(self) -> WaitHandle:
        if self._slot is not None:
            self._outer = self._slot.wait
            self._slot.wait = self._waiting
        return self

    def __exit__(self, *_: object) -> None:
        if self._slot is not None:
            outer = self._outer
            self._slot.wait = None if outer is None else self._table.again(outer)

    def poll_interrupt(self) -> Exception | None:
        """The error to raise if this very wait was interrupted, or the process fenced, else None."""
        if self._slot is None:
            return None
        pending = self._slot.interrupt
        if pending is not None and pending[0] == self.number:
            return pending[1]
        fenced: Exception | None = self._table.fenced
        return fenced
