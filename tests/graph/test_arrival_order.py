"""Whatever order records arrive in, nothing false is confirmed, and what is true is confirmed in the end."""

from __future__ import annotations

from tests.graph.chances import Chances
from tests.graph.messenger import Run
from tests.graph.scripts import SCENARIOS, scenarios
from unknot.graph.verdict import evaluate


def go(chances: Chances, *, faults: bool) -> Run:
    run = Run(chances)
    while not chances.over:
        step = chances.pick("aaaaccccqh")
        if step == "a":
            run.act()
        elif step == "c":
            run.carry(faults=faults)
        elif step == "q":
            run.answer()
        else:
            run.hear()
    return run


@scenarios(max(20, SCENARIOS // 16))
def test_no_interleaving_of_the_records_confirms_a_set_that_is_not_stuck(chances: Chances) -> None:
    go(chances, faults=False)


@scenarios(max(20, SCENARIOS // 16))
def test_no_loss_repetition_or_overtaking_confirms_a_set_that_is_not_stuck(chances: Chances) -> None:
    go(chances, faults=True)


@scenarios(max(20, SCENARIOS // 40))
def test_once_everything_has_arrived_every_finding_is_confirmed_and_true(chances: Chances) -> None:
    run = go(chances, faults=True)
    run.settle()
    found = evaluate(run.seen, 0.0).findings
    assert {one.key for one in found} <= {one.key for one in run.confirmed}
    for one in found:
        run.judge(one)
