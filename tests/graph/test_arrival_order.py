"""Whatever order records arrive in, nothing false is confirmed, and what is true is confirmed in the end."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.graph.messenger import Run
from tests.graph.scripts import SCENARIOS, scenarios
from unknot.graph.verdict import evaluate


def go(data: Any, *, faults: bool) -> Run:
    run = Run(data.draw)
    for step in data.draw(st.lists(st.sampled_from("aaaaccccqh"), min_size=10, max_size=40)):
        if step == "a":
            run.act()
        elif step == "c":
            run.carry(faults=faults)
        elif step == "q":
            run.answer()
        else:
            run.hear()
    return run


@scenarios(max(20, SCENARIOS // 3))
@given(st.data())
def test_no_interleaving_of_the_records_confirms_a_set_that_is_not_stuck(data: Any) -> None:
    go(data, faults=False)


@scenarios(max(20, SCENARIOS // 3))
@given(st.data())
def test_no_loss_repetition_or_overtaking_confirms_a_set_that_is_not_stuck(data: Any) -> None:
    go(data, faults=True)


@scenarios(max(20, SCENARIOS // 4))
@given(st.data())
def test_once_everything_has_arrived_every_finding_is_confirmed_and_true(data: Any) -> None:
    run = go(data, faults=True)
    run.settle()
    found = evaluate(run.seen, 0.0).findings
    assert {one.key for one in found} <= {one.key for one in run.confirmed}
    for one in found:
        run.judge(one)
