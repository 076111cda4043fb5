"""The detector against a brute-force search: it never accuses falsely, and misses nothing that is not consumed."""

from __future__ import annotations

import pytest

from tests.graph.chances import Chances
from tests.graph.oracle import World
from tests.graph.scripts import PEOPLE, possible, resources, scenarios, upheaval
from unknot.graph import events as ev
from unknot.graph.analysis import Analysis
from unknot.graph.live import LiveGraph
from unknot.graph.verdict import evaluate


def is_bounded_only(world: World) -> bool:
    """Whether the facts only bound the truth from below: then nobody is accused falsely, but somebody may be missed.

    Two may want the same message or the same room: being served one after the other is more than being served both. One
    may meet another at a rendezvous who needs more than that. Who has a message of a rendezvous in hand may put it back only to
    somebody who stands there.
    """
    asks = [(w, a) for w in world.waits.values() for c in w.needs for a in c.of if a.op is not None]
    wanted = [(a.r, a.op) for _, a in asks]
    if len(wanted) != len(set(wanted)) or any(n > 0 for r, n in world.counts.items() if r.startswith("mailbox")):
        return True
    meetings = [(wait, world.kinds[a.r or ""]) for wait, a in asks if world.kinds[a.r or ""].capacity == 0]
    return any(sum(len(c.of) for c in wait.needs) > 1 or kind.returners is not None for wait, kind in meetings)


class History:
    """One random history, told to the detector and to the oracle alike."""

    def __init__(self, chances: Chances) -> None:
        self.chances = chances
        self.graph, self.world = LiveGraph(), World()
        self.kinds = resources(chances)
        self.number = 0
        opening: list[ev.Event] = [*self.kinds, *(ev.Start(p=pid) for pid in PEOPLE)]
        for one in opening:
            self.happen(one)

    def happen(self, event: ev.Event) -> None:
        self.graph.apply(event)
        self.world.apply(event)

    def go_on(self) -> bool:
        """The next event, if the next choice fits any."""
        self.number += 1
        if self.chances.rarely(10):
            event: ev.Event | None = upheaval(self.chances, self.graph)
        else:
            event = possible(self.chances, self.graph, self.kinds, self.number)
        if event is not None:
            self.happen(event)
        return event is not None


@pytest.mark.timeout(0)
@scenarios()
def test_after_every_event_of_any_history_the_stuck_set_is_that_of_the_exhaustive_search(chances: Chances) -> None:
    history = History(chances)
    while not chances.over:
        if history.go_on():
            history.graph.validate()
            compare(history.graph, history.world)


def compare(graph: LiveGraph, world: World) -> None:
    if not world.waits:
        assert graph.stuck() == set()
        return
    told, truth = graph.stuck(), world.stuck()
    assert told <= truth, f"accused falsely: {told - truth}"
    if not is_bounded_only(world):
        assert told == truth, f"missed: {truth - told}"
    if told:
        verdict = evaluate(graph, 1.0)
        assert set(verdict.stuck) == told == Analysis(graph).stuck
        assert set(verdict.core) <= told
        covered = {pid for one in verdict.findings if one.kind != "timed" for pid in (*one.core, *one.stuck)}
        assert covered == told, "every stuck participant has a root cause"
