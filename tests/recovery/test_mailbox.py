from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from unknot.recovery.errors import ConfigError, DeadlockInterrupted, FencedError, RunClosed, WaitTimeout
from unknot.recovery.interrupts import interrupt
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Item, Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.run import RunClaim
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
Eventually = Callable[..., None]


def test_items_are_received_in_the_order_of_sending_with_their_sender_and_number(store: RedisStore, join: Join) -> None:
    sender = Mailbox("raw", store, join("agent/a")).declare(capacity=4)
    receiver = Mailbox("raw", store, join("judge/j"))
    for value in ("first", {"second": [2]}):
        sender.send(value, meta={"weights": 7})
    first, second = receiver.receive(), receiver.receive()
    assert (first.id, first.sender, first.number, first.value, first.meta) == (
        "raw/1",
        "agent/a#1",
        1,
        "first",
        {"weights": 7},
    )
    assert (second.id, second.number, second.value) == ("raw/2", 2, {"second": [2]})
    assert second.sent_at >= first.sent_at > 1e9


def test_an_item_is_consumed_once_it_is_acknowledged(store: RedisStore, join: Join) -> None:
    mailbox = Mailbox("raw", store, join("agent/a")).declare()
    mailbox.send("value")
    item = mailbox.receive()
    assert mailbox.statistics().unacked == 1
    assert mailbox.ack(item) == 1
    assert mailbox.ack(item, item.id) == 0
    assert mailbox.ack() == 0
    assert mailbox.requeue_unacked() == 0
    assert mailbox.statistics().unacked == 0
    assert store.command("EXISTS", store.key("mboxi", "raw")) == 0


@pytest.mark.parametrize("thing", ["x", "", "raw", "raw/", "raw/x", 5, None, ["raw/1"]])
def test_what_is_no_item_cannot_be_acknowledged_and_nothing_beside_it_is(store: RedisStore, join: Join, thing: Any) -> None:
    mailbox = Mailbox("raw", store, join("agent/a")).declare()
    mailbox.send("value")
    item = mailbox.receive()
    with pytest.raises(ConfigError, match="is no item of a mailbox; acknowledge what"):
        mailbox.ack(item, thing)
    assert mailbox.statistics().unacked == 1


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan"), "1", True, timedelta(seconds=1)])
def test_a_time_to_wait_that_is_none_is_refused_before_anything_is_asked(store: RedisStore, join: Join, timeout: Any) -> None:
    mailbox = Mailbox("raw", store, join("agent/a")).declare()
    lock = DistributedLock("x", store, join("agent/b"))
    waits: list[Callable[[], object]] = [
        lambda: mailbox.receive(timeout), lambda: mailbox.send(1, timeout), lambda: lock.acquire(timeout)
    ]  # fmt: skip
    for wait in waits:
        with pytest.raises(ConfigError, match=r"of a wait for (mbox:raw|lock:x) is no time; give seconds from 0 up"):
            wait()
    assert (mailbox.statistics().sent, lock.acquire(0)) == (0, 1)


def test_unacknowledged_items_of_several_members_come_back_in_the_order_of_sending(
    store: RedisStore, join: Join
) -> None:
    a = Mailbox("raw", store, join("agent/a")).declare()
    b = Mailbox("raw", store, join("agent/b"))
    for value in range(6):
        a.send(value)
    taken = [(a, 0), (b, 1), (a, 2), (b, 3)]
    assert [(box, box.receive().value) for box, _ in taken] == taken
    assert b.requeue_unacked() == 2
    assert a.requeue_unacked() == 2
    assert [b.receive().value for _ in range(6)] == [0, 1, 2, 3, 4, 5]


def test_a_new_incarnation_puts_its_unacknowledged_items_back_and_wakes_a_receiver(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    old = Mailbox("raw", store, join("judge/j")).declare()
    other = Mailbox("raw", store, join("judge/k"))
    old.send("value")
    lost = old.receive()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(other.receive)
        eventually(lambda: other.statistics().receivers_waiting)
        join("judge/j")
        found = waiter.result(10)
    assert found == lost
    with pytest.raises(FencedError):
        old.ack(lost)
    with pytest.raises(FencedError):
        old.send("late")
    assert other.ack(found) == 1


def test_a_full_mailbox_makes_senders_wait_in_order(store: RedisStore, join: Join, eventually: Eventually) -> None:
    mailbox = Mailbox("raw", store, join("agent/a")).declare(capacity=1)
    mailbox.send(0)
    with ThreadPoolExecutor(3) as pool:
        sends = []
        for value in (1, 2, 3):
            sends.append(pool.submit(mailbox.send, value))
            eventually(lambda value=value: len(mailbox.statistics().senders_waiting) == value)
        assert mailbox.statistics().queued == 1
        received = [mailbox.receive().value for _ in range(4)]
        assert [send.result(10) for send in sends] == [2, 3, 4]
    assert received == [0, 1, 2, 3]


def test_a_send_that_ran_out_of_time_leaves_nothing_behind(store: RedisStore, join: Join) -> None:
    mailbox = Mailbox("raw", store, join("agent/a")).declare(capacity=1)
    mailbox.send("in")
    for timeout_s in (0, 0.05):
        with pytest.raises(WaitTimeout, match="for mbox:raw"):
            mailbox.send("out", timeout_s=timeout_s)
    assert mailbox.receive().value == "in"
    with pytest.raises(TimeoutError):
        mailbox.receive(timeout_s=0)
    assert store.command("EXISTS", store.key("mboxw", "raw")) == 0


def test_waits_in_a_mailbox_can_be_interrupted(store: RedisStore, join: Join, eventually: Eventually) -> None:
    mailbox = Mailbox("raw", store, join("agent/a")).declare(capacity=1)
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(mailbox.receive)
        eventually(lambda: mailbox.statistics().receivers_waiting)
        assert interrupt(store, mailbox.statistics().receivers_waiting[0], 1, incident="i1")
        with pytest.raises(DeadlockInterrupted, match="mbox:raw"):
            receiving.result(10)
        mailbox.send("in")
        sending = pool.submit(mailbox.send, "out")
        eventually(lambda: mailbox.statistics().senders_waiting)
        assert interrupt(store, mailbox.statistics().senders_waiting[0], 3, incident="i2")
        with pytest.raises(DeadlockInterrupted, match="supervisor explain i2"):
            sending.result(10)
    assert mailbox.receive().value == "in"
    assert mailbox.statistics().queued == 0


def test_a_closing_run_ends_waits_and_refuses_new_items(store: RedisStore, join: Join, eventually: Eventually) -> None:
    claim = RunClaim.take(store)
    mailbox = Mailbox("raw", store, join("agent/a")).declare()
    with ThreadPoolExecutor(1) as pool:
        receiving = pool.submit(mailbox.receive)
        eventually(lambda: mailbox.statistics().receivers_waiting)
        claim.closing()
        with pytest.raises(RunClosed):
            receiving.result(10)
    with pytest.raises(RunClosed):
        mailbox.send("late")
    with pytest.raises(RunClosed):
        mailbox.receive()


def test_a_member_outside_the_rights_is_refused_by_name(store: RedisStore, join: Join) -> None:
    Mailbox("raw", store, join("driver/main")).declare(senders="agent/*", receivers=["judge/*", "driver/main"])
    agent = Mailbox("raw", store, join("agent/a"))
    agent.send("value")
    with pytest.raises(ConfigError, match=r"agent/a may not receive in mailbox raw \(judge/\*, driver/main may\)"):
        agent.receive()
    with pytest.raises(ConfigError, match="judge/j may not send in mailbox raw"):
        Mailbox("raw", store, join("judge/j")).send("value")
    assert agent.resource.senders == ("agent/*",)


def test_an_empty_list_of_senders_means_nobody(store: RedisStore, join: Join) -> None:
    mailbox = Mailbox("raw", store, join("agent/a")).declare(senders=[])
    with pytest.raises(ConfigError, match=r"\(nobody may\)"):
        mailbox.send("value")


def test_declaring_twice_is_once_but_only_the_same_way(store: RedisStore, join: Join) -> None:
    recorder = join("driver/main")
    Mailbox("raw", store, recorder).declare(4, senders="agent/*")
    Mailbox("raw", store, recorder).declare(4, senders=("agent/*",))
    with pytest.raises(ConfigError, match=r"already declared otherwise \(capacity 4, senders \[\"agent/\*\"\]"):
        Mailbox("raw", store, recorder).declare(5, senders="agent/*")
    with pytest.raises(ConfigError, match="give at least 1"):
        Mailbox("raw", store, recorder).declare(0)


def test_a_mailbox_that_nobody_declared_is_named(store: RedisStore, join: Join) -> None:
    with pytest.raises(ConfigError, match=r"has no mailbox raw; declare it first: run\.mailbox\('raw'\)"):
        Mailbox("raw", store, join("agent/a")).receive()


def test_a_value_over_the_limit_is_refused_with_size_and_limit(store: RedisStore, join: Join) -> None:
    mailbox = Mailbox("raw", store, join("agent/a"), value_limit=100).declare()
    with pytest.raises(ConfigError, match=r"an item of \d{4} bytes is too large for mailbox raw \(limit 100\)"):
        mailbox.send("x" * 1000)
    assert mailbox.statistics().sent == 0


def test_a_large_waiting_value_crosses_the_network_once(
    store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    monkeypatch.setattr("unknot.recovery.waiting.SLICE_S", 0.02)
    crossed: list[int] = []
    script = store.script

    def counting(name: str, keys: list[str], args: tuple[object, ...]) -> object:
        crossed.append(sum(len(arg) for arg in args if isinstance(arg, bytes)))
        return script(name, keys, args)  # type: ignore[arg-type]

    mailbox = Mailbox("raw", store, join("agent/a")).declare(capacity=1)
    mailbox.send("in")
    monkeypatch.setattr(store, "script", counting)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(mailbox.send, "x" * 100_000)
        eventually(lambda: len(crossed) >= 4)
        assert mailbox.receive().value == "in"
        assert sending.result(10) == 2
    assert sum(crossed) < 101_000


def test_statistics_and_repr_show_the_state(store: RedisStore, join: Join) -> None:
    mailbox = Mailbox("raw", store, join("agent/a"))
    assert repr(mailbox) == f"<Mailbox raw of run {store.run}, not looked up yet>"
    mailbox.declare(capacity=3)
    mailbox.send(1)
    mailbox.send(2)
    assert isinstance(mailbox.receive(), Item)
    seen = mailbox.statistics()
    assert (seen.capacity, seen.queued, seen.sent, seen.taken, seen.acked, seen.unacked) == (3, 1, 2, 1, 0, 1)
    assert repr(mailbox) == f"<Mailbox raw of run {store.run}, capacity 3>"
