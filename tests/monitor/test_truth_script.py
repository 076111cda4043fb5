"""The store's own word on mailboxes: what can be delivered, and who has items in hand that may come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.take import take
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]


def count(store: RedisStore, name: str) -> Any:
    (answer,) = store.script("truth", [store.key()], ["count", name])
    return answer[0], sorted(member.decode() for member in answer[1])


def test_who_has_unacknowledged_items_is_told_until_they_are_acknowledged_or_back(store: RedisStore, join: Join) -> None:
    a, b = (Mailbox("q", store, join(name)) for name in ("agent/a", "agent/b"))
    a.declare(8)
    for value in range(3):
        a.send(value)
    b.receive()
    b.ack(a.receive())
    assert count(store, "q") == (1, ["agent/a", "agent/b"])
    a.requeue_unacked()
    assert count(store, "q")[1] in (["agent/b"], ["agent/a", "agent/b"])
    join("agent/b")
    join("agent/a")
    assert count(store, "q")[1] == []


def test_what_a_group_took_is_in_nobodys_hands(store: RedisStore, join: Join) -> None:
    rank = join("trainer/0")
    box = Mailbox("q", store, rank).declare(8)
    box.send(1)
    take(store, rank, group="policy", seq=0, call=0, mailbox="q", n=1, timeout_s=0)
    assert count(store, "q") == (0, [])


def test_items_whose_turn_has_not_come_do_not_count_for_receivers(store: RedisStore, join: Join) -> None:
    first, second = (Mailbox("q", store, join(name)) for name in ("agent/a", "agent/b"))
    first.declare(8, order="origin", origins=["agent/a", "agent/b"])
    second.send("b1")
    assert count(store, "q")[0] == 0
    first.send("a1")
    assert count(store, "q")[0] == 2
