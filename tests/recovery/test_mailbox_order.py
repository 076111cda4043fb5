"""Whose item comes next: chosen partners, and the order of origin."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from unknot.recovery.errors import ConfigError, WaitTimeout
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import end, expect, fence
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
Eventually = Callable[..., None]
A, B = "agent/a", "agent/b"


def ordered(store: RedisStore, recorder: NullRecorder, *, capacity: int = 8) -> Mailbox:
    return Mailbox("q", store, recorder).declare(capacity, order="origin", origins=[A, B])


def values(box: Mailbox) -> list[object]:
    """What can be received now."""
    found: list[object] = []
    try:
        while True:
            item = box.receive(timeout_s=0)
            found.append(item.value)
            box.ack(item)
    except WaitTimeout:
        return found


def test_items_come_by_turns_of_their_origins_whatever_order_they_arrive_in(store: RedisStore, join: Join) -> None:
    reader = ordered(store, join("trainer/0"))
    a, b = (Mailbox("q", store, join(name)) for name in (A, B))
    b.send("b1")
    b.send("b2")
    assert values(reader) == [], "it is the turn of a"
    a.send("a1")
    assert values(reader) == ["a1", "b1"]
    a.send("a2")
    a.send("a3")
    assert values(reader) == ["a2", "b2", "a3"]


def test_an_item_tells_its_origin(store: RedisStore, join: Join) -> None:
    reader = ordered(store, join("trainer/0"))
    Mailbox("q", store, join(A)).send("a1")
    item = reader.receive(timeout_s=0)
    assert (item.origin.member, item.origin.number, item.origin.sub, item.mailbox) == (A, 1, "", "q")


def test_numbers_of_an_origin_go_on_in_its_next_incarnation(store: RedisStore, join: Join) -> None:
    reader = ordered(store, join("trainer/0"))
    for value in ("a1", "a2"):
        Mailbox("q", store, join(A)).send(value)
    Mailbox("q", store, join(B)).send("b1")
    assert values(reader) == ["a1", "b1", "a2"]


def test_an_item_that_was_put_back_comes_again_before_all_others(store: RedisStore, join: Join) -> None:
    reader = ordered(store, join("trainer/0"))
    a, b = (Mailbox("q", store, join(name)) for name in (A, B))
    for n in (1, 2):
        a.send(f"a{n}")
        b.send(f"b{n}")
    assert [reader.receive(timeout_s=0).value for _ in range(3)] == ["a1", "b1", "a2"]
    assert reader.requeue_unacked() == 3
    assert values(reader) == ["a1", "b1", "a2", "b2"]


def test_a_full_mailbox_lets_the_due_item_in_and_no_other(store: RedisStore, join: Join) -> None:
    reader = ordered(store, join("trainer/0"), capacity=2)
    a, b = (Mailbox("q", store, join(name)) for name in (A, B))
    b.send("b1")
    b.send("b2")
    with pytest.raises(WaitTimeout):
        b.send("b3", timeout_s=0)
    a.send("a1", timeout_s=0)
    assert reader.statistics().queued == 3
    with pytest.raises(WaitTimeout):
        a.send("a2", timeout_s=0)
    assert values(reader) == ["a1", "b1"]


def test_a_sender_whose_item_becomes_due_is_let_in_past_those_before_it(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    reader = ordered(store, join("trainer/0"), capacity=1)
    a, b = (Mailbox("q", store, join(name)) for name in (A, B))
    a.send("a1")
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(a.send, "a2")
        eventually(lambda: len(reader.statistics().senders_waiting) == 1)
        waiting_too = pool.submit(b.send, "b1")
        eventually(lambda: len(reader.statistics().senders_waiting) == 2)
        assert values(reader) == ["a1", "b1", "a2"]
        assert (waiting.result(10), waiting_too.result(10)) == (2, 1)


def test_an_origin_that_has_ended_is_passed_over_and_its_waiters_are_woken(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    reader = ordered(store, join("trainer/0"))
    a = join(A)
    Mailbox("q", store, join(B)).send("b1")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.receive)
        eventually(lambda: reader.statistics().receivers_waiting)
        end(store, A, a.incarnation, state="dead", error="signal 9")
        assert reader.statistics().receivers_waiting, "a dead one may be started again"
        fence(store, A, a.incarnation, why="not restarted")
        assert waiting.result(10).value == "b1"


def test_one_that_has_not_started_may_still_come(store: RedisStore, join: Join) -> None:
    reader = ordered(store, join("trainer/0"))
    Mailbox("q", store, join(B)).send("b1")
    assert values(reader) == [], "nobody has heard of a"
    expect(store, A, role="agent")
    assert values(reader) == []


def test_a_sender_that_is_no_origin_is_refused(store: RedisStore, join: Join) -> None:
    ordered(store, join("trainer/0"))
    with pytest.raises(ConfigError, match="agent/c is not one of the origins of mailbox q"):
        Mailbox("q", store, join("agent/c")).send("c1")


def test_a_mailbox_that_stands_with_another_order_is_told(store: RedisStore, join: Join) -> None:
    ordered(store, join("trainer/0"))
    with pytest.raises(ConfigError, match=r"order origin, origins \[\"agent/a\", \"agent/b\"\]"):
        Mailbox("q", store, join(A)).declare(8)


def test_an_item_for_one_receiver_waits_for_it_and_others_pass(store: RedisStore, join: Join) -> None:
    sender = Mailbox("q", store, join("judge/j")).declare(8)
    a, b = (Mailbox("q", store, join(name)) for name in (A, B))
    sender.send("for b", to=B)
    sender.send("for anybody")
    assert values(a) == ["for anybody"]
    assert values(b) == ["for b"]


def test_an_item_for_one_receiver_that_was_put_back_is_still_for_it(store: RedisStore, join: Join) -> None:
    sender = Mailbox("q", store, join("judge/j")).declare(8)
    a, b = (Mailbox("q", store, join(name)) for name in (A, B))
    sender.send("for b", to=B)
    b.receive()
    b.requeue_unacked()
    assert (values(a), values(b)) == ([], ["for b"])


def test_a_receiver_may_wait_for_one_sender_past_the_items_of_others(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    reader = Mailbox("q", store, join("judge/j")).declare(8)
    a, b = (Mailbox("q", store, join(name)) for name in (A, B))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.receive, sender=B)
        eventually(lambda: reader.statistics().receivers_waiting)
        a.send("a1")
        b.send("b1")
        assert waiting.result(10).value == "b1"
    assert values(reader) == ["a1"]


@pytest.mark.parametrize("choice", [{"to": B}, {"sender": B}])
def test_partners_cannot_be_chosen_in_order_of_origin(store: RedisStore, join: Join, choice: dict[str, str]) -> None:
    box = ordered(store, join(A))
    with pytest.raises(ConfigError, match="whose order is by origin"):
        box.send(1, **choice) if "to" in choice else box.receive(**choice)  # type: ignore[arg-type]


def test_a_value_that_does_not_pickle_is_refused_with_the_reason(store: RedisStore, join: Join) -> None:
    box = Mailbox("q", store, join(A)).declare(8)
    with pytest.raises(ConfigError, match=r"an item for mailbox q does not pickle \(.*lambda"):
        box.send(lambda: None)
