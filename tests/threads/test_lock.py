"""`TracedLock` against `threading.Lock`: whatever the one does, the other does too."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import queue
import re
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tests.recorder.puppets import Clock, Puppet, holds, look, make_table, waits
from unknot.integrations.threads import TracedLock
from unknot.recovery.errors import FencedError
from unknot.supervisor.recorder.table import WaitTable

Make = Callable[[], Any]


@pytest.fixture(params=["standard", "traced", "traced and held", "standard and held"])
def pair(request: pytest.FixtureRequest) -> Any:
    """A lock of either kind, free or held."""
    lock: Any = TracedLock(make_table()) if "traced" in request.param else threading.Lock()
    if "held" in request.param:
        lock.acquire()
    return lock


def outcome(call: Callable[[], Any]) -> tuple[str, str]:
    """What came of a call: its value, or the type and text of its error."""
    try:
        return "returned", repr(call())
    except Exception as error:  # noqa: BLE001 - any error is an outcome here
        return type(error).__name__, re.sub(r"0x\w+", "0x", str(error))


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {"timeout": 0.01}), ((False,), {}), ((0,), {}), ((True, 0.01), {}), ((1, 0.01), {}), ((True, 0), {}),
    ((False, 1), {}), ((False, 0), {}), ((False, -1), {}), ((True, -2), {}), ((True, -0.5), {}), ((True, float("nan")), {}),
    ((True, float("inf")), {}), ((True, threading.TIMEOUT_MAX * 2), {}), ((True, 10**30), {}), ((True, "1"), {}),
    ((True, None), {}), (("yes",), {}), ((None,), {}), ((1.5,), {}), ((True, 0.01, 1), {}), ((), {"wait": True}),
    ((), {"blocking": False, "timeout": -1}), ((), {"blocking": True, "timeout": 1e-9}),
]  # fmt: skip


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize(("args", "named"), ARGUMENTS)
def test_acquire_takes_and_refuses_the_same_arguments(args: tuple[Any, ...], named: dict[str, Any], held: bool) -> None:
    outcomes = []
    for lock in (threading.Lock(), TracedLock(make_table())):
        if held:
            lock.acquire()
        kind, text = outcome(lambda lock=lock: lock.acquire(*args, **named))  # type: ignore[misc]
        # Of a wrong number of arguments Python itself speaks, in other words for Python functions.
        outcomes.append((kind, text if len(args) < 3 and "wait" not in named else "", lock.locked()))
    assert outcomes[0] == outcomes[1]


def test_a_blocked_acquire_waits_as_long_as_it_was_told_and_no_longer(table: WaitTable) -> None:
    lock = TracedLock(table)
    lock.acquire()
    for timeout_s in (0.005, 0.05, 0.25):
        begun = time.monotonic()
        assert lock.acquire(timeout=timeout_s) is False
        assert timeout_s <= time.monotonic() - begun < timeout_s + 2.0
    assert waits(look(table)) == {}


@pytest.mark.parametrize("how", ["release", "exit"])
def test_releasing_what_is_not_locked_is_an_error_and_changes_nothing(pair: Any, how: str) -> None:
    held = pair.locked()

    def release() -> None:
        if how == "release":
            pair.release()
        else:
            pair.__exit__(None, None, None)

    if held:
        release()
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        release()
    with pair:
        assert pair.locked()
    assert not pair.locked()


def test_a_with_block_gives_what_acquire_gives_and_lets_go_in_an_error(pair: Any) -> None:
    if pair.locked():
        pair.release()

    def body() -> None:
        with pair as got:
            assert got is True
            assert pair.locked()
            raise KeyError

    with pytest.raises(KeyError):
        body()
    assert not pair.locked()


def test_a_body_that_released_its_own_lock_raises_at_the_end_of_with(pair: Any) -> None:
    if pair.locked():
        pair.release()
    with pytest.raises(RuntimeError, match="release unlocked lock"), pair:
        pair.release()


def test_the_old_names_of_the_methods_are_there(pair: Any) -> None:
    assert pair.acquire_lock(False) is not pair.locked_lock() or pair.locked()
    pair.release_lock()
    assert not pair.locked()


def test_representation_pickling_copying_and_comparing_are_those_of_a_lock(pair: Any) -> None:
    state = "locked" if pair.locked() else "unlocked"
    assert re.fullmatch(rf"<{state} \S+ object (\S+ )?at 0x\w+>", repr(pair))
    standard = threading.Lock()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert outcome(lambda: pickle.dumps(pair, protocol)) == outcome(lambda: pickle.dumps(standard, protocol))  # noqa: B023
    assert outcome(lambda: copy.copy(pair)) == outcome(lambda: copy.copy(standard))
    assert outcome(lambda: copy.deepcopy(pair)) == outcome(lambda: copy.deepcopy(standard))
    assert pair == pair
    assert pair != standard
    assert len({pair, standard}) == 2


def test_a_lock_can_be_referred_to_weakly_and_takes_no_attributes(pair: Any) -> None:
    assert weakref.ref(pair)() is pair
    with pytest.raises(AttributeError):
        setattr(pair, "mark", 1)  # noqa: B010 - that is the question


def test_a_lock_that_nobody_has_any_more_is_freed_at_once(table: WaitTable) -> None:
    lock = TracedLock(table)
    with lock:
        pass
    gone = weakref.ref(lock)
    gc.disable()
    try:
        del lock
        assert gone() is None
    finally:
        gc.enable()


def test_a_lock_may_be_released_by_another_thread(pair: Any) -> None:
    if not pair.locked():
        pair.acquire()
    other = threading.Thread(target=pair.release)
    other.start()
    other.join()
    assert pair.acquire(False)


# --- in what is built of locks ---


def test_a_condition_over_a_traced_lock_works(table: WaitTable) -> None:
    ready = threading.Condition(TracedLock(table))  # type: ignore[arg-type]
    items: list[int] = []
    got: list[int] = []

    def consume() -> None:
        with ready:
            while not items:
                assert ready.wait(10)
            got.append(items.pop())

    with pytest.raises(RuntimeError, match="un-acquired lock"):
        ready.notify()
    consumers = [threading.Thread(target=consume) for _ in range(4)]
    for each in consumers:
        each.start()
    for item in range(4):
        with ready:
            items.append(item)
            ready.notify()
    for each in consumers:
        each.join(10)
    assert sorted(got) == [0, 1, 2, 3]
    with ready:
        assert ready.wait(0.01) is False


def test_a_queue_whose_locks_are_traced_keeps_its_order(table: WaitTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Lock", lambda: TracedLock(table))
    channel: queue.Queue[int] = queue.Queue(maxsize=2)
    assert "TracedLock" in repr(channel.mutex)
    monkeypatch.undo()
    sender = threading.Thread(target=lambda: deque(map(channel.put, range(200))))
    sender.start()
    assert [channel.get(timeout=10) for _ in range(200)] == list(range(200))
    sender.join()
    with pytest.raises(queue.Empty):
        channel.get(timeout=0.01)


def test_a_reentrant_lock_built_of_a_traced_one_works(table: WaitTable) -> None:
    class Reentrant:
        def __init__(self) -> None:
            self.block, self.owner, self.count = TracedLock(table), 0, 0

        def __enter__(self) -> None:
            if self.owner != threading.get_ident():
                self.block.acquire()
                self.owner = threading.get_ident()
            self.count += 1

        def __exit__(self, *_: object) -> None:
            self.count -= 1
            if not self.count:
                self.owner = 0
                self.block.release()

    lock, total = Reentrant(), [0]

    def add() -> None:
        for _ in range(200):
            with lock, lock:
                total[0] += 1

    threads = [threading.Thread(target=add) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert total == [800]
    assert not lock.block.locked()


def test_semaphores_events_and_barriers_made_of_traced_locks_work(
    table: WaitTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "Lock", lambda: TracedLock(table))
    event, slots, gate = threading.Event(), threading.Semaphore(2), threading.Barrier(3)
    monkeypatch.undo()
    passed: list[int] = []

    def work(number: int) -> None:
        event.wait(10)
        with slots:
            passed.append(number)
        gate.wait(10)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for each in threads:
        each.start()
    event.set()
    for each in threads:
        each.join(10)
    assert sorted(passed) == [0, 1, 2]


# --- after a fork ---


def test_after_a_fork_a_lock_can_be_made_new(pair: Any) -> None:
    if not pair.locked():
        pair.acquire()
    pair._at_fork_reinit()
    assert not pair.locked()
    with pair:
        assert pair.locked()


def test_a_lock_that_another_thread_held_at_the_fork_stays_locked_in_the_child(table: WaitTable) -> None:
    lock, holder = TracedLock(table), Puppet()
    holder.do(lock.acquire)
    pid = os.fork()
    if pid == 0:
        table.abandon()
        os._exit(0 if lock.acquire(timeout=0.05) is False and lock._owner_now() is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    holder.do(lock.release)
    assert not lock.locked()
    holder.end()


# --- what it tells ---


def test_a_blocked_acquire_is_told_with_the_holder_of_that_instant(table: WaitTable) -> None:
    lock, holder, waiter = TracedLock(table, "x"), Puppet("holder"), threading.Thread(target=lambda: lock.acquire())
    holder.do(lock.acquire)
    waiter.name = "waiter"
    waiter.start()
    _until(lambda: waits(look(table)))
    told = look(table)
    assert list(waits(told)) == ["agent/b#1/waiter"]
    assert holds(told) == {("agent/b#1/holder", "lock:x@agent/b#1")}
    holder.do(lock.release)
    waiter.join()
    assert waits(look(table)) == {}
    holder.end()


def test_an_acquire_that_is_soon_served_is_never_announced(table: WaitTable) -> None:
    lock, ticket = TracedLock(table), table.next_ticket()
    lock.acquire()
    soon = threading.Timer(0.001, lock.release)
    soon.start()
    assert lock.acquire(timeout=10)
    soon.join()
    assert table.next_ticket() == ticket + 1 or waits(look(table)) == {}
    lock.release()


def test_the_time_before_the_announcement_counts_as_waited() -> None:
    clock = Clock()
    table = make_table(clock)
    lock = TracedLock(table)
    lock.acquire()
    waiter = threading.Thread(target=lock.acquire)
    waiter.start()
    _until(table.waits)
    (waiting,) = table.waits().values()
    assert 0.01 < clock.now - waiting.since < 5.0
    lock.release()
    waiter.join()


def test_a_lock_that_another_thread_released_once_is_never_blamed_on_anybody_again(table: WaitTable) -> None:
    lock, first, second = TracedLock(table), Puppet("first"), Puppet("second")
    first.do(lock.acquire)
    assert lock._owner_now() == first.thread.ident
    second.do(lock.release)
    first.do(lock.acquire)
    assert lock._owner_now() is None
    first.do(lock.release)
    second.do(lock.acquire)
    assert lock._owner_now() is None
    first.end()
    second.end()


def test_leaving_a_with_block_whose_lock_has_another_holder_by_now_counts_as_a_foreign_release(table: WaitTable) -> None:
    lock, other = TracedLock(table), Puppet("other")
    with lock:
        other.do(lock.release)
        other.do(lock.acquire)
    assert not lock.locked()
    other.do(lock.acquire)
    assert lock._owner_now() is None
    other.end()


def test_a_failed_release_does_not_count_as_one(table: WaitTable) -> None:
    lock, holder = TracedLock(table), Puppet("holder")
    with pytest.raises(RuntimeError):
        lock.release()
    holder.do(lock.acquire)
    assert lock._owner_now() == holder.thread.ident
    holder.end()


def test_a_lock_that_an_ended_thread_left_behind_is_not_blamed_on_the_heir_of_its_identifier(table: WaitTable) -> None:
    lock, first = TracedLock(table), Puppet("first")
    first.do(lock.acquire)
    ident = first.thread.ident
    first.end()
    assert lock._owner_now() is None
    for _ in range(500):
        heir = Puppet("heir")
        if heir.thread.ident == ident:
            break
        heir.end()
    assert heir.thread.ident == ident
    heir.do(table.participant)
    assert lock._owner_now() is None
    heir.end()


def test_a_waiter_learns_that_its_process_was_replaced(table: WaitTable) -> None:
    lock = TracedLock(table)
    lock.acquire()
    table.fenced = FencedError(member="agent/b", incarnation=1, current=2)
    with pytest.raises(FencedError):
        lock.acquire()
    assert lock.acquire(timeout=0.001) is False, "what would not have been told is not refused"


def test_locks_are_named_after_the_place_that_made_them(table: WaitTable) -> None:
    first, second = (TracedLock(table) for _ in range(2))
    names = [re.search(r"object (\S+) at", repr(lock)) for lock in (first, second)]
    assert all(name is not None and name[1].startswith("threads/test_lock.py:") for name in names)
    assert names[0] is not None
    assert names[1] is not None
    assert names[0][1] != names[1][1]


def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_thread_that_waits_for_a_lock_it_took_itself_may_shake_hands_so_nobody_is_blamed(table: WaitTable) -> None:
    lock = TracedLock(table)
    lock.acquire()
    assert lock._owner_now() == threading.get_ident()
    assert lock._owner_now(threading.get_ident()) is None
    assert lock._owner_now(-1) == threading.get_ident()
