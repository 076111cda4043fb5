"""What a step cannot do is refused wholly, and so is a commit with Redis away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.recovery.stepping import A, J, Join, away, contents, each, held, steps_of
from unknot.recovery.errors import (
    ConfigError,
    StepWouldHang,
    StoreUnavailable,
)
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.steps import committed_steps
from unknot.supervisor.store.redis_store import RedisStore

# --- what cannot be ---


def test_a_step_that_waits_for_its_own_unsent_message_is_refused_at_once(store: RedisStore, join: Join) -> None:
    me = join(A)
    Mailbox("self", store, me).declare(4, senders=A)
    Mailbox("any", store, me).declare(4)

    def body(step: Any) -> None:
        step.send("self", 1)
        step.receive("self")

    with pytest.raises(StepWouldHang, match="step 0 of agent/a waits in mailbox self"):
        each(steps_of(store, me).run(), body)

    def chosen(step: Any) -> None:
        step.send("any", 1)
        step.receive("any", sender=A)

    with pytest.raises(StepWouldHang, match="mailbox any"):
        each(steps_of(store, me).run(), chosen)


def test_an_own_mailbox_with_an_item_or_one_in_other_hands_is_no_hang(store: RedisStore, join: Join) -> None:
    me, other = join(A), join("agent/b")
    box = Mailbox("self", store, me).declare(4, senders=A)
    box.send("first")
    box.send("second")
    Mailbox("self", store, other).receive()
    for step in steps_of(store, me).run(until=1):
        with step:
            step.send("self", "third")
            assert step.receive("self").value == "second"
            with pytest.raises(TimeoutError):
                step.receive("self", timeout=timedelta(seconds=0.01))


def test_concurrent_steps_of_one_member_are_refused(store: RedisStore, join: Join) -> None:
    steps = steps_of(store, join(A))
    refused: list[str] = []

    def second() -> None:
        for step in steps.run():
            with pytest.raises(ConfigError) as caught, step:
                pass
            refused.append(str(caught.value))
            return

    for step in steps.run(until=1):
        with step:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
            for nested in steps.run():
                with pytest.raises(ConfigError, match="has step 0 open in thread MainThread"), nested:
                    pass
                break
    assert "agent/a has step 0 open in thread MainThread" in refused[0]


@pytest.mark.parametrize(
    ("do", "told"),
    [
        (lambda step: step.write("f", lambda: 0), r"state 'f' of agent/a does not pickle"),
        (lambda step: step.send("raw", threading.Lock()), "an item for mailbox raw does not pickle"),
        (lambda step: step.once("k", threading.Lock), r"result of once\('k'\) does not pickle"),
        (lambda step: step.publish("w", lambda: 0), "weights w does not pickle"),
        (lambda step: step.send("none", 1), "has no mailbox none"),
        (lambda step: step.once(None, len, ""), r"step\.once\(None\) has no key; give a text"),
        (lambda step: step.once("", len, ""), r"step\.once\(''\) has no key"),
        (lambda step: step.once("k", 5), r"step\.once was given 5 to call, which is no function"),
        (lambda step: step.defer(len("")), r"step\.defer was given 0 to call"),
        (lambda step: step.read(None), r"step\.read\(None\) has no key"),
        (lambda step: step.write(5, 1), r"step\.write\(5\) has no key"),
        (lambda step: [step.send("raw", 1) for _ in range(5)], "sends more than the 4 items that mailbox raw holds"),
    ],
)
def test_bad_input_fails_the_step_wholly(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], do: Callable[[Any], Any], told: str
) -> None:
    def body(step: Any) -> None:
        step.send("scored", 1)
        do(step)

    with pytest.raises(ConfigError, match=told):
        each(steps_of(store, join(A)).run(), body)
    assert (boxes["scored"].statistics().queued, committed_steps(store, A)) == (0, 0)


def test_state_over_the_limit_is_refused_with_size_and_limit(
    store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unknot.recovery.step.VALUE_LIMIT", 100)

    def body(step: Any) -> None:
        step.write("big", b"x" * 1000)

    with pytest.raises(ConfigError, match=r"state 'big' of agent/a has 1\d\d\d bytes \(limit 100\)"):
        each(steps_of(store, join(A)).run(), body)


def test_a_step_that_was_not_entered_is_told(store: RedisStore, join: Join) -> None:
    with pytest.raises(ConfigError, match="was not entered"):
        for _ in steps_of(store, join(A)).run():
            pass


def test_a_step_outside_of_its_block_is_refused(store: RedisStore, join: Join) -> None:
    for step in steps_of(store, join(A)).run(until=1):
        with pytest.raises(ConfigError, match="is not open"):
            step.read("x")
        with step:
            pass
        with pytest.raises(ConfigError, match="was used already"), step:
            pass


# --- Redis away ---


def test_a_commit_with_redis_away_ends_with_a_clear_error_and_nothing_half_done(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = join(J)
    boxes["raw"].send(1)
    steps = steps_of(store, judge)

    def body(step: Any) -> None:
        step.receive("raw")
        step.send("scored", 1)
        away(store, monkeypatch)

    with pytest.raises(StoreUnavailable, match="cannot use Redis"):
        each(steps.run(), body)
    monkeypatch.undo()
    assert (committed_steps(store, J), boxes["scored"].statistics().queued, held(store, J)) == (0, 0, 1)
    for step in steps.run(until=1):
        with step:
            assert (step.attempt, step.receive("raw").value) == (1, 1)
            step.send("scored", 2)
    assert contents(store, judge, "scored") == [2]


def test_a_commit_whose_answer_is_lost_for_good_is_found_done_by_the_next_turn(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, lock = join(A), DistributedLock("x", store, join("agent/b"))
    steps, deferred = steps_of(store, agent), []  # type: ignore[var-annotated]

    def body(step: Any) -> None:
        step.send("raw", 1)
        step.defer(deferred.append, 1)
        DistributedLock("x", store, agent).acquire()
        away(store, monkeypatch, carries_out=True)

    with pytest.raises(StoreUnavailable):
        each(steps.run(), body)
    monkeypatch.undo()
    assert (committed_steps(store, A), boxes["raw"].statistics().queued, lock.acquire(0)) == (1, 1, 2)
    assert deferred == []
    for step in steps.run(until=2):
        with step:
            assert (step.seq, step.attempt, deferred) == (1, 0, [1])
