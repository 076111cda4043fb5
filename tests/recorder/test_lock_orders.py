"""Which orders of locks a process notes, and when it tells them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.recorder.puppets import Puppet, lock, make_table, stand
from tests.recorder.test_publisher import Scene
from unknot.graph import events as ev
from unknot.graph.hazards import Order
from unknot.supervisor.recorder import lock_orders


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    one = Puppet("loader")
    yield one
    one.end()


def ways(orders: tuple[Order, ...] | list[Order]) -> list[tuple[str, str, str]]:
    return [(one.who, one.first.lock, one.second.lock) for one in orders]


def test_a_lock_that_is_taken_under_another_one_is_noted_once_with_both_places_and_what_else_was_held() -> None:
    table = make_table()
    for _ in range(2):
        for name in ("a", "b", "c"):
            table.hold(lock(name))
        for name in ("c", "b", "a"):
            table.release(f"lock:{name}")
    told = table.orders.untold()
    assert ways(told) == [("agent/b", "lock:a", "lock:b"), ("agent/b", "lock:a", "lock:c"), ("agent/b", "lock:b", "lock:c")]
    assert told[1].gates == {("lock:b", "x")}
    assert all("test_lock_orders.py:" in one.first.site and "test_lock_orders.py:" in one.second.site for one in told)


def test_a_lock_that_was_given_back_makes_no_order_nor_does_what_is_no_lock() -> None:
    table = make_table()
    table.hold(lock("a"))
    table.release("lock:a")
    table.hold(ev.Resource(r="slots:env", type="slots", units=2))
    table.hold(lock("b"))
    assert table.orders.untold() == ()


def test_a_lock_that_was_asked_for_with_a_time_out_makes_no_order_with_those_held_before() -> None:
    table = make_table()
    table.hold(lock("a"))
    table.hold(lock("b"), would_wait=False)
    table.hold(lock("c"))
    assert ways(table.orders.untold()) == [("agent/b", "lock:a", "lock:c"), ("agent/b", "lock:b", "lock:c")]


def test_each_thread_has_an_order_of_its_own(puppet: Puppet) -> None:
    table = make_table()
    table.hold(lock("a"))
    puppet.do(lambda: table.hold(lock("b")))
    puppet.do(lambda: table.hold(lock("c")))
    assert ways(table.orders.untold()) == [("agent/b/loader", "lock:b", "lock:c")]


def test_what_a_blocked_thread_holds_is_told_with_the_place_and_the_time_it_was_taken(puppet: Puppet) -> None:
    scene = Scene()
    puppet.do(lambda: scene.table.hold(lock("a")))
    taken_at = scene.clock.now
    puppet.do(lambda: stand(scene.table, "b"))
    (record,) = scene.look(later_s=7.0)
    (hold,) = [event for event in record.events if isinstance(event, ev.Hold)]
    assert (hold.r, hold.t) == ("lock:a", taken_at)
    assert "test_lock_orders.py:" in (hold.site or "")


def test_orders_go_with_the_heartbeat_and_again_after_one_that_failed() -> None:
    scene = Scene()
    scene.look()
    scene.table.hold(lock("a"))
    scene.table.hold(lock("b"))
    scene.look(later_s=0.1)
    assert scene.outlet.orders == [], "not before the next heartbeat"
    scene.outlet.broken = True
    scene.look(later_s=1.0)
    dropped = scene.publisher.counters.dropped
    assert (scene.outlet.orders, dropped > 0) == ([], True)
    scene.outlet.broken = False
    scene.look(later_s=1.0)
    assert ways(scene.outlet.orders) == [("agent/b", "lock:a", "lock:b")]
    scene.look(later_s=1.0)
    assert len(scene.outlet.orders) == 1, "told once"


def test_a_process_that_is_replaced_learns_it_by_its_orders_too() -> None:
    scene = Scene()
    scene.look()
    scene.table.hold(lock("a"))
    scene.table.hold(lock("b"))
    scene.outlet.current = 2
    scene.publisher._tell_orders()
    assert scene.fenced == [2]


def test_orders_that_are_too_many_are_counted_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_orders, "KEPT", 3)
    table = make_table()
    table.hold(lock("a"))
    for name in "bcdef":
        table.hold(lock(name))
        table.release(f"lock:{name}")
    assert (len(table.orders.untold()), table.orders.dropped) == (3, 2)
