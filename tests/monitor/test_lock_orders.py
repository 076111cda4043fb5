"""Lock orders of a live run that another schedule could turn into a deadlock: real processes, a real monitor, a real Redis."""

from __future__ import annotations

import pytest

from tests.proof.workers import Scene, Worker, until
from unknot.graph.hazards import Hazard, Order, Taken
from unknot.recovery.registration import new_boot, register
from unknot.recovery.run import RunClaim
from unknot.supervisor import process
from unknot.supervisor.cli.changes import changes
from unknot.supervisor.cli.render_status import status_lines
from unknot.supervisor.cli.snapshot import Snapshot, read_snapshot
from unknot.supervisor.cli.text import UNICODE, to_text
from unknot.supervisor.monitor.lock_orders import LockOrderWatch
from unknot.supervisor.store.hazard_store import HazardStore
from unknot.supervisor.store.redis_store import RedisStore


def nest(worker: Worker, *names: str) -> None:
    """The worker takes the locks one inside the other, and gives all back."""
    for name in names:
        worker.call("lock", name)
    for name in reversed(names):
        worker.call("unlock", name)


def seen(scene: Scene, n: int = 1) -> Snapshot:
    until(lambda: len(read_snapshot(scene.store).hazards) == n, f"{n} hazards")
    return read_snapshot(scene.store)


def orders(scene: Scene) -> int:
    return int(scene.store.command("SCARD", scene.store.key("orders")))


def test_two_processes_that_take_two_locks_in_two_orders_are_told_before_anything_stands(scene: Scene) -> None:
    scene.watch()
    a, b = scene.workers("agent/a", "agent/b")
    nest(a, "left", "right")
    before = read_snapshot(scene.store)
    nest(b, "right", "left")
    snapshot = seen(scene)
    (hazard,) = snapshot.hazards
    assert hazard.locks == ("lock:left", "lock:right")
    assert all(site.startswith("proof/worker.py:") for pair in hazard.sites for site in pair), hazard
    assert hazard.text.startswith("lock left and lock right can deadlock: agent/a took lock left (proof/worker.py:")
    assert hazard.text in to_text(status_lines(snapshot, UNICODE), colour=False)
    assert [c.text for c in changes(before, snapshot) if c.what == "hazard"] == [f"hazard, nothing stands yet: {hazard.text}"]
    assert [c.text for c in changes(snapshot, snapshot) if c.what == "hazard"] == []
    assert scene.incidents() == [], "nothing stands"


def test_one_process_in_both_orders_and_orders_under_a_common_lock_are_no_hazard(scene: Scene) -> None:
    a, b = scene.workers("agent/a", "agent/b")
    nest(a, "left", "right")
    nest(a, "right", "left")
    nest(a, "gate", "up", "down")
    nest(b, "gate", "down", "up")
    until(lambda: orders(scene) == 8, "both have told their orders")
    assert LockOrderWatch(scene.store).look() == ()


def test_a_monitor_that_takes_over_does_not_tell_a_hazard_again(scene: Scene) -> None:
    a, b = scene.workers("agent/a", "agent/b")
    nest(a, "left", "right")
    nest(b, "right", "left")
    until(lambda: orders(scene) == 2, "both have told their orders")
    first = LockOrderWatch(scene.store)
    assert [one.locks for one in first.look()] == [("lock:left", "lock:right")]
    assert first.look() == ()
    assert LockOrderWatch(scene.store).look() == ()
    nest(b, "right", "third")
    nest(a, "third", "right")
    until(lambda: orders(scene) == 4, "the new orders are told")
    assert [one.locks for one in LockOrderWatch(scene.store).look()] == [("lock:right", "lock:third")]


def test_an_order_is_told_once_however_often_it_is_taken_and_by_however_many_incarnations(scene: Scene) -> None:
    (a,) = scene.workers("agent/a")
    for _ in range(3):
        nest(a, "left", "right")
    until(lambda: orders(scene) == 1, "the order is told")
    (again,) = scene.workers("agent/a")
    nest(again, "left", "right")
    nest(again, "left", "right", "third")
    until(lambda: orders(scene) == 3, "left and right before third are new")


def test_what_is_no_order_is_passed_over_and_counted(scene: Scene) -> None:
    scene.store.command("SADD", scene.store.key("orders"), b"nonsense", b'{"who":1}')
    watch = LockOrderWatch(scene.store)
    assert (watch.look(), watch.bad) == ((), 2)
    assert (watch.look(), watch.bad) == ((), 2), "not read again"


def test_orders_that_the_run_has_no_room_for_are_counted_by_who_tells_them(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_ORDERS_KEPT", 2)
    outlet = process.RedisOutlet(store, register(store, "agent/a", role="agent", pid=1, host="here", boot=new_boot()))
    ways = [Order("agent/a", Taken("lock:a", "x", "a.py:1"), Taken(f"lock:{n}", "x", "a.py:2")) for n in range(5)]
    assert outlet.lock_orders(ways) is None
    assert (store.command("SCARD", store.key("orders")), outlet.orders_left_out) == (2, 3)


def test_a_hazard_that_cannot_be_read_is_left_out_and_named(scene: Scene) -> None:
    hazard = Hazard(locks=("lock:a", "lock:b"), sites=(("x.py:1", "x.py:2"), ("y.py:1", "y.py:2")), text="a and b can deadlock")
    hazards = HazardStore(scene.store)
    hazards.put(hazard)
    scene.store.command("HSET", scene.store.key("hazards"), "lock:c lock:d", "{")
    assert (hazards.list(), len(hazards.problems)) == ([hazard], 1)
    snapshot = read_snapshot(scene.store)
    assert (snapshot.hazards, list(snapshot.problems)) == ((hazard,), list(hazards.problems))


def test_a_run_that_begins_anew_has_no_orders_and_no_hazards_of_the_one_before(scene: Scene) -> None:
    a, b = scene.workers("agent/a", "agent/b")
    nest(a, "left", "right")
    nest(b, "right", "left")
    until(lambda: orders(scene) == 2, "both have told their orders")
    LockOrderWatch(scene.store).look()
    assert len(seen(scene).hazards) == 1
    RunClaim.take(scene.store).close()
    RunClaim.take(scene.store)
    assert (orders(scene), read_snapshot(scene.store).hazards) == (0, ())
