"""Lock orders that another schedule could turn into a deadlock, and those that none could."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unknot.graph import events as ev
from unknot.graph import hazards
from unknot.graph.hazards import Hazard, LockOrder
from unknot.graph.live import LiveGraph

Step = tuple[str, str, str]


class Locks:
    """A graph whose locks are taken and released in order."""

    def __init__(self, kind: Any = "lock", names: str = "abcdefgh") -> None:
        self.graph, self.order = LiveGraph(), LockOrder()
        for name in names:
            self.put(ev.Resource(r=f"lock:{name}", type=kind))

    def put(self, event: ev.Event) -> None:
        self.graph.apply(event)
        self.order.observe(self.graph, event)

    def nest(self, who: str, *names: str, mode: str = "x") -> Locks:
        """`who` takes the locks one inside the other, and releases them all."""
        for at, name in enumerate(names):
            self.put(ev.Hold(p=who, r=f"lock:{name}", mode=mode, site=f"{who}.py:{at}"))
        for name in reversed(names):
            self.put(ev.Release(p=who, r=f"lock:{name}"))
        return self

    @property
    def found(self) -> tuple[Hazard, ...]:
        return self.order.hazards()

    @property
    def rings(self) -> list[tuple[str, ...]]:
        return [tuple(lock.removeprefix("lock:") for lock in one.locks) for one in self.found]


def test_two_orders_by_two_participants_are_a_hazard_with_all_four_places() -> None:
    (found,) = Locks().nest("x", "a", "b").nest("y", "b", "a").found
    assert found.locks == ("lock:a", "lock:b")
    assert found.sites == (("x.py:0", "x.py:1"), ("y.py:0", "y.py:1"))
    assert found.text.startswith("lock a and lock b can deadlock: x took lock a (x.py:0), then lock b (x.py:1); y took")


def test_a_ring_of_three_locks_is_found_and_told_once() -> None:
    locks = Locks().nest("x", "a", "b").nest("y", "b", "c").nest("z", "c", "a").nest("z", "c", "a")
    assert locks.rings == [("a", "b", "c")]


def test_one_participant_alone_cannot_meet_itself_nor_its_earlier_incarnation() -> None:
    assert Locks().nest("x", "a", "b").nest("x", "b", "a").rings == []
    assert Locks().nest("agent/x#1", "a", "b").nest("agent/x#2", "b", "a").rings == []
    assert Locks().nest("x#1", "a", "b").nest("x#1/other", "b", "a").rings == [("a", "b")], "two threads are two"
    assert Locks().nest("x", "a", "b").nest("y", "b", "c").nest("x", "c", "a").rings == []


def test_a_common_gate_lock_lets_only_one_of_them_in() -> None:
    assert Locks().nest("x", "g", "a", "b").nest("y", "g", "b", "a").rings == []
    assert Locks().nest("x", "g", "a", "b").nest("y", "h", "b", "a").rings == [("a", "b")]


def test_a_gate_that_both_only_read_is_none() -> None:
    locks = Locks("rwlock")
    for who, first, second in (("x", "a", "b"), ("y", "b", "a")):
        locks.put(ev.Hold(p=who, r="lock:g", mode="r"))
        locks.nest(who, first, second)
        locks.put(ev.Release(p=who, r="lock:g"))
    assert locks.rings == [("a", "b")]


def test_readers_pass_each_other_and_writers_do_not() -> None:
    assert Locks("rwlock").nest("x", "a", "b", mode="r").nest("y", "b", "a", mode="r").rings == []
    assert Locks("rwlock").nest("x", "a", "b", mode="r").nest("y", "b", "a", mode="w").rings == [("a", "b")]


def test_a_lock_that_was_released_in_between_is_not_held() -> None:
    assert Locks().nest("x", "a").nest("x", "b").nest("y", "b", "a").rings == []


def test_taking_a_lock_again_is_no_order() -> None:
    locks = Locks()
    for event in (ev.Hold(p="x", r="lock:a"), ev.Hold(p="x", r="lock:b"), ev.Hold(p="x", r="lock:a")):
        locks.put(event)
    assert locks.nest("y", "b", "a").rings == [("a", "b")]
    assert len(locks.found) == 1


def test_a_fence_frees_what_the_older_incarnation_held() -> None:
    locks = Locks()
    locks.put(ev.Hold(p="agent/x#1", r="lock:a"))
    locks.put(ev.Fence(member="agent/x", incarnation=2))
    assert not locks.order._held
    assert locks.nest("agent/x#2", "b").nest("y", "b", "a").rings == []


def test_the_place_of_a_wait_counts_where_the_hold_tells_none() -> None:
    locks = Locks()
    need = (ev.Clause(k=1, of=(ev.Atom(r="lock:b"),)),)
    locks.put(ev.Hold(p="x", r="lock:a"))
    for event in (ev.Wait(p="x", ticket=1, needs=need, site="w.py:7"), ev.Wake(p="x", ticket=1), ev.Hold(p="x", r="lock:b")):
        locks.put(event)
    assert locks.nest("y", "b", "a").found[0].sites[0] == ("?", "w.py:7")


def test_memory_is_bounded_and_what_does_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hazards, "PAIRS", 10)
    names = [f"n{i}" for i in range(60)]
    locks = Locks(names="")
    for name in names:
        locks.put(ev.Resource(r=f"lock:{name}", type="lock"))
    for first, second in itertools.pairwise(names):
        locks.nest("x", first, second)
    assert sum(len(after) for after in locks.order._orders.values()) == 10
    assert len(locks.order._orders) == 10
    assert locks.order.dropped == 49
    assert not locks.order._held


STEPS = st.lists(st.tuples(st.sampled_from("xyz"), st.permutations("abc"), st.integers(2, 3)), max_size=5)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_a_hazard_is_told_exactly_where_some_schedule_of_the_same_nests_deadlocks(nests: list[Any]) -> None:
    locks = Locks(names="abc")
    for who, names, depth in nests:
        locks.nest(who, *names[:depth])
    told = [(who, tuple(names[:depth])) for who, names, depth in nests]
    assert bool(locks.found) == some_schedule_deadlocks(told)


def some_schedule_deadlocks(nests: list[tuple[str, tuple[str, ...]]]) -> bool:
    """Brute force: one nest of each participant at the same time, all interleavings."""
    people = sorted({who for who, _ in nests})
    options = [[names for one, names in nests if one == who] for who in people]
    return any(_deadlocks(choice) for choice in itertools.product(*options))


def _deadlocks(programs: tuple[tuple[str, ...], ...]) -> bool:
    seen: set[tuple[int, ...]] = set()
    todo: list[tuple[int, ...]] = [(0,) * len(programs)]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        held = {name: who for who, at in enumerate(state) for name in programs[who][:at] if at < len(programs[who])}
        moves = [
            who for who, at in enumerate(state) if at < len(programs[who]) and programs[who][at] not in held
        ]
        if not moves and any(at < len(programs[who]) for who, at in enumerate(state)):
            return True
        todo += [tuple(at + (one == who) for one, at in enumerate(state)) for who in moves]
    return False
