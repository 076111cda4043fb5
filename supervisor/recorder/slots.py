"""A slot for each thread: what it waits for now, and what it holds.

Only its own thread writes a slot's wait. Holds live in a dict of the slot, written by the thread that acquires or
releases. The order of the writes is the promise that a verdict rests on (docs/design.md): a wait is written before
blocking and cleared after waking; a hold is written after that, and removed after releasing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from unknot.graph.events import Clause, Resource


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """One announced wait. `since` is wall-clock seconds; `owner_of` tells who holds an in-process lock."""

    ticket: int
    needs: tuple[Clause, ...]
    resources: tuple[Resource, ...]
    since: float
    site: str | None
    deadline: float | None = None
    label: str | None = None
    interruptible: bool = False
    owner_of: Callable[[], int | None] | None = None


class Slot:
    """The place of one thread in the wait table."""

    __slots__ = ("__weakref__", "holds", "ident", "interrupt", "native_id", "participant", "wait", "wake_at")

    def __init__(self, participant: str, ident: int, native_id: int) -> None:
        self.participant = participant
        self.ident = ident
        self.native_id = native_id
        self.wait: Waiting | None = None
        self.holds: dict[str, tuple[Resource, int]] = {}
        self.interrupt: tuple[int, Exception] | None = None
        self.wake_at: Any = None


class WaitHandle:
    """One wait of one slot, as the primitive that blocks sees it: the context manager of `WaitTable.wait`."""

    __slots__ = ("_slot", "_table", "_waiting", "number")

    def __init__(self, table: Any, slot: Slot, waiting: Waiting) -> None:
        self._table = table
        self._slot = slot
        self._waiting = waiting
        self.number = waiting.ticket

    def __enter__(self) -> WaitHandle:
        self._slot.wait = self._waiting
        return self

    def __exit__(self, *_: object) -> None:
        self._slot.wait = None

    def poll_interrupt(self) -> Exception | None:
        """The error to raise if this very wait was interrupted, or the process fenced, else None."""
        pending = self._slot.interrupt
        if pending is not None and pending[0] == self.number:
            return pending[1]
        fenced: Exception | None = self._table.fenced
        return fenced
