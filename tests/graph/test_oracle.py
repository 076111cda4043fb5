"""The detector against a brute-force search: it never accuses falsely, and misses nothing that is not consumed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.graph.oracle import World
from tests.graph.scripts import PEOPLE, possible, resources, scenarios
from unknot.graph import events as ev
from unknot.graph.analysis import Analysis
from unknot.graph.live import LiveGraph
from unknot.graph.verdict import evaluate


def consumes(world: World) -> bool:
    """Whether two may want the same message or room: then being served one by one is more than being served both."""
    wanted = [(a.r, a.op) for w in world.waits.values() for c in w.needs for a in c.of if a.op is not None]
    return len(wanted) != len(set(wanted)) or any(n > 0 for r, n in world.counts.items() if r.startswith("mailbox"))


@scenarios()
@given(st.data())
def test_after_every_event_of_any_history_the_stuck_set_is_that_of_the_exhaustive_search(data: Any) -> None:
    draw = data.draw
    graph, world = LiveGraph(), World()
    kinds = resources(draw)
    opening: list[ev.Event] = [*kinds, *(ev.Start(p=pid) for pid in PEOPLE)]
    for number in range(draw(st.integers(6, 16))):
        event = possible(draw, graph, kinds, number + 1) if not opening else None
        for one in opening or ([event] if event is not None else []):
            graph.apply(one)
            world.apply(one)
            graph.validate()
        opening = []
        if event is not None:
            compare(graph, world)


def compare(graph: LiveGraph, world: World) -> None:
    told, truth = Analysis(graph).stuck, world.stuck()
    assert told <= truth, f"accused falsely: {told - truth}"
    if not consumes(world):
        assert told == truth, f"missed: {truth - told}"
    verdict = evaluate(graph, 1.0)
    assert set(verdict.stuck) == told
    assert set(verdict.core) <= told
    covered = {pid for one in verdict.findings if one.kind != "timed" for pid in (*one.core, *one.stuck)}
    assert covered == told, "every stuck participant has a root cause"
