"""What one look at a process may say, and what it must never say."""

from __future__ import annotations

import _thread
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.recorder.puppets import Clock, Puppet, holds, lock, look, make_table, need, stand, waits
from unknot.graph import events as ev
from unknot.graph.live import LiveGraph
from unknot.graph.verdict import evaluate
from unknot.recovery.errors import NotAMember
from unknot.supervisor.recorder.slots import Waiting
from unknot.supervisor.recorder.table import WaitTable


class Between:
    """Does something between the two collections of a look."""

    def __init__(self, table: WaitTable, what: Callable[[], object]) -> None:
        self.what = what
        self.seen: list[dict[str, Waiting]] = []
        table.add_source(self)

    def collect(self, standing: dict[str, Waiting]) -> Sequence[ev.Event]:
        self.seen.append(dict(standing))
        self.what()
        return ()


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    one = Puppet()
    yield one
    if one.thread.is_alive():
        one.end()


def test_a_thread_that_stands_in_the_same_wait_at_both_looks_is_told_with_what_it_holds(puppet: Puppet) -> None:
    table = make_table()
    puppet.do(lambda: table.hold(lock("a")))
    handle = puppet.do(lambda: stand(table, "b"))
    told = look(table)
    assert waits(told) == {"agent/b#1/puppet": handle.number}
    assert holds(told) == {("agent/b#1/puppet", "lock:a")}
    assert told.tickets == {"agent/b#1/puppet": handle.number}


def test_a_thread_that_wakes_between_the_two_looks_counts_as_running(puppet: Puppet) -> None:
    table = make_table()
    handle = puppet.do(lambda: stand(table, "b"))
    moved = Between(table, lambda: puppet.do(lambda: handle.__exit__()))
    told = look(table)
    assert list(moved.seen[0]) == ["agent/b#1/puppet"], "it stood at the first look"
    assert waits(told) == {}
    assert told.tickets == {"agent/b#1/puppet": None}


def test_a_thread_that_stands_in_another_wait_at_the_second_look_counts_as_running(puppet: Puppet) -> None:
    table = make_table()
    handle = puppet.do(lambda: stand(table, "b"))

    def move() -> None:
        puppet.do(lambda: handle.__exit__())
        puppet.do(lambda: stand(table, "b"))

    moved = Between(table, move)
    assert waits(look(table)) == {}
    moved.what = lambda: None
    assert list(waits(look(table)).values()) == [handle.number + 1]


def test_a_hold_taken_after_the_wait_ended_is_never_told_together_with_that_wait() -> None:
    """Each thread holds `k` while it stands in its k-th wait: whoever is told to wait is told to hold exactly that."""
    table = make_table()
    stop = threading.Event()

    def live(name: str) -> None:
        mine: dict[int, str] = {}
        while not stop.is_set():
            ticket = table.next_ticket()
            mine[ticket] = f"{name}.{ticket}"
            table.hold(lock(mine[ticket]))
            with table.wait(ticket, [need("x")], [lock("x")]):
                os.sched_yield()
            table.release(f"lock:{mine[ticket]}")

    threads = [threading.Thread(target=live, args=(f"t{i}",), name=f"t{i}") for i in range(3)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        seen: set[int] = set()
        deadline = time.monotonic() + 30
        while len(seen) < 2000:
            assert time.monotonic() < deadline, f"the looks met only {len(seen)} waits"
            told = look(table)
            held = holds(told)
            for pid, ticket in waits(told).items():
                seen.add(ticket)
                assert {r for p, r in held if p == pid} == {f"lock:{pid.rpartition('/')[2]}.{ticket}"}
    finally:
        sys.setswitchinterval(before)
        stop.set()
        for thread in threads:
            thread.join()


def test_a_wait_younger_than_the_limit_is_not_told_and_its_thread_counts_as_running(puppet: Puppet) -> None:
    clock = Clock()
    table = make_table(clock)
    handle = puppet.do(lambda: stand(table, "b"))
    clock.now += 0.04
    told = look(table, publish_after_s=0.05)
    assert (waits(told), told.tickets, told.is_quiet) == ({}, {"agent/b#1/puppet": None}, True)
    clock.now += 0.02
    assert waits(look(table, publish_after_s=0.05)) == {"agent/b#1/puppet": handle.number}


def test_a_wait_says_since_when_until_when_and_where(puppet: Puppet) -> None:
    table = make_table(Clock(1000.0))
    puppet.do(lambda: stand(table, "b", deadline_s=5.0, waited_s=0.25, label="threading.Lock", interruptible=False))
    (wait,) = (event for event in look(table).events if isinstance(event, ev.Wait))
    assert (wait.t, wait.deadline, wait.label, wait.interruptible) == (999.75, 1005.0, "threading.Lock", False)
    assert wait.site is not None
    assert wait.site.startswith("recorder/puppets.py:")


def test_a_thread_that_ended_with_a_lock_in_its_hands_is_told_as_ended(puppet: Puppet) -> None:
    clock = Clock()
    table = make_table(clock)
    puppet.do(lambda: table.hold(lock("a")))
    puppet.end()
    stand(table, "a")
    told = look(table)
    clock.now += 3.0
    assert look(table).events == told.events, "the time of the end is told once and for all"
    graph = LiveGraph()
    graph.absorb(ev.Record(src=table.source, n=1, t=0.0, full=True, events=told.events))
    (finding,) = evaluate(graph, clock.now).findings
    assert (finding.cause, finding.kind, finding.culprits) == ("dead", "orphaned-lock", ("agent/b#1/puppet",))


def test_units_that_others_may_give_back_do_not_end_with_their_thread(puppet: Puppet) -> None:
    table = make_table()
    puppet.do(lambda: table.hold(ev.Resource(r="slots:env", type="slots", units=2), units=2))
    puppet.end()
    assert not any(isinstance(event, ev.End) for event in look(table).events)
    table.release("slots:env", units=1)
    table.release("slots:env", units=1)
    assert look(table).tickets == {"agent/b#1": None}


def test_a_release_by_another_thread_takes_the_hold_from_the_one_that_had_it(puppet: Puppet) -> None:
    table = make_table()
    puppet.do(lambda: table.hold(lock("a")))
    table.release("lock:a")
    assert holds(look(table)) == set()
    table.release("lock:a")
    assert holds(look(table)) == set(), "a release of what nobody holds is nothing"


def test_the_main_thread_is_the_member_itself_and_the_others_are_named_after_their_threads(puppet: Puppet) -> None:
    table = make_table()
    odd = Puppet("loader: a/b (x) #1|2")
    assert table.participant() == "agent/b#1"
    assert puppet.do(table.participant) == "agent/b#1/puppet"
    assert odd.do(table.participant) == "agent/b#1/loader-a-b-x-1-2"
    odd.end()


def test_two_live_threads_of_one_name_are_two_participants_and_the_name_is_free_again_after_them() -> None:
    table = make_table()
    first, second = Puppet("loader"), Puppet("loader")
    assert (first.do(table.participant), second.do(table.participant)) == ("agent/b#1/loader", "agent/b#1/loader~2")
    assert first.do(table.participant) == "agent/b#1/loader", "asked again it is the same"
    first.end()
    second.end()
    assert look(table).tickets == {}
    third = Puppet("loader")
    assert third.do(table.participant) == "agent/b#1/loader"
    third.end()


def test_a_name_that_was_told_as_ended_is_never_used_again() -> None:
    table = make_table()
    first = Puppet("loader")
    first.do(lambda: table.hold(lock("a")))
    first.end()
    assert any(isinstance(event, ev.End) for event in look(table).events)
    table.release("lock:a")
    look(table)
    second = Puppet("loader")
    assert second.do(table.participant) == "agent/b#1/loader~2"
    second.end()


def test_a_thread_that_gets_the_identifier_of_an_ended_one_inherits_nothing() -> None:
    table = make_table()
    first = Puppet("first")
    first.do(lambda: table.hold(lock("a")))
    ident = first.thread.ident
    first.end()
    for _ in range(500):
        heir = Puppet("heir")
        if heir.thread.ident == ident:
            break
        heir.end()
    assert heir.thread.ident == ident, "identifiers are used again at once"
    assert heir.do(table.participant) == "agent/b#1/heir"
    handle = heir.do(lambda: stand(table, "b"))
    told = look(table)
    assert holds(told) == {("agent/b#1/first", "lock:a")}
    assert waits(told) == {"agent/b#1/heir": handle.number}
    heir.end()


def test_a_slot_that_two_threads_make_at_once_is_one() -> None:
    table = make_table()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for round_ in range(100):
            one = Puppet(f"p{round_}")
            ident = one.thread.ident
            assert ident is not None
            made: list[str] = []
            other = threading.Thread(target=lambda: made.append(str(table.slot_of(ident).participant)))  # type: ignore[union-attr]  # noqa: B023
            other.start()
            name = one.do(table.participant)
            other.join()
            assert made == [name] == [f"agent/b#1/p{round_}"]
            handle = one.do(lambda: stand(table, "x"))
            assert waits(look(table)) == {name: handle.number}, "its waits are seen"
            one.end()
    finally:
        sys.setswitchinterval(before)


def test_a_thread_that_python_did_not_start_takes_part_and_leaves_nothing_behind() -> None:
    """As those of C libraries: asking `threading` for it would make a stand-in that never ends."""
    table = make_table()
    may_end, seen, before = threading.Event(), threading.Event(), set(threading.enumerate())
    names: list[str] = []

    def work() -> None:
        names.append(table.participant())
        table.hold(lock("a"))
        with table.wait(table.next_ticket(), [need("b")], [lock("b")]):
            seen.set()
            may_end.wait(10)
        table.release("lock:a")

    _thread.start_new_thread(work, ())
    assert seen.wait(10)
    told = look(table)
    assert (list(waits(told)), holds(told)) == (names, {(names[0], "lock:a")})
    assert re.fullmatch(r"agent/b#1/thread-\d+", names[0])
    (ident,) = table.known_idents()
    found = table.slot_of(ident)
    assert found is not None
    assert found.participant == names[0]
    may_end.set()
    deadline = time.monotonic() + 10
    while look(table).tickets:
        assert time.monotonic() < deadline, "it is gone from the table once it has ended"
    assert set(threading.enumerate()) <= before
    assert table.slot_of(ident) is None


def test_an_interrupt_hits_exactly_the_wait_that_it_names(puppet: Puppet) -> None:
    table = make_table()
    handle = puppet.do(lambda: stand(table, "b"))
    error = RuntimeError("freed")
    assert not table.interrupt("agent/b#1/puppet", handle.number + 1, error)
    assert not table.interrupt("agent/b#1/nobody", handle.number, error)
    assert handle.poll_interrupt() is None
    assert table.interrupt("agent/b#1/puppet", handle.number, error)
    assert handle.poll_interrupt() is error
    puppet.do(lambda: handle.__exit__())
    again = puppet.do(lambda: stand(table, "b"))
    assert again.poll_interrupt() is None, "a later wait is not hit"
    assert not table.interrupt("agent/b#1/puppet", handle.number, error)


def test_the_owner_of_an_in_process_lock_is_told_with_the_wait_for_it(puppet: Puppet) -> None:
    table = make_table()
    owner = Puppet("owner")
    puppet.do(lambda: stand(table, "b", owner_of=lambda: owner.thread.ident))
    told = look(table)
    assert holds(told) == {("agent/b#1/owner", "lock:b")}
    assert told.tickets["agent/b#1/owner"] is None
    owner.end()
    assert holds(look(table)) == set(), "a thread that has ended is not found any more"


def test_an_abandoned_table_announces_nothing_and_knows_no_participant(puppet: Puppet) -> None:
    table = make_table()
    table.abandon()
    handle = puppet.do(lambda: stand(table, "b"))
    assert waits(look(table)) == {}
    assert handle.poll_interrupt() is None
    with pytest.raises(NotAMember, match="forked child"):
        table.participant()
