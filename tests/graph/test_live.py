"""The two ways in: true order is strict, arrival order is patient."""

from __future__ import annotations

import pytest

from tests.graph.scenes import Scene, atom
from unknot.graph import events as ev
from unknot.graph.errors import TraceError
from unknot.graph.live import Absorbed, LiveGraph
from unknot.graph.verdict import evaluate


def rec(src: str, n: int, *events: ev.Event, full: bool = False) -> ev.Record:
    return ev.Record(src=src, n=n, t=float(n), full=full, events=events)


def lock(r: str = "lock:1") -> ev.Resource:
    return ev.Resource(r=r, type="lock")


def waits(p: str, *atoms: ev.Atom, ticket: int = 1) -> ev.Wait:
    return ev.Wait(p=p, ticket=ticket, needs=tuple(ev.Clause(k=1, of=(one,)) for one in atoms))


@pytest.mark.parametrize(
    "event",
    [
        ev.Hold(p="a", r="lock:unknown"),
        ev.Hold(p="a", r="lock:1", units=0),
        ev.Release(p="a", r="lock:1"),
        ev.Wake(p="a", ticket=1),
        ev.Recv(p="a", r="mbox:m"),
        ev.Send(p="a", r="mbox:m", n=-1),
        ev.Send(p="a", r="lock:1"),
        ev.Add(p="a", r="latch:l", n=-3),
        ev.Resource(r="lock:1", type="mailbox"),
        ev.Start(),
        waits("a", ev.Atom(r="lock:unknown")),
        waits("a", ev.Atom()),
        waits("a", ev.Atom(r="mbox:m")),
        waits("busy", ev.Atom(r="lock:1"), ticket=2),
        ev.Hold(p="ended", r="lock:1", units=-1),
        ev.Wait(p="ended", ticket=3, needs=()),
        ev.Wait(p="a", ticket=3, needs=(ev.Clause(k=2, of=(ev.Atom(p="b"),)),)),
        ev.Arrive(p="a", r="coll:g", seq=-1),
        ev.Signal(p="a", r="cond:c", n=0),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(event: ev.Event) -> None:
    scene = Scene().resource("lock:1", "lock").resource("mbox:m", "mailbox").resource("latch:l", "latch", count=2)
    scene.resource("coll:g", "collective").resource("cond:c", "condition").start("a", "ended").end("ended")
    scene.wait("busy", atom("lock:1"))
    before = evaluate(scene.graph, 1.0)
    with pytest.raises(TraceError) as refused:
        scene.graph.apply(event)
    assert refused.value.what
    assert refused.value.expected
    scene.graph.validate()
    assert evaluate(scene.graph, 1.0) == before


def test_a_declaration_may_be_repeated() -> None:
    Scene().put(lock(), lock())


def test_duplicates_are_ignored() -> None:
    graph = LiveGraph()
    first = rec("a#1", 1, lock(), ev.Hold(p="a#1", r="lock:1"))
    assert graph.absorb(first) is Absorbed.APPLIED
    assert graph.absorb(first) is Absorbed.DUPLICATE
    assert graph.participants["a#1"].holds == {"lock:1": 1}
    assert graph.counters["duplicate_records"] == 1


def test_a_gap_makes_the_source_unknown_until_a_full_record() -> None:
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1, lock(), ev.Hold(p="a#1", r="lock:1"), waits("a#1", atom("p=b#1"))))
    graph.absorb(rec("b#1", 1, waits("b#1", atom("lock:1"))))
    assert evaluate(graph, 1.0).stuck == ("a#1", "b#1")
    assert graph.absorb(rec("a#1", 3)) is Absorbed.GAP
    told = evaluate(graph, 1.0)
    assert (told.stuck, told.unknown) == ((), ("b#1",))
    assert graph.absorb(rec("a#1", 4, ev.Start(p="a#1"), full=True)) is Absorbed.APPLIED
    assert not graph.is_unknown("a#1")
    assert (evaluate(graph, 1.0).stuck, graph.absorbed("a#1")) == ((), 4)
    graph.validate()


def test_a_record_that_comes_late_fills_the_gap_and_lets_the_kept_ones_in() -> None:
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1, lock()))
    assert graph.absorb(rec("a#1", 3, ev.Release(p="a#1", r="lock:1"))) is Absorbed.GAP
    assert graph.absorb(rec("a#1", 2, ev.Hold(p="a#1", r="lock:1"))) is Absorbed.APPLIED
    assert (graph.absorbed("a#1"), graph.is_unknown("a#1")) == (3, False)
    assert graph.participants["a#1"].holds == {}
    graph.validate()


def test_what_is_known_to_be_lost_is_only_healed_by_a_full_record() -> None:
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1))
    graph.lose("a#1")
    assert graph.absorb(rec("a#1", 2)) is Absorbed.GAP
    assert graph.absorb(rec("a#1", 3, full=True)) is Absorbed.APPLIED
    assert not graph.is_unknown("a#1")


def test_a_full_record_voids_what_its_source_said_before_and_nothing_else() -> None:
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1, lock(), ev.Hold(p="a#1", r="lock:1"), waits("a#1/t", atom("p=b#1"))))
    graph.absorb(rec("b#1", 1, waits("b#1", atom("lock:1"))))
    graph.absorb(rec("a#1", 2, ev.Start(p="a#1"), full=True))
    graph.validate()
    assert graph.participants["a#1"].holds == {}
    assert "a#1/t" not in graph.participants
    assert graph.ticket("b#1") == 1


def test_a_full_record_does_not_revive_who_has_ended() -> None:
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1, ev.Start(p="a#1")))
    graph.absorb(rec("store", 0, ev.End(p="a#1", how="crash")))
    graph.absorb(rec("a#1", 2, lock(), ev.Hold(p="a#1", r="lock:1"), waits("a#1", atom("p=b#1")), full=True))
    assert graph.participants["a#1"].state == "ended"
    assert graph.participants["a#1"].holds == {"lock:1": 1}
    graph.validate()


def test_records_of_a_fenced_incarnation_are_stale() -> None:
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1, lock(), ev.Hold(p="a#1", r="lock:1")))
    graph.absorb(rec("store", 0, ev.Fence(member="a", incarnation=2)))
    assert graph.participants["a#1"].holds == {}
    assert graph.absorb(rec("a#1", 2, ev.Hold(p="a#1", r="lock:1"))) is Absorbed.STALE
    assert graph.absorb(rec("a#2", 1, ev.Hold(p="a#2", r="lock:1"))) is Absorbed.APPLIED
    graph.validate()


def test_a_lock_may_seem_to_have_two_holders_until_the_release_has_come() -> None:
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1, lock(), ev.Hold(p="a#1", r="lock:1")))
    graph.absorb(rec("b#1", 1, ev.Hold(p="b#1", r="lock:1")))
    graph.absorb(rec("c#1", 1, waits("c#1", atom("lock:1"))))
    assert evaluate(graph, 1.0).stuck == ()
    graph.absorb(rec("a#1", 2, ev.Release(p="a#1", r="lock:1")))
    graph.validate()
    assert set(graph.resources["lock:1"].holders) == {"b#1"}


def test_what_another_record_may_explain_is_counted_not_raised() -> None:
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1, ev.Release(p="a#1", r="lock:9"), ev.Wake(p="a#1", ticket=7)))
    graph.absorb(rec("a#1", 2, waits("a#1", atom("mbox:undeclared", op="recv"))))
    assert graph.counters["tolerated"] >= 2
    assert evaluate(graph, 1.0).stuck == (), "who may send there is not known"
    graph.validate()


def test_counts_of_the_store_stand_above_those_of_processes() -> None:
    graph = LiveGraph()
    box = ev.Resource(r="mbox:m", type="mailbox", senders=())
    graph.absorb(rec("a#1", 1, box, waits("a#1", atom("mbox:m", op="recv"))))
    assert evaluate(graph, 1.0).stuck == ("a#1",)
    graph.absorb(rec("store", 0, ev.Resource(r="mbox:m", type="mailbox", senders=(), count=1)))
    graph.absorb(rec("b#1", 1, ev.Recv(p="b#1", r="mbox:m")))
    assert graph.resources["mbox:m"].count == 1
    assert evaluate(graph, 1.0).stuck == ()


def test_waits_that_came_by_records_have_no_place_in_a_queue() -> None:
    graph = LiveGraph()
    rw = ev.Resource(r="rwlock:l", type="rwlock")
    graph.absorb(rec("r#1", 1, rw, ev.Hold(p="r#1", r="rwlock:l", mode="r"), waits("r#1", atom("p=q#1"))))
    graph.absorb(rec("w#1", 1, waits("w#1", atom("rwlock:l", mode="w"))))
    graph.absorb(rec("q#1", 1, waits("q#1", atom("rwlock:l", mode="r"))))
    assert evaluate(graph, 1.0).stuck == ()
