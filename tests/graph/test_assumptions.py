"""The stuck set that is kept, and each "what if", against a full reduction; asking changes nothing."""

from __future__ import annotations

from tests.graph.chances import Chances
from tests.graph.messenger import Run
from tests.graph.reference import Reference
from tests.graph.scripts import SCENARIOS, scenarios
from tests.graph.test_oracle import History
from unknot.graph.analysis import Analysis
from unknot.graph.live import LiveGraph


def agrees(graph: LiveGraph) -> None:
    told, truth = Analysis(graph), Reference(graph)
    waiting = truth.waiting.keys()
    assert told.stuck == waiting - truth.live
    assert waiting - told.live_without_deadlines == waiting - truth.live_without_deadlines
    assert waiting - told.live_by_known == waiting - truth.live_by_known
    assert told.unknown == truth.unknown
    assert told.live == truth.live
    assert Analysis(graph).stuck == told.stuck, "asking what if has changed something"
    graph.validate()


@scenarios(max(20, SCENARIOS // 10))
def test_every_assumption_gives_what_a_full_reduction_gives_after_any_history_in_true_order(chances: Chances) -> None:
    history = History(chances)
    while not chances.over:
        if history.go_on():
            agrees(history.graph)


@scenarios(max(20, SCENARIOS // 20))
def test_every_assumption_gives_what_a_full_reduction_gives_when_records_are_late_lost_or_doubled(
    chances: Chances,
) -> None:
    run = Run(chances)
    while not chances.over:
        step = chances.pick("aaacccqhf")
        if step == "a":
            run.act()
        elif step == "c":
            run.carry(faults=True)
        elif step == "f":
            run.tell_all(chances.pick(list(run.wires)))
        elif step == "q":
            run.answer()
        else:
            run.hear()
        agrees(run.seen)


@scenarios(max(20, SCENARIOS // 10))
def test_one_look_after_many_events_gives_the_same_as_a_look_after_each(chances: Chances) -> None:
    history = History(chances)
    while not chances.over:
        for _ in range(chances.number(1, 8)):
            history.go_on()
        history.graph.validate()
