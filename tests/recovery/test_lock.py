from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from unknot.recovery.errors import (
    ConfigError,
    DeadlockInterrupted,
    FencedError,
    LockNotHeld,
    RunClosed,
    StoreCorrupt,
    StoreUnavailable,
    WaitTimeout,
)
from unknot.recovery.interrupts import interrupt
from unknot.recovery.lock import DistributedLock
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.run import RunClaim
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
Eventually = Callable[..., None]


def waiting(lock: DistributedLock, count: int) -> Callable[[], bool]:
    return lambda: len(lock.statistics().waiters) == count


def test_a_free_lock_is_granted_at_once_and_its_token_grows_with_every_grant(store: RedisStore, join: Join) -> None:
    lock = DistributedLock("weights", store, join("agent/a"))
    tokens = []
    for _ in range(3):
        with lock as token:
            tokens.append(token)
    assert tokens == [1, 2, 3]


def test_a_lock_is_granted_in_the_order_of_asking(store: RedisStore, join: Join, eventually: Eventually) -> None:
    holder = DistributedLock("weights", store, join("agent/holder"))
    order: list[str] = []

    def take(name: str) -> None:
        lock = DistributedLock("weights", store, join(f"agent/{name}"))
        with lock:
            order.append(name)

    with ThreadPoolExecutor(5) as pool:
        with holder:
            for count, name in enumerate("abcde", start=1):
                pool.submit(take, name)
                eventually(waiting(holder, count))
        eventually(lambda: len(order) == 5)
    assert order == list("abcde")


def test_at_most_one_thread_holds_a_lock_at_a_time(store: RedisStore, join: Join) -> None:
    recorder = join("agent/a")
    inside, most, tokens = 0, 0, []

    def work() -> None:
        nonlocal inside, most
        lock = DistributedLock("weights", store, recorder)
        for _ in range(20):
            with lock as token:
                inside += 1
                most = max(most, inside)
                tokens.append(token)
                inside -= 1

    threads = [threading.Thread(target=work, name="worker") for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 80


def test_a_second_acquire_by_its_holder_waits_for_itself(store: RedisStore, join: Join) -> None:
    recorder = join("agent/a")
    lock = DistributedLock("weights", store, recorder)
    with lock:
        with pytest.raises(WaitTimeout, match=r"agent/a#1 waited 0\.05 s for lock:weights"):
            lock.acquire(timeout_s=0.05)
        assert lock.statistics().waiters == ()


def test_a_reentrant_lock_counts_its_holds_over_all_its_objects(store: RedisStore, join: Join) -> None:
    recorder = join("agent/a")
    with DistributedLock("weights", store, recorder, reentrant=True) as first:
        with DistributedLock("weights", store, recorder, reentrant=True) as second:
            assert first == second
        assert DistributedLock("weights", store, recorder).statistics().holder == "agent/a#1"
    assert DistributedLock("weights", store, recorder).statistics().holder is None


def test_a_timeout_of_zero_neither_waits_nor_queues(store: RedisStore, join: Join) -> None:
    with DistributedLock("weights", store, join("agent/a")):
        other = DistributedLock("weights", store, join("agent/b"))
        with pytest.raises(TimeoutError):
            other.acquire(timeout_s=0)
        assert other.statistics().waiters == ()


def test_only_the_thread_that_holds_a_lock_can_release_it(store: RedisStore, join: Join) -> None:
    recorder = join("agent/a")
    lock = DistributedLock("weights", store, recorder)
    with lock, ThreadPoolExecutor(1) as pool, pytest.raises(LockNotHeld, match="does not hold lock weights"):
        pool.submit(lock.release).result()
    with pytest.raises(RuntimeError):
        lock.release()


def test_a_new_incarnation_voids_the_holder_and_passes_its_lock_on(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    old = DistributedLock("weights", store, join("agent/a"))
    other = DistributedLock("weights", store, join("agent/b"))
    old.acquire()
    with ThreadPoolExecutor(1) as pool:
        token = pool.submit(other.acquire)
        eventually(waiting(other, 1))
        join("agent/a")
        assert token.result(10) == 2
    with pytest.raises(FencedError, match="agent/a#1 was replaced by agent/a#2"):
        old.release()
    assert (other.statistics().holder or "").startswith("agent/b#1/")


def test_a_waiter_of_an_old_incarnation_is_taken_out_and_told(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    holder = DistributedLock("weights", store, join("agent/holder"))
    old = DistributedLock("weights", store, join("agent/a"))
    with holder, ThreadPoolExecutor(1) as pool:
        doomed = pool.submit(old.acquire)
        eventually(waiting(holder, 1))
        join("agent/a")
        with pytest.raises(FencedError):
            doomed.result(10)
        assert holder.statistics().waiters == ()


def test_an_interrupted_wait_ends_with_the_incident_and_leaves_the_queue(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    holder = DistributedLock("weights", store, join("agent/holder"))
    recorder = join("agent/a")
    lock = DistributedLock("weights", store, recorder)
    with holder, ThreadPoolExecutor(1) as pool:
        victim = pool.submit(lock.acquire)
        eventually(waiting(holder, 1))
        (participant,) = holder.statistics().waiters
        assert not interrupt(store, participant, 999, incident="7f3a")
        assert interrupt(store, participant, 1, incident="7f3a")
        with pytest.raises(DeadlockInterrupted, match="supervisor explain 7f3a") as caught:
            victim.result(10)
        assert holder.statistics().waiters == ()
    assert (caught.value.participant, caught.value.resource) == (participant, "lock:weights")


def test_waits_end_when_the_run_closes_but_a_free_lock_can_still_be_had(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    claim = RunClaim.take(store)
    holder = DistributedLock("weights", store, join("agent/holder"))
    lock = DistributedLock("weights", store, join("agent/a"))
    with holder, ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(lock.acquire)
        eventually(waiting(holder, 1))
        assert claim.closing() == 1
        with pytest.raises(RunClosed, match="has ended; let run"):
            waiter.result(10)
        with pytest.raises(RunClosed):
            lock.acquire()
    with DistributedLock("other", store, join("agent/b")) as token:
        assert token == 1


def test_a_lost_wake_up_costs_a_slice_of_time_and_not_the_grant(
    store: RedisStore, join: Join, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unknot.recovery.waiting.SLICE_S", 0.1)
    holder = DistributedLock("weights", store, join("agent/holder"))
    lock = DistributedLock("weights", store, join("agent/a"))
    monkeypatch.setattr(store, "blocking_pop", lambda key, timeout_s: threading.Event().wait(timeout_s) or None)
    with ThreadPoolExecutor(1) as pool:
        with holder:
            waiter = pool.submit(lock.acquire)
            eventually(waiting(holder, 1))
        assert waiter.result(10) == 2


def test_an_exception_in_the_waiting_thread_takes_its_place_out_of_the_queue(
    store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(key: str, timeout_s: float) -> None:
        raise KeyboardInterrupt

    lock = DistributedLock("weights", store, join("agent/a"))
    with DistributedLock("weights", store, join("agent/holder")):
        monkeypatch.setattr(store, "blocking_pop", stop)
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
        assert lock.statistics().waiters == ()


def test_a_grant_that_nobody_can_use_any_more_is_given_back(
    store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = DistributedLock("weights", store, join("agent/holder"))
    lock = DistributedLock("weights", store, join("agent/a"))
    holder.acquire()

    def granted_and_then_stopped(key: str, timeout_s: float) -> None:
        holder.release()
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "blocking_pop", granted_and_then_stopped)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    assert lock.statistics().holder is None
    assert lock.statistics().token == 2


def test_a_release_that_redis_did_not_hear_is_made_up_for(
    store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(name: str, keys: object, args: object) -> None:
        raise StoreUnavailable(where="here", why="gone", todo="wait")

    lock = DistributedLock("weights", store, join("agent/a"))
    for again in (lock.acquire, lock.release):
        lock.acquire()
        with monkeypatch.context() as broken:
            broken.setattr(store, "script", unavailable)
            with pytest.raises(StoreUnavailable):
                lock.release()
        assert lock.token is None
        assert lock.statistics().holder == "agent/a#1"
        again()
        if again == lock.acquire:
            lock.release()
        assert lock.statistics().holder is None


def test_statistics_and_repr_say_who_holds_and_who_waits(store: RedisStore, join: Join, eventually: Eventually) -> None:
    lock = DistributedLock("weights", store, join("agent/a"))
    assert repr(lock) == f"<DistributedLock weights of run {store.run}, not held by this thread>"
    with lock, ThreadPoolExecutor(1, thread_name_prefix="loader") as pool:
        waiter = pool.submit(lock.acquire, 5.0)
        eventually(waiting(lock, 1))
        seen = lock.statistics()
        assert repr(lock) == f"<DistributedLock weights of run {store.run}, held by this thread with token 1>"
        lock.release()
        waiter.result(10)
        pool.submit(lock.release).result()
        lock.acquire()
    assert (seen.holder, seen.token, seen.waiters) == ("agent/a#1", 1, ("agent/a#1/loader_0",))
    assert seen.held_s is not None
    assert 0 <= seen.held_s < 10


@pytest.mark.parametrize("name", ["", "two words", "a|b", "a/b", "x" * 201])
def test_a_name_that_cannot_be_part_of_a_key_is_refused(store: RedisStore, join: Join, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a lock"):
        DistributedLock(name, store, join("agent/a"))


def test_a_key_of_a_wrong_type_is_named_and_nothing_is_changed(store: RedisStore, join: Join) -> None:
    recorder = join("agent/a")
    store.command("SET", store.key("lockq", "weights"), "not a list")
    with pytest.raises(
        StoreCorrupt, match=r"lockq:weights of Redis is a string instead of a list; nothing was changed"
    ):
        DistributedLock("weights", store, recorder).acquire()
    assert store.command("EXISTS", store.key("lock", "weights")) == 0


def test_the_errors_of_a_wait_cross_process_borders_whole() -> None:
    for error in (
        WaitTimeout(participant="agent/a#1", resource="lock:x", timeout_s=1.5),
        LockNotHeld(name="x", participant="agent/a#1"),
        FencedError(member="agent/a", incarnation=1, current=2),
    ):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.args, copy.__dict__) == (type(error), error.args, error.__dict__)
