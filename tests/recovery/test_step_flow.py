"""What a step waits for: room, the items of its turn, weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from tests.recovery.stepping import A, Eventually, J, Join, contents, each, held, interrupt_waiting, steps_of
from unknot.recovery.errors import (
    ConfigError,
    RunClosed,
    StaleWeights,
    WeightsGone,
)
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.run import RunClaim
from unknot.recovery.steps import committed_steps
from unknot.recovery.weight_rights import declare_publishers
from unknot.recovery.weights import Weights
from unknot.supervisor.store.redis_store import RedisStore

# --- room ---


def test_a_commit_waits_for_room_for_all_its_items_and_holds_nothing_meanwhile(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], eventually: Eventually
) -> None:
    agent, reader = join(A), join("trainer/0")
    for value in range(3):
        boxes["raw"].send(value)

    def run() -> None:
        for step in steps_of(store, agent).run(until=1):
            with step:
                step.send("scored", "s")
                step.send("raw", "r1")
                step.send("raw", "r2")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        eventually(lambda: store.command("LLEN", store.key("mboxc", "raw")) == 1)
        assert store.command("LLEN", store.key("mboxc", "scored")) == 1, "it stands in both"
        assert [waiter.partition("/Thread")[0] for waiter in boxes["raw"].statistics().senders_waiting] == [f"{A}#1"]
        assert boxes["scored"].statistics().queued == 0
        boxes["raw"].send("between", timeout_s=0)
        box = Mailbox("raw", store, reader)
        box.receive()
        assert box.statistics().queued == 3
        assert not running.done()
        box.receive()
        running.result(10)
    assert (box.statistics().queued, boxes["scored"].statistics().queued) == (4, 1)
    assert store.command("EXISTS", store.key("mboxc", "raw"), store.key("mboxc", "scored"), store.key("waits", A)) == 0


def test_a_wait_for_room_is_announced_with_every_mailbox_it_needs(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], eventually: Eventually
) -> None:
    told: list[Any] = []

    class Telling(NullRecorder):
        def wait(self, ticket: int, needs: Any, resources: Any = (), **more: Any) -> Any:
            told.append((needs, [r.r for r in resources]))
            return super().wait(ticket, needs, resources, **more)

    join(A)
    for value in range(4):
        boxes["raw"].send(value)

    def run() -> None:
        for step in steps_of(store, Telling(A, 1)).run(until=1):
            with step:
                step.send("scored", 1)
                step.send("raw", 1)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        eventually(lambda: told)
        contents(store, join("trainer/0"), "raw")
        running.result(10)
    ((needs, resources),) = told
    assert [(clause.k, atom.r, atom.op) for clause in needs for atom in clause.of] == [
        (1, "mbox:scored", "send"),
        (1, "mbox:raw", "send"),
    ]
    assert resources == ["mbox:scored", "mbox:raw"]


def test_a_commit_that_waits_for_room_can_be_interrupted_and_runs_again(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], eventually: Eventually
) -> None:
    agent = join(A)
    for value in range(4):
        boxes["scored"].send(value)
    boxes["raw"].send("item")

    def run() -> int:
        for step in steps_of(store, agent).run(until=1):
            with step:
                step.receive("raw")
                step.send("scored", step.attempt)
        return step.attempt

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        interrupt_waiting(store, "mboxc", "scored", eventually)
        eventually(lambda: store.command("LLEN", store.key("mboxc", "scored")) == 1)
        contents(store, join("trainer/0"), "scored")
        assert running.result(10) >= 1


def test_a_run_that_ends_while_a_commit_waits_undoes_the_step(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], eventually: Eventually
) -> None:
    claim, agent = RunClaim.take(store), join(A)
    for value in range(4):
        boxes["scored"].send(value)
    boxes["raw"].send("item")

    def run() -> None:
        for step in steps_of(store, agent).run():
            with step:
                step.receive("raw")
                step.send("scored", 1)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        eventually(lambda: store.command("LLEN", store.key("mboxc", "scored")) == 1)
        claim.closing()
        with pytest.raises(RunClosed):
            running.result(10)
    assert (held(store, A), boxes["raw"].statistics().queued) == (0, 1)


def test_a_member_that_waits_for_nothing_learns_of_the_runs_end_after_its_step(store: RedisStore, join: Join) -> None:
    claim, agent = RunClaim.take(store), join(A)

    def body(step: Any) -> None:
        claim.closing()

    with pytest.raises(RunClosed):
        each(steps_of(store, agent).run(), body)
    assert committed_steps(store, A) == 1


# --- relays ---


def test_a_step_that_received_one_item_passes_its_origin_on(store: RedisStore, join: Join) -> None:
    agents, judge = (A, "agent/b"), join(J)
    raw = Mailbox("raw", store, join("driver/main")).declare(8)
    Mailbox("scored", store, judge).declare(8, order="origin", origins=agents)
    for name in ("agent/b", A):
        Mailbox("raw", store, join(name)).send(name)
    for step in steps_of(store, judge).run(until=2):
        with step:
            item = step.receive("raw")
            for part in ("1", "2"):
                step.send("scored", item.value + part)
    reader = Mailbox("scored", store, join("trainer/0"))
    items = [reader.receive(0) for _ in range(4)]
    assert [item.value for item in items] == ["agent/a1", "agent/a2", "agent/b1", "agent/b2"]
    assert [(i.origin.member, i.origin.number, i.origin.sub) for i in items[:2]] == [(A, 1, ""), (A, 1, ".000001")]
    assert raw.statistics().queued == 0


def test_an_item_that_a_relay_consumed_without_passing_it_on_is_not_waited_for(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    judge, agent = join(J), join(A)
    Mailbox("raw", store, judge).declare(8)
    reader = Mailbox("scored", store, join("trainer/0")).declare(8, order="origin", origins=[A])
    for value in range(3):
        Mailbox("raw", store, agent).send(value)
    boxes = [Mailbox("raw", store, join(f"judge/{n}")).receive() for n in (0, 1)]
    for step in steps_of(store, judge).run(until=1):
        with step:
            step.send("scored", step.receive("raw").value)
    assert reader.statistics().queued == 1
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.receive)
        eventually(lambda: reader.statistics().receivers_waiting)
        for n in (1, 0):
            assert not waiting.done()
            Mailbox("raw", store, NullRecorder(f"judge/{n}", 1)).ack(boxes[n])
        assert waiting.result(10).value == 2


def test_a_relay_of_an_item_of_no_listed_origin_is_refused_and_undone(store: RedisStore, join: Join) -> None:
    judge = join(J)
    raw = Mailbox("raw", store, join("agent/other")).declare(8)
    Mailbox("scored", store, judge).declare(8, order="origin", origins=[A])
    raw.send(1)

    def body(step: Any) -> None:
        step.send("scored", step.receive("raw").value)

    with pytest.raises(ConfigError, match="agent/other is not one of the origins of mailbox scored"):
        each(steps_of(store, judge).run(), body)
    assert raw.statistics().queued == 1


# --- weights ---


def test_latest_waits_for_a_version_that_is_not_too_far_behind(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    weights, agent = Weights("w", store, join("trainer/0")), join(A)
    weights.publish("one", n=1)
    got: list[int] = []

    def run() -> None:
        for step in steps_of(store, agent).run(until=3):
            with step:
                got.append(step.latest("w", max_lag=0 if step.seq == 2 else 1).version.n)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        eventually(lambda: store.command("LLEN", store.key("weightsq", "w")) == 1)
        assert got == [1, 1]
        weights.publish("two", n=2)
        running.result(10)
    assert got == [1, 1, 2]


def test_an_exact_version_is_found_while_it_is_kept(store: RedisStore, join: Join) -> None:
    weights, agent = Weights("w", store, join("trainer/0"), keep=3), join(A)
    for n in range(1, 6):
        weights.publish(n, n=n)
    for step in steps_of(store, agent).run(until=1):
        with step:
            assert [step.latest("w", exact=n).value for n in (3, 4, 5)] == [3, 4, 5]
            with pytest.raises(WeightsGone, match=r"version 2 of weights w is not kept \(the newest is 5\)"):
                step.latest("w", exact=2)
            with pytest.raises(TimeoutError):
                step.latest("w", exact=6, timeout=timedelta(0))
            with pytest.raises(ConfigError, match="max_lag and exact"):
                step.latest("w", exact=3, max_lag=1)


def test_weights_that_are_stale_at_the_commit_fail_the_step_wholly(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox]
) -> None:
    declare_publishers(store, "w", ["trainer/*", A])
    Weights("w", store, join("trainer/0")).publish("newer", n=7)

    def body(step: Any) -> None:
        step.send("raw", 1)
        step.publish("w", "older")

    with pytest.raises(StaleWeights, match="n=7"):
        each(steps_of(store, join(A)).run(), body)
    assert (boxes["raw"].statistics().queued, committed_steps(store, A)) == (0, 0)
