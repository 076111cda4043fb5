"""From a candidate to a verdict, step by step."""

from __future__ import annotations

import itertools

import pytest

from tests.graph.scenes import DEMO_CORE, demo
from tests.graph.test_live import lock, rec, waits
from unknot.graph import events as ev
from unknot.graph.confirm import (
    LEGAL,
    Answered,
    Ask,
    Confirm,
    Confirmation,
    Drop,
    Lost,
    Phase,
    Tick,
    Unresponsive,
    needs_store_counts,
)  # fmt: skip
from unknot.graph.live import LiveGraph
from unknot.graph.verdict import evaluate

A, B = ev.Atom(p="a#1"), ev.Atom(r="lock:1")


def ring() -> LiveGraph:
    """a holds the lock and waits for b, b waits for the lock, c is dragged along."""
    graph = LiveGraph()
    graph.absorb(rec("a#1", 1, lock(), ev.Hold(p="a#1", r="lock:1"), waits("a#1", ev.Atom(p="b#1"), ticket=5)))
    graph.absorb(rec("b#1", 1, waits("b#1", B, ticket=7)))
    graph.absorb(rec("c#1", 1, waits("c#1", A, ticket=9)))
    return graph


def begun(graph: LiveGraph) -> Confirmation:
    (finding,) = evaluate(graph, 0.0).findings
    candidate = Confirmation(finding, itertools.count(1), answer_limit_s=1.0)
    assert candidate.begin(graph, 0.0) == (Ask(("a#1", "b#1"), 1),)
    return candidate


def told(source: str, round_id: int, ticket: int | None, n: int = 1) -> Answered:
    return Answered(source=source, round_id=round_id, n=n, tickets={source: ticket})


def test_two_equal_rounds_confirm_and_those_dragged_along_are_not_asked() -> None:
    graph = ring()
    candidate = begun(graph)
    assert candidate.feed(told("a#1", 1, 5), graph) == ()
    assert candidate.feed(told("b#1", 1, 7), graph) == (Ask(("a#1", "b#1"), 2),)
    assert candidate.feed(told("b#1", 2, 7), graph) == ()
    assert candidate.feed(told("a#1", 2, 5), graph) == (Confirm(candidate.finding),)
    assert candidate.done
    assert candidate.feed(Tick(9.0), graph) == ()
    candidate.validate()


def test_round_two_is_asked_only_after_every_answer_to_round_one() -> None:
    graph = ring()
    candidate = begun(graph)
    assert candidate.feed(told("a#1", 1, 5), graph) == ()
    assert candidate.feed(told("a#1", 1, 5), graph) == ()
    assert candidate.feed(told("a#1", 2, 5), graph) == (), "an answer to a round that nobody has asked"
    assert candidate.phase is Phase.FIRST


@pytest.mark.parametrize("round_id", [1, 2])
def test_a_changed_ticket_dissolves(round_id: int) -> None:
    graph = ring()
    candidate = begun(graph)
    if round_id == 2:
        candidate.feed(told("a#1", 1, 5), graph)
        candidate.feed(told("b#1", 1, 7), graph)
    (end,) = candidate.feed(told("a#1", round_id, 6), graph)
    assert isinstance(end, Drop)
    assert candidate.phase is Phase.DISSOLVED


def test_a_participant_that_runs_or_is_not_mentioned_dissolves() -> None:
    cases: list[dict[str, int | None]] = [{"a#1": None}, {}]
    for tickets in cases:
        graph = ring()
        (end,) = begun(graph).feed(Answered(source="a#1", round_id=1, n=1, tickets=tickets), graph)
        assert isinstance(end, Drop)


def test_nothing_is_confirmed_before_the_records_up_to_the_answers_were_read() -> None:
    graph = ring()
    candidate = begun(graph)
    for answer in (told("a#1", 1, 5), told("b#1", 1, 7), told("b#1", 2, 7), told("a#1", 2, 5, n=2)):
        candidate.feed(answer, graph)
    assert candidate.phase is Phase.ABSORBING
    graph.absorb(rec("a#1", 2, ev.Release(p="a#1", r="lock:1")))
    (end,) = candidate.feed(Tick(0.1), graph)
    assert end == Drop("somebody can help after all")


def test_records_that_never_come_end_the_candidate() -> None:
    graph = ring()
    candidate = begun(graph)
    for answer in (told("a#1", 1, 5), told("b#1", 1, 7), told("b#1", 2, 7), told("a#1", 2, 5, n=2)):
        candidate.feed(answer, graph)
    assert candidate.feed(Tick(0.9), graph) == ()
    (end,) = candidate.feed(Tick(1.1), graph)
    assert isinstance(end, Drop)


def test_a_source_that_does_not_answer_is_unresponsive() -> None:
    graph = ring()
    candidate = begun(graph)
    candidate.feed(told("a#1", 1, 5), graph)
    assert candidate.feed(Tick(1.0), graph) == ()
    assert candidate.feed(Tick(1.1), graph) == (Unresponsive(("b#1",)),)
    assert candidate.done


def test_a_gap_makes_the_candidate_unknown_until_it_is_healed_and_then_it_starts_anew() -> None:
    graph = ring()
    candidate = begun(graph)
    candidate.feed(told("a#1", 1, 5), graph)
    graph.absorb(rec("b#1", 3))
    assert candidate.feed(Tick(0.1), graph) == ()
    assert candidate.phase is Phase.UNKNOWN
    assert candidate.feed(Tick(5.0), graph) == (), "silence is no verdict while records are missing"
    graph.absorb(rec("b#1", 4, waits("b#1", B, ticket=7), full=True))
    assert candidate.feed(Tick(5.1), graph) == (Ask(("a#1", "b#1"), 2),)
    assert candidate.feed(told("b#1", 1, 7), graph) == (), "an answer to the old round counts for nothing"
    candidate.validate()


def test_lost_records_make_it_unknown() -> None:
    graph = ring()
    candidate = begun(graph)
    graph.lose("a#1")
    assert candidate.feed(Lost("a#1"), graph) == ()
    assert candidate.phase is Phase.UNKNOWN


def test_a_wait_that_ended_in_the_graph_dissolves_at_once() -> None:
    graph = ring()
    candidate = begun(graph)
    graph.absorb(rec("b#1", 2, ev.Wake(p="b#1", ticket=7)))
    (end,) = candidate.feed(Tick(0.1), graph)
    assert isinstance(end, Drop)


def test_a_core_that_leans_on_somebody_new_is_asked_about_again() -> None:
    graph = ring()
    candidate = begun(graph)
    for answer in (told("a#1", 1, 5), told("b#1", 1, 7), told("b#1", 2, 7)):
        candidate.feed(answer, graph)
    graph.absorb(rec("d#1", 1, ev.Hold(p="d#1", r="lock:1"), waits("d#1", ev.Atom(p="b#1"), ticket=2)))
    (end,) = candidate.feed(told("a#1", 2, 5), graph)
    assert isinstance(end, Drop)
    (again,) = evaluate(graph, 0.0).findings
    assert again.closure == ("a#1", "b#1", "d#1")


def test_a_timed_ring_is_confirmed_like_any_other() -> None:
    graph = LiveGraph()
    timed = ev.Wait(p="a#1", ticket=5, needs=(ev.Clause(k=1, of=(ev.Atom(p="b#1"),)),), deadline=60.0)
    graph.absorb(rec("a#1", 1, timed))
    graph.absorb(rec("b#1", 1, waits("b#1", A, ticket=7)))
    candidate = begun(graph)
    for answer in (told("a#1", 1, 5), told("b#1", 1, 7), told("b#1", 2, 7)):
        candidate.feed(answer, graph)
    assert candidate.feed(told("a#1", 2, 5), graph) == (Confirm(candidate.finding),)


def test_the_counts_of_the_mailboxes_are_wanted_before_the_last_answer() -> None:
    (finding,) = evaluate(demo().graph, 0.0).findings
    assert finding.core == DEMO_CORE
    assert needs_store_counts(finding) == ("mbox:raw",)


def test_the_table_of_moves_has_an_end_and_no_way_back_from_it() -> None:
    ends = {Phase.CONFIRMED, Phase.DISSOLVED, Phase.UNRESPONSIVE}
    assert {phase for phase, to in LEGAL.items() if not to} == ends
    assert set(LEGAL) == set(Phase)
