"""`threading.Lock` that knows its owner, and tells the wait table when somebody blocks on it.

Uncontended, acquire and release touch memory only: the raw lock and one attribute. Contended, the first milliseconds are
waited out in silence, since no wait so short is ever told. Then the wait is announced, with a function that tells the
present owner, so that whoever looks sees the holder of that instant and no bookkeeping is needed while nobody waits.

The owner is not the identifier of a thread: that is given to the next thread as soon as one has ended, and a lock that
was left behind would be blamed on a stranger. It is an object of the thread that acquired, from which can be told whether
that thread still lives. (Its `Thread` object would do too, but asking for it makes one in threads of C libraries, and
that one is never freed.)

The lock keeps the standard one's behaviour: it may be released by another thread. A lock where that was once seen has no
owner that could be blamed any more: its holder is then open, never proof. The same goes for one whose owner has ended.
The order of the writes matters: the mark "released by another" is set before the lock is free, and a reader reads the
owner first and the mark after it. So an owner that was written late, by a thread that was overtaken between acquiring
and writing, is never believed.
"""

from __future__ import annotations

import _thread
import functools
import itertools
import threading
import time
import weakref
from types import TracebackType
from typing import Any

from unknot.graph.events import Atom, Clause, Resource
from unknot.supervisor.recorder.sites import calling_site
from unknot.supervisor.recorder.table import WaitTable

_SLICE_S = 0.1
_PATIENCE_S = 0.02
_TIMEOUT_MAX = threading.TIMEOUT_MAX
_serial = itertools.count(1)


class _Life:
    """Lies in a thread's local storage, and so ends with the thread."""

    __slots__ = ("__weakref__",)


class _Owner:
    """Who acquired: the identifier of a thread, and whether it is still that thread's."""

    __slots__ = ("ident", "life")

    def __init__(self, life: _Life) -> None:
        self.ident = _thread.get_ident()
        self.life = weakref.ref(life)


class _Me(threading.local):
    """The calling thread as an owner; made by itself in each thread."""

    def __init__(self) -> None:
        self.life = _Life()
        self.owner = _Owner(self.life)


_me = _Me()


class TracedLock:
    """A drop-in for the object that `threading.Lock()` returns.

    Beside what that raises, a blocked acquire raises DeadlockInterrupted when the supervisor ended this wait, and
    FencedError when a newer incarnation of this member has registered.

    Args:
        table: of the process.
        name: for people; the place where the lock was made if None.
    """

    __slots__ = ("__weakref__", "_acquire", "_foreign", "_name", "_owner", "_raw", "_release", "_table")

    def __init__(self, table: WaitTable, name: str | None = None) -> None:
        self._raw = _thread.allocate_lock()
        self._acquire = self._raw.acquire
        self._release = self._raw.release
        self._owner: _Owner | None = None
        self._foreign = False
        self._table = table
        self._name = name if name is not None else f"{calling_site() or 'unknown'}:{next(_serial)}"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT001, FBT002 - the standard signature
        """As `threading.Lock.acquire`."""
        if blocking is not True or timeout != -1:
            return self._acquire_as_told(blocking, timeout)
        if self._acquire(False):  # noqa: FBT003 - the fast path takes no keyword
            self._owner = _me.owner
            return True
        return self._acquire_slowly(None)

    def __enter__(self) -> bool:
        if self._acquire(False):  # noqa: FBT003 - as above
            self._owner = _me.owner
            return True
        return self._acquire_slowly(None)

    def release(self) -> None:
        """As `threading.Lock.release`: by any thread, RuntimeError if not locked."""
        if self._owner is _me.owner:
            self._owner = None
            self._release()
        else:
            self._release_for_another()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Who leaves a block has acquired. If the lock is another's by now, somebody called `release` for us in between, and
        # that has marked the lock as one that nobody is blamed for; so there is nothing to compare here.
        self._owner = None
        self._release()

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._raw.locked()

    acquire_lock = acquire
    release_lock = release
    locked_lock = locked

    def _acquire_as_told(self, blocking: Any, timeout: Any) -> bool:
        """With arguments; what they must be, the raw lock knows, which takes all that cannot block or cannot be."""
        number = isinstance(blocking, int) and isinstance(timeout, int | float)
        if number and blocking and (timeout == -1 or 0 < timeout <= _TIMEOUT_MAX):
            return self.__enter__() if timeout == -1 else self._acquire_slowly(timeout)
        if not self._raw.acquire(blocking, timeout):
            return False
        self._owner = _me.owner
        return True

    def _acquire_slowly(self, timeout_s: float | None) -> bool:
        started = time.monotonic()
        end = None if timeout_s is None else started + timeout_s
        if not self._raw.acquire(timeout=_left(end, _PATIENCE_S)):
            if end is not None and time.monotonic() >= end:
                return False
            if not self._acquire_announced(started, end):
                return False
        self._owner = _me.owner
        return True

    def _acquire_announced(self, started: float, end: float | None) -> bool:
        resource = Resource(r=f"lock:{self._name}@{self._table.source}", type="lock", policy="any")
        need = Clause(k=1, of=(Atom(r=resource.r),))
        now = time.monotonic()
        with self._table.wait(
            self._table.next_ticket(), [need], [resource], deadline_s=None if end is None else end - now,
            owner_of=functools.partial(self._owner_now, threading.get_ident()), label="threading.Lock",
            waited_s=now - started,
        ) as waiting:  # fmt: skip
            while not self._raw.acquire(timeout=_left(end, _SLICE_S)):
                interrupt = waiting.poll_interrupt()
                if interrupt is not None:
                    raise interrupt
                if end is not None and time.monotonic() >= end:
                    return False
        return True

    def _release_for_another(self) -> None:
        if self._raw.locked():
            self._foreign = True
        self._release()
        self._foreign = True

    def _owner_now(self, waiter: int | None = None) -> int | None:
        """The thread that is to blame. One that waits for a lock it has taken itself may well shake hands with another
        thread, which will release it: that is legal, and so nobody is blamed."""
        owner = self._owner
        if owner is None or self._foreign or owner.life() is None or owner.ident == waiter:
            return None
        return owner.ident

    def _at_fork_reinit(self) -> None:
        self._raw = _thread.allocate_lock()
        self._acquire = self._raw.acquire
        self._release = self._raw.release
        self._owner = None

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        return self._raw.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        state = "locked" if self._raw.locked() else "unlocked"
        return f"<{state} unknot.TracedLock object {self._name} at {id(self):#x}>"


def _left(end: float | None, most_s: float) -> float:
    """Seconds to wait now: `most_s` at most, and not past `end`."""
    return most_s if end is None else min(most_s, max(end - time.monotonic(), 0.0))
