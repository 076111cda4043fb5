"""Pictures of processes become events: what changed, numbered without gaps."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.scenes import atom
from unknot.graph import events as ev
from unknot.graph.live import LiveGraph
from unknot.graph.unfold import Unfolder

A = "agent/a#1"
LOCKS = [ev.Resource(r=f"lock:{name}", type="lock") for name in "xyz"]


def wait(ticket: int, r: str, p: str = A) -> ev.Wait:
    return ev.Wait(p=p, t=1.0, ticket=ticket, needs=(ev.Clause(k=1, of=(atom(r),)),))


def picture(n: int, *events: ev.Event, src: str = A) -> ev.Record:
    return ev.Record(src=src, n=n, t=float(n), full=True, events=events)


def told(*records: ev.Record) -> list[list[Any]]:
    unfolder = Unfolder()
    return [[line.event for line in unfolder.unfold(record)] for record in records]


def test_a_picture_that_says_nothing_new_adds_nothing() -> None:
    same: tuple[ev.Event, ...] = (*LOCKS, ev.Start(p=A), ev.Hold(p=A, r="lock:x"), wait(1, "lock:y"), ev.Progress(p=A, n=3))
    first, second = told(picture(1, *same), picture(2, *same))
    assert len(first) == 7
    assert second == []


def test_what_is_in_the_picture_no_more_is_over() -> None:
    _, second = told(picture(1, *LOCKS, ev.Hold(p=A, r="lock:x", units=2), wait(1, "lock:y")), picture(2, *LOCKS, ev.Hold(p=A, r="lock:x")))
    assert second == [ev.Wake(p=A, ticket=1, t=2.0), ev.Release(p=A, r="lock:x", t=2.0)]


def test_a_wait_under_another_ticket_is_another_wait() -> None:
    _, second = told(picture(1, *LOCKS, wait(1, "lock:y")), picture(2, *LOCKS, wait(2, "lock:y")))
    assert [type(event) for event in second] == [ev.Wake, ev.Wait]


def test_totals_of_work_become_what_was_added() -> None:
    _, second = told(picture(1, ev.Progress(p=A, n=3)), picture(2, ev.Progress(p=A, n=5)))
    assert [event.n for event in second] == [2]


def test_a_thread_that_is_told_no_more_ends_with_its_process() -> None:
    first = picture(1, ev.Start(p=A), ev.Start(p=f"{A}/loader"))
    end = ev.Record(src="store", n=0, t=3.0, events=(ev.End(p=A, how="crash", t=3.0),))
    *_, last = told(first, picture(2, ev.Start(p=A)), end)
    assert last == [ev.End(p=A, how="crash", t=3.0), ev.End(p=f"{A}/loader", how="crash", t=3.0)]


def test_what_was_issued_long_ago_is_not_remembered() -> None:
    unfolder = Unfolder()
    group = ev.Resource(r="coll:g", type="collective", members=(A,))
    for n in range(1, 50):
        lines = unfolder.unfold(picture(n, group, ev.Start(p=A), ev.Arrive(p=A, r="coll:g", seq=n)))
        assert [type(line.event) for line in lines][-1] is ev.Arrive
    assert len(unfolder._pictures[A].issued) == 1


def test_an_answer_carries_the_number_of_its_line() -> None:
    unfolder = Unfolder()
    beat = ev.Beat(src=A, n=1, tickets={}, round=4)
    lines = unfolder.unfold(picture(1, *LOCKS, ev.Start(p=A), beat))
    assert [line.n for line in lines] == [1, 2, 3, 4, 5]
    assert lines[-1].event == ev.Beat(src=A, n=5, tickets={}, round=4, t=1.0)


A_B = ["agent/a#1", "agent/b#1"]
CHOICES = st.tuples(st.sets(st.sampled_from("xyz")), st.sampled_from([None, "x", "y", "z"]), st.booleans())
STEPS = st.one_of(
    st.tuples(st.sampled_from(A_B), CHOICES),
    st.tuples(st.sampled_from(A_B), st.sampled_from(["wake", "hold x", "hold y", "release x", "release y"])),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_the_events_make_the_same_graph_as_the_pictures_and_the_word_of_the_store(steps: list[tuple[str, Any]]) -> None:
    from_pictures, from_events, unfolder = LiveGraph(), LiveGraph(), Unfolder()
    numbers: dict[str, int] = {}
    for src, what in steps:
        record = words(from_pictures, src, what) if isinstance(what, str) else looks(numbers, src, what)
        from_pictures.absorb(record)
        for line in unfolder.unfold(record):
            from_events.absorb(ev.Record(src=line.src, n=line.n, t=1.0, events=(line.event,)))
        from_events.validate()
        assert facts(from_events) == facts(from_pictures)


def looks(numbers: dict[str, int], src: str, choice: Any) -> ev.Record:
    """A process' picture of itself."""
    held, wanted, again = choice
    numbers[src] = numbers.get(src, 0) + 1
    holds = [ev.Hold(p=src, r=f"lock:{name}") for name in sorted(held)]
    waits = [wait(1 if again else numbers[src], f"lock:{wanted}", src)] if wanted else []
    return picture(numbers[src], *LOCKS, ev.Start(p=src), *holds, *waits, src=src)


def words(graph: LiveGraph, pid: str, what: str) -> ev.Record:
    """What the store says about a participant of another process, where it is news (monitor/truth.py)."""
    do, _, name = what.partition(" ")
    r, ticket = f"lock:{name}", graph.ticket(pid)
    holds = graph.participants[pid].holds if pid in graph.participants else {}
    events: list[ev.Event] = []
    if do == "wake" and ticket is not None:
        events = [ev.Wake(p=pid, ticket=ticket)]
    elif do == "hold" and pid in graph.participants and r not in holds:
        events = [ev.Hold(p=pid, r=r)]
    elif do == "release" and r in holds:
        events = [ev.Release(p=pid, r=r, units=holds[r])]
    return ev.Record(src="store", n=0, t=1.0, events=tuple(events))


def facts(graph: LiveGraph) -> dict[str, Any]:
    return {pid: (graph.ticket(pid), dict(one.holds)) for pid, one in graph.participants.items()}
