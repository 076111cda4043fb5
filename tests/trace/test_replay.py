"""What a trace tells when it is replayed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trace.lines import ARRIVAL, crossed, encoded, from_sources, lock, one, replayed, wait
from unknot.graph import replay as replaying
from unknot.graph.errors import TraceError
from unknot.graph.replay import Incident, Report


def told(*events: dict[str, Any], head: dict[str, Any] | None = None) -> Report:
    return replayed(encoded(*events) if head is None else encoded(*events, head=head))


def only(report: Report) -> Incident:
    assert len(report.incidents) == 1, report.incidents
    return report.incidents[0]


def test_an_incident_opens_with_the_line_that_closes_the_ring() -> None:
    report = told(*crossed())
    found = only(report)
    assert (found.cause, found.kind, found.core, found.stuck) == ("deadlock", "cycle", ("a#1", "b#1"), ("a#1", "b#1"))
    assert (found.opened_line, found.resolved_line, found.deadline_in_s) == (10, None, None)
    assert (report.events, report.final.stuck, report.final.core) == (9, ("a#1", "b#1"), ("a#1", "b#1"))
    assert report.final.running == ("c#1",)
    assert found.text.startswith("DEADLOCK in run r: a → lock:2 → b → lock:1 → a")


def test_it_is_resolved_with_the_line_that_frees_it() -> None:
    report = told(*crossed(), one("wake", "a#1", ticket=1, how="interrupted"))
    assert only(report).resolved_line == 11
    assert (report.final.stuck, report.final.core) == ((), ())


def test_whoever_comes_later_is_dragged_along_in_the_same_incident() -> None:
    found = only(told(*crossed(), wait("c#1", 1, {"r": "lock:1"}, t=3)))
    assert (found.core, found.stuck, found.opened_line) == (("a#1", "b#1"), ("a#1", "b#1", "c#1"), 10)


def test_a_ring_that_grows_stays_one_incident() -> None:
    later = [lock("lock:3"), one("hold", "c#1", r="lock:3")]
    events = [*crossed()[:-2], *later, wait("a#1", 1, {"r": "lock:2"}, {"r": "lock:3"}), wait("b#1", 1, {"r": "lock:1"})]
    found = only(told(*events, wait("c#1", 1, {"p": "a#1"})))
    assert (found.core, found.opened_line, found.resolved_line) == (("a#1", "b#1", "c#1"), 12, None)


def test_a_ring_that_a_deadline_cuts_is_timed_and_nobody_is_stuck() -> None:
    events = [*crossed()[:-1], wait("b#1", 1, {"r": "lock:1"}, t=2, deadline=32)]
    report = told(*events)
    assert (only(report).kind, only(report).cause, only(report).deadline_in_s) == ("timed", "deadlock", 30)
    assert (report.final.stuck, only(report).core) == ((), ("a#1", "b#1"))
    assert only(told(*events, one("wake", "b#1", ticket=1, how="timeout", t=32))).resolved_line == 11


def test_a_limit_is_no_escape() -> None:
    assert only(told(*crossed()[:-1], wait("b#1", 1, {"r": "lock:1"}, limit=32))).kind == "cycle"


def test_a_mismatch_is_an_incident_whether_or_not_anybody_waits_and_names_the_first_index_and_both_places() -> None:
    group = one("resource", r="coll:g", type="collective", members=["a#1", "b#1"])
    issued = [
        one("arrive", p, r="coll:g", seq=seq, op=op, site=site)
        for seq, (x, y) in enumerate((("all_reduce", "all_reduce"), ("broadcast", "all_reduce"), ("x", "y")), 1)
        for p, op, site in (("a#1", x, f"a.py:{seq}"), ("b#1", y, f"b.py:{seq}"))
    ]
    found = only(told(group, *issued))
    assert (found.kind, found.core, found.opened_line) == ("mismatch", (), 6)
    assert "#2 is the first operation" in found.text
    assert "a.py:2" in found.text
    assert "b.py:2" in found.text
    waiting = only(told(group, *issued, wait("a#1", 1, {"r": "coll:g", "seq": 2})))
    assert (waiting.core, waiting.opened_line) == (("a#1",), 6)


def test_a_wait_that_ends_and_comes_again_is_another_incident() -> None:
    again = [one("wake", "a#1", ticket=1), wait("a#1", 2, {"r": "lock:2"})]
    assert [(i.opened_line, i.resolved_line) for i in told(*crossed(), *again).incidents] == [(10, 11), (12, None)]


def test_incidents_that_are_over_are_kept_up_to_a_number_and_counted_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "KEPT", 10)
    events = crossed()
    for ticket in range(2, 40):
        events += [one("wake", "a#1", ticket=ticket - 1), wait("a#1", ticket, {"r": "lock:2"})]
    report = told(*events)
    assert len(report.incidents) <= 12
    assert len(report.incidents) + report.left_out == 39
    assert report.incidents[-1].resolved_line is None


@pytest.mark.parametrize(
    ("event", "what"),
    [
        (one("release", "a#1", r="lock:2"), "releases 1 of lock:2"),
        (one("wake", "c#1", ticket=9), "wakes from ticket 9"),
        (one("hold", "c#1", r="lock:9"), "unknown resource lock:9"),
        (one("hold", "c#1", r="lock:1", units=-1), "-1 units"),
        (one("resource", r="sem:s", type="semaphore", capacity=-1), "capacity -1"),
        (one("nonsense", "c#1"), "nonsense"),
        (one("send", "c#1", r="lock:1"), "send on lock:1"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(event: dict[str, Any], what: str) -> None:
    with pytest.raises(TraceError) as told_:
        told(*crossed(), event)
    assert told_.value.line == 11
    assert what in str(told_.value)
    assert str(told_.value).startswith("line 11: ")
    assert "; expected " in str(told_.value)


# --- in the order of arrival ---


def beats(number: int, a: int | None = 1, b: int | None = 1) -> list[dict[str, Any]]:
    """Both processes answer round `number` with the tickets they stand in."""
    pairs = (("a#1", a), ("b#1", b))
    return [one("beat", src=src, tickets={src: ticket}, round=number) for src, ticket in pairs]


def arrived(*events: dict[str, Any]) -> Report:
    return told(*from_sources(*crossed(), *events), head=ARRIVAL)


def test_in_order_of_arrival_a_ring_is_a_candidate_until_all_have_answered_twice() -> None:
    assert arrived().incidents == ()
    assert arrived(*beats(1)).incidents == ()
    assert arrived(*beats(1), beats(2)[0]).incidents == ()
    report = arrived(*beats(1), *beats(2))
    assert (only(report).core, only(report).opened_line) == (("a#1", "b#1"), 14)
    assert report.final.stuck == ("a#1", "b#1")


def test_answers_without_round_numbers_count_by_their_place() -> None:
    plain = [{k: v for k, v in beat.items() if k != "round"} for beat in (*beats(1), *beats(2))]
    assert only(arrived(*plain)).opened_line == 14


def test_the_same_round_twice_is_no_second_answer() -> None:
    assert arrived(*beats(1), *beats(1)).incidents == ()


def test_an_answer_with_another_ticket_dissolves_the_candidate() -> None:
    assert arrived(*beats(1), *beats(2, a=2)).incidents == ()
    assert arrived(*beats(1), *beats(2, a=None)).incidents == ()
    assert only(arrived(*beats(1), *beats(2, a=None), *beats(3), *beats(4))).opened_line == 18


def test_a_gap_in_the_numbers_of_a_source_makes_it_unknown_until_it_is_filled() -> None:
    lines = from_sources(*crossed(), *beats(1), *beats(2))
    late = lines.pop(8)
    assert told(*lines, head=ARRIVAL).incidents == ()
    assert only(told(*lines, late, head=ARRIVAL)).core == ("a#1", "b#1")


def test_a_confirmed_ring_is_resolved_by_its_wake() -> None:
    report = arrived(*beats(1), *beats(2), one("wake", "b#1", ticket=1))
    assert only(report).resolved_line == 15
    assert report.final.stuck == ()
