"""A step is done wholly or not at all, once, and runs again without the user noticing."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.recovery.stepping import A, Eventually, J, Join, contents, each, held, interrupt_waiting, steps_of
from unknot.recovery.errors import (
    DeadlockInterrupted,
    FencedError,
    LockNotHeld,
    StepAborted,
)
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.step_buffer import backoff_s, seed_of
from unknot.recovery.steps import MemberSteps, committed_steps
from unknot.recovery.weight_rights import declare_publishers
from unknot.recovery.weights import Weights
from unknot.supervisor.store.redis_store import RedisStore

# --- all or nothing ---


def test_what_a_step_did_is_seen_when_it_has_ended_and_not_before(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox]
) -> None:
    declare_publishers(store, "w", [J])
    judge, reader = join(J), join("trainer/0")
    boxes["raw"].send(1)
    (step,) = [step for step in steps_of(store, judge).run(until=1) if judge_one(store, step, reader)]
    assert step.state == "committed"
    assert contents(store, reader, "scored") == [2]
    assert (held(store, J), boxes["raw"].statistics().acked) == (0, 1)
    assert Weights("w", store, reader).latest(timeout_s=0).value == "weights"
    assert committed_steps(store, J) == 1


def judge_one(store: RedisStore, step: Any, reader: NullRecorder) -> bool:
    with step:
        item = step.receive("raw")
        step.send("scored", item.value + 1)
        step.write("seen", item.value)
        assert step.publish("w", "weights").n == 1
        assert step.read("seen") == 1
        assert contents(store, reader, "scored") == []
        assert store.command("EXISTS", store.key("state", J), store.key("weightsm", "w")) == 0
    return True


def test_an_exception_leaves_nothing_of_a_step_and_is_the_users(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox]
) -> None:
    judge = join(J)
    boxes["raw"].send(1)
    boxes["raw"].send(2)
    ran: list[str] = []

    def body(step: Any) -> None:
        step.receive("raw")
        step.receive("raw")
        step.send("scored", 1)
        step.write("seen", 1)
        step.defer(ran.append, "deferred")
        DistributedLock("x", store, judge).acquire()
        _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        each(steps_of(store, judge).run(), body)
    assert contents(store, judge, "raw") == [1, 2]
    assert (boxes["scored"].statistics().queued, committed_steps(store, J), ran) == (0, 0, [])
    assert DistributedLock("x", store, judge).statistics().holder is None
    assert store.command("EXISTS", store.key("state", J)) == 0


def test_a_step_goes_on_after_the_last_committed_one_in_the_next_process(store: RedisStore, join: Join) -> None:
    for incarnation in range(1, 4):
        for step in steps_of(store, join(A)).run(until=2 * incarnation):
            with step:
                step.write("count", step.read("count", 0) + 1)
    last = steps_of(store, join(A))
    assert list(_one(last)) == [(6, 6)]


def _one(steps: MemberSteps) -> Any:
    for step in steps.run(until=7):
        with step:
            yield step.seq, step.read("count")


def test_deferred_calls_run_after_the_commit_in_order(store: RedisStore, join: Join) -> None:
    seen: list[tuple[str, int]] = []
    for step in steps_of(store, join(A)).run(until=1):
        with step:
            for name in ("first", "second"):
                step.defer(lambda name: seen.append((name, committed_steps(store, A))), name)
    assert seen == [("first", 1), ("second", 1)]


def test_a_replaced_process_commits_nothing(store: RedisStore, join: Join, boxes: dict[str, Mailbox]) -> None:
    old = join(A)

    def body(step: Any) -> None:
        step.send("raw", 1)
        join(A)

    with pytest.raises(FencedError):
        each(steps_of(store, old).run(), body)
    assert boxes["raw"].statistics().queued == 0


# --- again ---


def test_an_interrupt_inside_a_step_runs_it_again_with_the_same_seq_and_seed(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], eventually: Eventually
) -> None:
    judge = join(J)
    boxes["raw"].send("item")
    seen: list[tuple[int, int, int, str]] = []

    def run() -> None:
        for step in steps_of(store, judge).run(until=1):
            with step:
                seen.append((step.seq, step.attempt, step.seed, step.id))
                step.receive("raw")
                step.receive("scored")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        interrupt_waiting(store, "mboxr", "scored", eventually)
        eventually(lambda: len(seen) == 2)
        boxes["scored"].send("free")
        running.result(10)
    assert seen[0] == (0, 0, seed_of(0, J, 0), f"{store.run}:{J}:0")
    assert seen[1] == (0, 1, *seen[0][2:])
    assert (held(store, J), committed_steps(store, J)) == (0, 1)


def test_the_lock_of_an_interrupted_step_is_passed_on(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], eventually: Eventually
) -> None:
    judge, other = join(J), DistributedLock("x", store, join(A))
    attempts: list[int] = []

    def run() -> None:
        for step in steps_of(store, judge).run(until=1):
            with step:
                attempts.append(step.attempt)
                if step.attempt == 0:
                    DistributedLock("x", store, judge).acquire()
                    step.receive("raw")

    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(run)
        eventually(lambda: other.statistics().holder)
        waiting = pool.submit(other.acquire)
        eventually(lambda: other.statistics().waiters)
        interrupt_waiting(store, "mboxr", "raw", eventually)
        assert waiting.result(10) == 2
        running.result(10)
    assert attempts == [0, 1]


def test_locks_taken_in_a_step_are_free_after_its_commit_and_earlier_ones_are_not(store: RedisStore, join: Join) -> None:
    me = join(A)
    before, inside, again = (DistributedLock(name, store, me, reentrant=True) for name in ("before", "inside", "again"))
    before.acquire()
    again.acquire()
    for step in steps_of(store, me).run(until=1):
        with step:
            inside.acquire()
            again.release()
            again.acquire()
            assert set(step.locks_taken()) == {"inside", "again"}
    assert (before.statistics().holder, inside.statistics().holder, again.statistics().holder) == (f"{A}#1", None, None)
    with pytest.raises(LockNotHeld):
        inside.release()
    assert store.command("SMEMBERS", store.key("held", A)) in ({b"before"}, [b"before"])


def test_a_step_that_is_always_broken_off_ends_with_the_reason(store: RedisStore, join: Join) -> None:
    def body(step: Any) -> None:
        raise DeadlockInterrupted(participant=f"{A}#1", resource="lock:x", incident="i1")

    with pytest.raises(StepAborted, match=r"step 0 of agent/a was broken off 3 times.*the wait of agent/a#1 for lock:x"):
        each(steps_of(store, join(A)).run(attempts=3), body)


def test_items_that_were_put_back_behind_a_step_make_it_run_again(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox]
) -> None:
    judge = join(J)
    boxes["raw"].send(1)
    attempts = []
    for step in steps_of(store, judge).run(until=1):
        with step:
            attempts.append(step.receive("raw").value)
            if step.attempt == 0:
                Mailbox("raw", store, judge).requeue_unacked()
            step.send("scored", step.attempt)
    assert attempts == [1, 1]
    assert contents(store, judge, "scored") == [1]


def test_the_pause_before_an_attempt_grows_and_has_a_bound() -> None:
    assert [backoff_s(n, lambda: 1.0) for n in (1, 2, 3, 9)] == [0.02, 0.04, 0.08, 1.0]
    assert backoff_s(1, random.Random(3).random) < 0.02


def test_each_step_of_each_member_has_a_seed_of_its_own() -> None:
    seeds = {seed_of(run, member, seq) for run in (0, 1) for member in (A, J) for seq in range(50)}
    assert len(seeds) == 200
    assert seed_of(0, A, 0) == seed_of(0, A, 0) < 2**32


# --- once ---


def test_a_result_is_kept_across_attempts_crashes_and_for_its_step_alone(store: RedisStore, join: Join) -> None:
    calls: list[str] = []

    def call(what: str) -> str:
        calls.append(what)
        return what.upper()

    for crash in (True, False):
        for step in steps_of(store, join(A)).run(until=1):
            with step:
                assert step.once("k", call, "a") == "A"
                assert step.once("k", call, "b") == "A", "the key decides, in one attempt too"
                assert step.once("other", call, "c") == "C"
                if crash:
                    break_off(store, step)
            if crash:
                break
    assert calls == ["a", "c"]
    for step in steps_of(store, join(A)).run(until=2):
        with step:
            step.once("k", call, "next")
    assert calls == ["a", "c", "next"]
    assert store.command("EXISTS", store.key("once", A)) == 0


def break_off(store: RedisStore, step: Any) -> None:
    """As a crash: nothing more is said to Redis."""
    step._steps.commit = step._steps.undo = lambda *_: True


def test_a_call_that_fails_keeps_nothing(store: RedisStore, join: Join) -> None:
    def body(step: Any) -> None:
        step.once("k", lambda: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        each(steps_of(store, join(A)).run(), body)
    assert store.command("EXISTS", store.key("once", A)) == 0
