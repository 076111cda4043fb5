"""Two ends of one wait at the same time: exactly one of them wins, and everybody agrees which.

The order of the two is forced at the only place where it matters, between the waiter's pop and its next question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from unknot.recovery.errors import DeadlockInterrupted, FencedError, WaitTimeout
from unknot.recovery.interrupts import interrupt, standing
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
PARTICIPANT = "agent/a#1"


class AtThePop:
    """Stands in for `blocking_pop`: runs an action when the waiter would block, then answers like an empty key."""

    def __init__(self, store: RedisStore, monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
        self._actions = list(actions)
        monkeypatch.setattr(store, "blocking_pop", self)

    def __call__(self, key: str, *, timeout_s: float) -> bytes | None:
        if self._actions:
            self._actions.pop(0)()
            return None
        threading.Event().wait(timeout_s)
        return None


def in_turn(*actions: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for action in actions:
            action()

    return run


def pause() -> None:
    """Longer than the time-out of the wait under test."""
    threading.Event().wait(0.06)


@pytest.fixture
def holder(store: RedisStore, join: Join) -> DistributedLock:
    lock = DistributedLock("x", store, join("agent/holder"))
    lock.acquire()
    return lock


@pytest.fixture
def waiter(store: RedisStore, join: Join) -> DistributedLock:
    return DistributedLock("x", store, join("agent/a"))


def test_a_grant_before_the_interrupt_wins(
    store: RedisStore, holder: DistributedLock, waiter: DistributedLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hit: list[bool] = []

    def late() -> None:
        hit.append(interrupt(store, PARTICIPANT, 1, incident="i1"))

    AtThePop(store, monkeypatch, in_turn(holder.release, late))
    assert waiter.acquire() == 2
    assert hit == [False]


def test_an_interrupt_before_the_grant_wins_and_the_lock_goes_to_nobody(
    store: RedisStore, holder: DistributedLock, waiter: DistributedLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = partial(interrupt, store, PARTICIPANT, 1, incident="i1")
    AtThePop(store, monkeypatch, in_turn(early, holder.release))
    with pytest.raises(DeadlockInterrupted):
        waiter.acquire()
    assert waiter.statistics().holder is None


def test_a_grant_before_the_timeout_wins(
    store: RedisStore, holder: DistributedLock, waiter: DistributedLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    AtThePop(store, monkeypatch, in_turn(holder.release, pause))
    assert waiter.acquire(timeout_s=0.05) == 2


def test_a_timeout_before_the_grant_wins_and_the_lock_goes_to_nobody(
    store: RedisStore, holder: DistributedLock, waiter: DistributedLock
) -> None:
    with pytest.raises(WaitTimeout):
        waiter.acquire(timeout_s=0.02)
    holder.release()
    assert waiter.statistics().holder is None


def test_an_interrupt_before_the_timeout_wins(
    store: RedisStore, holder: DistributedLock, waiter: DistributedLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = partial(interrupt, store, PARTICIPANT, 1, incident="i1")
    AtThePop(store, monkeypatch, in_turn(early, pause))
    with pytest.raises(DeadlockInterrupted):
        waiter.acquire(timeout_s=0.05)


def test_a_fence_before_the_grant_wins_and_the_next_waiter_gets_the_lock(
    store: RedisStore, holder: DistributedLock, waiter: DistributedLock, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    AtThePop(store, monkeypatch, in_turn(partial(join, "agent/a"), holder.release))
    with pytest.raises(FencedError):
        waiter.acquire()
    assert waiter.statistics().holder is None


def test_an_interrupt_by_the_recorder_leaves_the_queue_unless_the_grant_came_first(
    store: RedisStore, holder: DistributedLock, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(NullRecorder):
        def wait(self, ticket: int, *args: Any, **kwargs: Any) -> Any:
            from contextlib import nullcontext
            from types import SimpleNamespace

            return nullcontext(SimpleNamespace(number=ticket, poll_interrupt=lambda: LookupError("over")))

    join("agent/a")
    lock = DistributedLock("x", store, Interrupted("agent/a", 1))
    AtThePop(store, monkeypatch, lambda: None, holder.release)
    with pytest.raises(LookupError):
        lock.acquire()
    assert lock.statistics().waiters == ()
    assert lock.acquire() == 2


def test_an_item_handed_over_before_the_timeout_is_received(
    store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Mailbox("raw", store, join("agent/b")).declare()
    receiver = Mailbox("raw", store, join("agent/a"))
    AtThePop(store, monkeypatch, in_turn(partial(sender.send, "value"), pause))
    assert receiver.receive(timeout_s=0.05).value == "value"


def test_an_item_that_comes_after_the_timeout_stays_in_the_mailbox(store: RedisStore, join: Join) -> None:
    receiver = Mailbox("raw", store, join("agent/a")).declare()
    with pytest.raises(WaitTimeout):
        receiver.receive(timeout_s=0.02)
    receiver.send("value")
    assert receiver.statistics().queued == 1


def test_an_item_handed_to_a_receiver_that_is_leaving_by_an_exception_is_put_back(
    store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Mailbox("raw", store, join("agent/b")).declare()
    receiver = Mailbox("raw", store, join("agent/a"))

    def interrupted() -> None:
        sender.send("value")
        raise KeyboardInterrupt

    AtThePop(store, monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        receiver.receive()
    assert receiver.statistics().queued == 1
    assert receiver.statistics().unacked == 0


def test_space_made_before_the_timeout_lets_the_item_in_once(
    store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Mailbox("raw", store, join("agent/b")).declare(capacity=1)
    sender = Mailbox("raw", store, join("agent/a"))
    sender.send("first")
    AtThePop(store, monkeypatch, in_turn(receiver.receive, pause))
    assert sender.send("second", timeout_s=0.05) == 2
    assert receiver.statistics().queued == 1


def test_a_wait_that_was_granted_does_not_stand_even_before_its_thread_wakes(
    store: RedisStore, holder: DistributedLock, waiter: DistributedLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[tuple[str, int], bool]] = []

    def look() -> None:
        seen.append(standing(store, [(PARTICIPANT, 1), ("agent/none#1", 5)]))

    AtThePop(store, monkeypatch, in_turn(look, holder.release, look))
    waiter.acquire()
    assert [found[PARTICIPANT, 1] for found in seen] == [True, False]
    assert not seen[0]["agent/none#1", 5]


def test_under_a_storm_of_grants_interrupts_and_timeouts_every_wait_ends_one_way(store: RedisStore, join: Join) -> None:
    recorder = join("agent/a")
    stop = threading.Event()
    ends: list[str] = []

    def work() -> None:
        lock = DistributedLock("x", store, recorder)
        for turn in range(15):
            try:
                lock.acquire(timeout_s=0.004 if turn % 3 else 5)
            except (WaitTimeout, DeadlockInterrupted) as error:
                ends.append(type(error).__name__)
            else:
                ends.append("granted")
                lock.release()

    def interrupt_all() -> None:
        while not stop.is_set():
            for entry in store.command("LRANGE", store.key("lockq", "x"), 0, -1):
                participant, _, ticket = entry.decode().rpartition("|")
                interrupt(store, participant, int(ticket), incident="i1")
            stop.wait(0.003)

    with ThreadPoolExecutor(5) as pool:
        interrupter = pool.submit(interrupt_all)
        workers: list[Future[None]] = [pool.submit(work) for _ in range(4)]
        for worker in workers:
            worker.result(60)
        stop.set()
        interrupter.result(10)
    final = DistributedLock("x", store, recorder).statistics()
    assert len(ends) == 60
    assert (final.holder, final.waiters) == (None, ())
    assert final.token == ends.count("granted")
    assert store.command("HLEN", store.key("waits", "agent/a")) == 0
