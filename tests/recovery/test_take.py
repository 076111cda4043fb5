"""A take gives every rank and every repeat the same items."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from unknot.recovery.errors import ConfigError, DeadlockInterrupted, FencedError, KeptItemsFull, WaitTimeout
from unknot.recovery.interrupts import interrupt
from unknot.recovery.mailbox import Item, Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.take import is_nearly_full, kept_items, settle, take
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
Eventually = Callable[..., None]


@pytest.fixture
def box(store: RedisStore, join: Join) -> Mailbox:
    return Mailbox("q", store, join("agent/a")).declare(8, ack="manifest")


def take_one(store: RedisStore, rank: NullRecorder, seq: int = 0, call: int = 0, **more: Any) -> list[Any]:
    told = {"mailbox": "q", "n": 2, "timeout_s": 0.0, **more}
    return [item.value for item in take(store, rank, group="policy", seq=seq, call=call, **told)]


def test_every_rank_and_every_repeat_gets_the_same_items(store: RedisStore, join: Join, box: Mailbox) -> None:
    first, second = join("trainer/0"), join("trainer/1")
    for value in range(6):
        box.send(value)
    assert take_one(store, first) == [0, 1]
    assert take_one(store, second) == [0, 1]
    assert take_one(store, first, call=1) == [2, 3]
    assert take_one(store, second, seq=1) == [4, 5]
    assert take_one(store, join("trainer/0")) == [0, 1], "the next incarnation repeats the step"
    assert take_one(store, first := join("trainer/1"), call=1) == [2, 3]
    assert box.statistics().queued == 0
    assert first.incarnation == 2


def test_ranks_that_wait_for_one_take_are_served_once_and_together(
    store: RedisStore, join: Join, box: Mailbox, eventually: Eventually
) -> None:
    ranks = [join(f"trainer/{i}") for i in range(3)]
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(take_one, store, rank, timeout_s=None) for rank in ranks]
        eventually(lambda: len(box.statistics().receivers_waiting) == 3)
        box.send("x")
        eventually(lambda: kept_items(store, "policy") == 1)
        assert not any(one.done() for one in waiting)
        box.send("y")
        assert [one.result(10) for one in waiting] == [["x", "y"]] * 3
    assert box.statistics().receivers_waiting == ()
    assert (box.statistics().sent, box.statistics().taken) == (2, 2)
    assert [store.command("HLEN", store.key("waits", f"trainer/{i}")) for i in range(3)] == [0, 0, 0]


def test_a_take_waits_in_line_with_other_receivers(
    store: RedisStore, join: Join, box: Mailbox, eventually: Eventually
) -> None:
    reader = Mailbox("q", store, join("judge/j"))
    rank = join("trainer/0")
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(reader.receive)
        eventually(lambda: len(box.statistics().receivers_waiting) == 1)
        group = pool.submit(take_one, store, rank, timeout_s=None)
        eventually(lambda: len(box.statistics().receivers_waiting) == 2)
        for value in range(3):
            box.send(value)
        assert early.result(10).value == 0
        assert group.result(10) == [1, 2]


def test_what_came_before_a_timeout_is_kept_for_the_next_try(store: RedisStore, join: Join, box: Mailbox) -> None:
    rank = join("trainer/0")
    box.send(1)
    with pytest.raises(WaitTimeout):
        take_one(store, rank)
    with pytest.raises(WaitTimeout):
        take_one(store, rank, timeout_s=0.02)
    assert box.statistics().receivers_waiting == ()
    box.send(2)
    assert take_one(store, rank) == [1, 2]


def test_an_interrupted_take_may_be_asked_again(
    store: RedisStore, join: Join, box: Mailbox, eventually: Eventually
) -> None:
    rank = join("trainer/0")
    box.send(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(take_one, store, rank, timeout_s=None)
        eventually(lambda: box.statistics().receivers_waiting)
        (entry,) = store.command("LRANGE", store.key("mboxr", "q"), 0, -1)
        participant, _, ticket = entry.decode().rpartition("|")
        assert interrupt(store, participant, int(ticket), incident="i1")
        with pytest.raises(DeadlockInterrupted):
            waiting.result(10)
    assert store.command("LLEN", store.key("takeq", "policy/0/0")) == 0
    box.send(2)
    assert take_one(store, rank) == [1, 2]


def test_taken_items_stay_until_their_step_is_settled(store: RedisStore, join: Join, box: Mailbox) -> None:
    rank = join("trainer/0")
    for value in range(4):
        box.send(value)
    take_one(store, rank, 0)
    take_one(store, rank, 1)
    assert settle(store, "policy", 1, ack="step", recorder=rank) == 0, "a manifest must cover it"
    assert settle(store, "policy", 1, ack="manifest", recorder=rank) == 2
    assert settle(store, "policy", 1, ack="manifest") == 0, "twice is once"
    assert (kept_items(store, "policy"), box.statistics().acked) == (2, 2)
    assert take_one(store, rank, 1) == [2, 3]
    assert store.command("HLEN", store.key("mboxi", "q")) == 4
    settle(store, "policy", 2, ack="manifest")
    assert store.command("EXISTS", *(store.key(*k) for k in (("mboxi", "q"), ("takes", "policy"), ("kept", "policy")))) == 0


def test_items_of_a_mailbox_acknowledged_by_step_are_consumed_with_the_step(store: RedisStore, join: Join) -> None:
    box, rank = Mailbox("s", store, join("agent/a")).declare(8), join("trainer/0")
    box.send(1)
    take_one(store, rank, mailbox="s", n=1)
    assert settle(store, "policy", 1, ack="step", recorder=rank) == 1


def test_items_of_a_take_that_never_became_complete_go_back_in_order(store: RedisStore, join: Join, box: Mailbox) -> None:
    rank = join("trainer/0")
    box.send(1)
    with pytest.raises(WaitTimeout):
        take_one(store, rank)
    box.send(2)
    assert settle(store, "policy", 1, ack="manifest") == 0
    assert take_one(store, rank, 1) == [1, 2]


def test_what_is_kept_never_blocks_a_sender_and_has_a_bound_of_its_own(store: RedisStore, join: Join) -> None:
    box, rank = Mailbox("q", store, join("agent/a")).declare(2, ack="manifest"), join("trainer/0")
    for seq in range(2):
        box.send(1, timeout_s=0)
        box.send(2, timeout_s=0)
        assert is_nearly_full(store, "policy", 4) == (seq == 2)
        take_one(store, rank, seq, limit=4)
    box.send(3, timeout_s=0)
    assert is_nearly_full(store, "policy", 4)
    with pytest.raises(KeptItemsFull, match=r"keeps 4 items .*\(limit 4\); write manifests more often"):
        take_one(store, rank, 2, limit=4)
    assert take_one(store, rank, 1, limit=4) == [1, 2], "a repeat takes nothing new"
    settle(store, "policy", 1, ack="manifest")
    box.send(4)
    assert take_one(store, rank, 2, limit=4) == [3, 4]


def test_a_step_that_takes_otherwise_than_before_is_refused(store: RedisStore, join: Join, box: Mailbox) -> None:
    rank = join("trainer/0")
    box.send(1)
    take_one(store, rank, n=1)
    with pytest.raises(ConfigError, match="asks for 3 of q, before it took 1 of q"):
        take_one(store, rank, n=3)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"n": 0}, "mailbox q: n=0 is too small; give at least 1"),
        ({"n": 1.5}, "n=1.5 is not a whole number"),
        ({"mailbox": "none"}, "has no mailbox none"),
    ],
)
def test_a_take_that_cannot_be_is_refused(
    store: RedisStore, join: Join, box: Mailbox, wanted: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        take_one(store, join("trainer/0"), **wanted)


def test_a_replaced_rank_takes_and_settles_nothing(store: RedisStore, join: Join, box: Mailbox) -> None:
    old = join("trainer/0")
    join("trainer/0")
    box.send(1)
    with pytest.raises(FencedError):
        take_one(store, old, n=1)
    with pytest.raises(FencedError):
        settle(store, "policy", 1, ack="manifest", recorder=old)
    assert box.statistics().queued == 1


def test_what_is_dropped_is_decided_by_one_rank_for_all(store: RedisStore, join: Join, box: Mailbox) -> None:
    first, second = join("trainer/0"), join("trainer/1")
    for value in range(5):
        box.send(value)
    asked: list[int] = []

    def odd(item: Item) -> bool:
        asked.append(item.value)
        return bool(item.value % 2)

    assert take_one(store, first, drop=odd) == [0, 2]
    assert asked == [0, 1, 0, 2]
    assert take_one(store, second, drop=lambda _: True) == [0, 2], "it is decided"
    assert store.command("HGET", store.key("mbox", "q"), "dropped") == b"1"
    assert (box.statistics().acked, kept_items(store, "policy")) == (1, 2)


def test_a_take_of_more_than_the_mailbox_holds_takes_what_waits_before_it_too(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    box, rank = Mailbox("q", store, join("agent/a")).declare(1), join("trainer/0")
    with ThreadPoolExecutor(3) as pool:
        for value in range(3):
            pool.submit(box.send, value)
            eventually(lambda value=value: box.statistics().queued + len(box.statistics().senders_waiting) == value + 1)
        assert take_one(store, rank, n=3) == [0, 1, 2]
