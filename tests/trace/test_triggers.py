"""A replay that looks only when somebody may have become stuck answers as one that looks after every event."""

from __future__ import annotations

from unittest.mock import patch

from tests.graph.chances import Chances
from tests.graph.scripts import PEOPLE, possible, resources, scenarios
from unknot.graph import events as ev
from unknot.graph.replay import Replay, Report
from unknot.graph.trace import SCHEMA, Header, Line
from unknot.graph.triggers import Triggers


def history(chances: Chances) -> list[ev.Event]:
    """Events that can happen one after the other, by what the graph allows."""
    play = Replay(Header(schema=SCHEMA), looks=False)
    kinds = resources(chances)
    told: list[ev.Event] = [*kinds, *(ev.Start(p=pid) for pid in PEOPLE)]
    for event in told:
        play.graph.apply(event)
    ticket = 0
    while not chances.over:
        ticket += 1
        drawn = possible(chances, play.graph, kinds, ticket)
        if drawn is not None:
            play.graph.apply(drawn)
            told.append(drawn)
    return told


def replayed(events: list[ev.Event]) -> Report:
    play = Replay(Header(schema=SCHEMA))
    for number, event in enumerate(events, 2):
        play.feed(Line(number=number, event=event))
    return play.report()


@scenarios(600)
def test_looking_only_when_triggered_misses_nothing(chances: Chances) -> None:
    events = history(chances)
    sparing = replayed(events)
    with patch.object(Triggers, "after", lambda *_: True):
        always = replayed(events)
    assert [(i.kind, i.core, i.stuck, i.opened_line, i.resolved_line) for i in sparing.incidents] == [
        (i.kind, i.core, i.stuck, i.opened_line, i.resolved_line) for i in always.incidents
    ]
    assert sparing.final == always.final
    assert all("What to do: " in one.text for one in sparing.incidents)


def test_a_wait_that_somebody_who_runs_can_end_does_not_trigger() -> None:
    play = Replay(Header(schema=SCHEMA))
    for event in (ev.Resource(r="lock:a", type="lock"), ev.Start(p="a"), ev.Start(p="b"), ev.Hold(p="a", r="lock:a")):
        play.graph.apply(event)
    wait = ev.Wait(p="b", ticket=1, needs=(ev.Clause(k=1, of=(ev.Atom(r="lock:a"),)),))
    play.graph.apply(wait)
    assert not Triggers(play.graph).after(wait)
    back = ev.Wait(p="a", ticket=2, needs=(ev.Clause(k=1, of=(ev.Atom(p="b"),)),))
    play.graph.apply(back)
    assert Triggers(play.graph).after(back)
