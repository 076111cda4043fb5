"""`threading.Lock` that knows its owner, and tells the wait table when somebody blocks on it.

Uncontended, acquire and release touch memory only: the raw lock and one attribute. Contended, the wait is announced before
blocking, with a function that tells the present owner, so that whoever looks sees the holder of that instant and no
bookkeeping is needed while nobody waits.

The lock keeps the standard one's behaviour: it may be released by another thread. A lock where that was once seen has no owner
that could be blamed any more: its holder is then open, never proof.
"""

from __future__ import annotations

import _thread
import itertools
import threading
import time
from types import TracebackType

from unknot.graph.events import Atom, Clause, Resource
from unknot.supervisor.recorder.sites import calling_site
from unknot.supervisor.recorder.table import WaitTable

_SLICE_S = 0.1
_get_ident = threading.get_ident
_serial = itertools.count(1)


class TracedLock:
    """A drop-in for the object that `threading.Lock()` returns."""

    __slots__ = ("__weakref__", "_acquire", "_foreign", "_name", "_owner", "_raw", "_release", "_table")

    def __init__(self, table: WaitTable, name: str | None = None) -> None:
        self._raw = _thread.allocate_lock()
        self._acquire = self._raw.acquire
        self._release = self._raw.release
        self._owner: int | None = None
        self._foreign = False
        self._table = table
        self._name = name if name is not None else f"{calling_site() or 'unknown'}:{next(_serial)}"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - the standard signature
        """As `threading.Lock.acquire`."""
        if self._acquire(False):  # noqa: FBT003 - the fast path takes no keyword
            self._owner = _get_ident()
            return True
        if not blocking or timeout == 0:
            return self._raw.acquire(blocking, timeout)
        return self._acquire_slowly(timeout)

    def __enter__(self) -> bool:
        if self._acquire(False):  # noqa: FBT003 - as above
            self._owner = _get_ident()
            return True
        return self._acquire_slowly(-1)

    def release(self) -> None:
        """As `threading.Lock.release`: by any thread, RuntimeError if not locked."""
        if self._owner != _get_ident():
            self._foreign = self._owner is not None or self._foreign
        self._owner = None
        self._release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner = None
        self._release()

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._raw.locked()

    def _acquire_slowly(self, timeout_s: float) -> bool:
        if timeout_s < 0 and timeout_s != -1:
            raise ValueError("timeout value must be a non-negative number")
        end = None if timeout_s < 0 else time.monotonic() + timeout_s
        resource = Resource(r=f"lock:{self._name}@{self._table.source}", type="lock", policy="any")
        need = Clause(k=1, of=(Atom(r=resource.r),))
        deadline_s = None if end is None else timeout_s
        ticket = self._table.next_ticket()
        with self._table.wait(
            ticket, [need], [resource], deadline_s=deadline_s, owner_of=self._owner_now, label="threading.Lock"
        ) as waiting:
            while True:
                left = _SLICE_S if end is None else min(_SLICE_S, max(end - time.monotonic(), 0.0))
                if self._raw.acquire(timeout=left):
                    break
                interrupt = waiting.poll_interrupt()
                if interrupt is not None:
                    raise interrupt
                if end is not None and time.monotonic() >= end:
                    return False
        self._owner = _get_ident()
        return True

    def _owner_now(self) -> int | None:
        return None if self._foreign else self._owner

    def _at_fork_reinit(self) -> None:
        self._raw = _thread.allocate_lock()
        self._acquire = self._raw.acquire
        self._release = self._raw.release
        self._owner = None

    def __repr__(self) -> str:
        state = "locked" if self._raw.locked() else "unlocked"
        return f"<{state} unknot.TracedLock {self._name} owner={self._owner}>"
