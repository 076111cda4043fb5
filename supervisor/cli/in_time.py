"""A deadline for everything that a command asks of somebody else.

The time limit of a socket begins anew with each byte, so a server that sends one byte a second is never late for it. So the asking is done
by a thread of its own, and whoever waits for it stops waiting. That thread ends with the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from unknot.recovery.errors import StoreUnavailable

T = TypeVar("T")


class TooLate(Exception):  # noqa: N818 - named after what happened, as in recovery/errors.py
    """The work was not done in time; it never leaves the command."""


class _Work(threading.Thread, Generic[T]):
    """Does one piece of work, and keeps what comes of it."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__(name="supervisor-asks", daemon=True)
        self._work = work
        self.done: list[T] = []
        self.failed: Exception | None = None

    def run(self) -> None:
        """Do it."""
        try:
            self.done.append(self._work())
        except Exception as error:  # noqa: BLE001 - raised again by whoever waits
            self.failed = error


def within(work: Callable[[], T], limit_s: float) -> T:
    """What `work` answers, or its error. Raises TooLate when it takes longer than `limit_s` seconds, all of it together."""
    thread = _Work(work)
    thread.start()
    thread.join(limit_s)
    if thread.failed is not None:
        raise thread.failed
    if not thread.done:
        raise TooLate
    return thread.done[0]


def answered(work: Callable[[], T], *, limit_s: float, where: str) -> T:
    """The same for work with Redis at `where`. Raises StoreUnavailable when it is not done in time."""
    try:
        return within(work, limit_s)
    except TooLate:
        raise StoreUnavailable(
            where=where,
            why=f"it has not answered in full within {limit_s:g} s",
            todo="check that Redis runs and can be reached from this host, or give a longer --timeout",
        ) from None
