"""A lock across processes: first come first served, fenced, handed over by wake-up.

The order of asking is the order of the queue in Redis. A release gives the lock to the first waiter in the same
script, so it is never free while somebody waits, and nobody who comes later can slip in between. Each grant carries
a token that grows for ever; what is written elsewhere under the lock can carry it and so be refused when late.

A lock has no expiry. One with expiry is lost by a slow holder that still believes in it; here a holder loses the
lock only when its member's next incarnation registers (or is fenced), and from then on nothing that the old
process writes is accepted.
"""

from __future__ import annotations

import threading
import weakref
from types import TracebackType
from typing import NamedTuple

import msgspec

from unknot.graph.events import Atom, Clause, Resource
from unknot.recovery.answers import Answer, ask, check_name, refuse_fenced
from unknot.recovery.errors import FencedError, LockNotHeld
from unknot.recovery.ports import Recorder, Store
from unknot.recovery.waiting import Mode, Request, obtain


class LockStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A lock as Redis sees it: its holder, for how long (seconds), the last token, and who waits, in order."""

    name: str
    holder: str | None
    held_s: float | None
    token: int
    waiters: tuple[str, ...]


class _Holding(NamedTuple):
    """A hold of this process. Depth 0: given up, but Redis could not be told yet."""

    token: int
    depth: int


class _Holdings:
    """What the threads of this process hold, by (lock, participant): all lock objects of one name are one lock."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], _Holding] = {}
        self._lock = threading.Lock()

    def get(self, name: str, participant: str) -> _Holding | None:
        with self._lock:
            return self._held.get((name, participant))

    def of(self, participant: str) -> dict[str, int]:
        with self._lock:
            mine = [(name, holding) for (name, who), holding in self._held.items() if who == participant]
        return {name: holding.token for name, holding in mine}

    def put(self, name: str, participant: str, holding: _Holding | None) -> None:
        with self._lock:
            if holding is None:
                self._held.pop((name, participant), None)
            else:
                self._held[name, participant] = holding


_holdings: weakref.WeakKeyDictionary[Store, _Holdings] = weakref.WeakKeyDictionary()
_holdings_lock = threading.Lock()


def _holdings_of(store: Store) -> _Holdings:
    with _holdings_lock:
        return _holdings.setdefault(store, _Holdings())


def holds_of(store: Store, participant: str) -> dict[str, int]:
    """The locks of the run that a thread of this process holds: name -> token."""
    return _holdings_of(store).of(participant)


def forget_hold(store: Store, recorder: Recorder, participant: str, name: str) -> None:
    """Redis has passed the lock on for this thread, together with something else."""
    _holdings_of(store).put(name, participant, None)
    recorder.release(f"lock:{name}")


class DistributedLock:
    """The lock `name` of a run. Usable from any thread; each thread is a participant of its own.

    A second acquire by the thread that holds it waits for itself for ever, as with threading.Lock, unless
    `reentrant`; then it counts. A context manager: `with lock as token`.

    Raises:
        ConfigError: `name` cannot name a lock.
    """

    def __init__(self, name: str, store: Store, recorder: Recorder, *, reentrant: bool = False) -> None:
        self.name = check_name("lock", name)
        self.reentrant = reentrant
        self._store = store
        self._recorder = recorder
        self._holdings = _holdings_of(store)
        self._resource = Resource(r=f"lock:{name}", type="lock", policy="fifo", reentrant=reentrant)

    def acquire(self, timeout_s: float | None = None) -> int:
        """Take the lock, waiting if need be; the fencing token, which grows with every grant.

        Args:
            timeout_s: seconds to wait at most; None for ever, 0 to not wait.

        Raises:
            WaitTimeout: (a TimeoutError) not granted in time; the place in the queue is given up.
            DeadlockInterrupted: the supervisor ended this wait to free a deadlock.
            RunClosed: the run has ended and the lock is not free.
            FencedError: a newer incarnation of this member has registered.
        """
        participant = self._recorder.participant()
        mine = self._holdings.get(self.name, participant)
        if mine is not None and mine.depth == 0:
            self._tell_released(participant, mine)
        elif mine is not None and self.reentrant:
            self._holdings.put(self.name, participant, mine._replace(depth=mine.depth + 1))
            return mine.token
        answer = obtain(self._store, self._recorder, self._request(participant), timeout_s=timeout_s)
        token = answer.number()
        self._holdings.put(self.name, participant, _Holding(token, 1))
        self._recorder.hold(self._resource, would_wait=timeout_s is None)
        return token

    def release(self) -> None:
        """Give the lock up; the first waiter has it at once.

        Raises:
            LockNotHeld: this thread does not hold it.
            FencedError: a newer incarnation of this member has registered; the lock was passed on then.
            StoreUnavailable: Redis does not know yet: release again, or acquire again, which releases first.
        """
        participant = self._recorder.participant()
        mine = self._holdings.get(self.name, participant)
        if mine is None:
            raise LockNotHeld(name=self.name, participant=participant)
        if mine.depth > 1:
            self._holdings.put(self.name, participant, mine._replace(depth=mine.depth - 1))
            return
        self._tell_released(participant, mine)

    @property
    def token(self) -> int | None:
        """The fencing token of the calling thread's hold, None when it holds nothing."""
        mine = self._holdings.get(self.name, self._recorder.participant())
        return mine.token if mine and mine.depth else None

    def statistics(self) -> LockStatistics:
        """The lock as Redis sees it now. StoreUnavailable when it cannot be asked."""
        fields = ("holder", "since", "token")
        holder, since, token = self._store.command("HMGET", self._store.key("lock", self.name), *fields)
        waiting = self._store.command("LRANGE", self._store.key("lockq", self.name), 0, -1)
        seconds, micros = self._store.command("TIME")
        now = int(seconds) + int(micros) / 1e6
        return LockStatistics(
            name=self.name,
            holder=holder.decode() if holder else None,
            held_s=max(0.0, now - float(since)) if since else None,
            token=int(token or 0),
            waiters=tuple(entry.decode().rpartition("|")[0] for entry in waiting),
        )

    def __enter__(self) -> int:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        mine = self._holdings.get(self.name, self._recorder.participant())
        state = f"held by this thread with token {mine.token}" if mine and mine.depth else "not held by this thread"
        return f"<DistributedLock {self.name} of run {self._store.run}, {state}>"

    def _request(self, participant: str) -> Request:
        ticket = self._recorder.next_ticket()
        who = (self._recorder.member, self._recorder.incarnation, participant, ticket)

        def ask_lock(mode: Mode) -> Answer:
            return ask(self._store, "lock_acquire", self.name, *who, mode)

        return Request(
            participant=participant,
            ticket=ticket,
            resource=self._resource,
            needs=(Clause(k=1, of=(Atom(r=self._resource.r),)),),
            ask=ask_lock,
            give_back=lambda granted: self._release(participant, granted.number()),
        )

    def _tell_released(self, participant: str, mine: _Holding) -> None:
        self._holdings.put(self.name, participant, mine._replace(depth=0))
        try:
            self._release(participant, mine.token)
        except FencedError:
            self._holdings.put(self.name, participant, None)
            raise
        self._holdings.put(self.name, participant, None)
        self._recorder.release(self._resource.r)

    def _release(self, participant: str, token: int) -> None:
        # "gone" is a release whose answer was lost: nobody else can have ended a hold of a live incarnation.
        member, incarnation = self._recorder.member, self._recorder.incarnation
        answer = ask(self._store, "lock_release", self.name, member, incarnation, participant, token)
        refuse_fenced(answer, member, incarnation)
