"""What to do about a standstill is told by its shape, with the names and places of the finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.graph.scenes import Scene, atom
from unknot.graph.advice import advice
from unknot.graph.replay import Replay
from unknot.graph.trace import read
from unknot.graph.verdict import evaluate

TRACES = Path(__file__).resolve().parents[2] / "examples" / "traces"
EXPECTED = {
    "f01_two_policies_in_two_orders": "Issue the operations of group A and group B in the same order on every rank.",
    "f01_order_inside_one_group": "compare train.py:41 and train.py:44",
    "f01_other_reduction": "Make every rank issue the same operation as #5 of group stats: compare stats.py:3 and stats.py:9.",
    "f03_one_rank_has_fewer_batches": "agree on the number of steps",
    "f04_one_rank_raises_before_the_barrier": "Look for the first error of trainer/0",
    "f05_lock_held_across_a_gather": "Release lock gil and lock table before waiting at main.py:20 or ops.cc:71.",
    "f06_two_rows_in_two_orders": "Take lock run-1 and lock run-2 in one order everywhere.",
    "f06_two_readers_want_to_write": "take it for writing from the start",
    "f07_an_actor_calls_itself": "judge/0 must not wait for itself at judge.py:19",
    "f07_callback_into_the_blocked_caller": "break the circle at a.py:3, b.py:3 or c.py:3",
    "f09_nested_work_fills_the_pool": "give the inner work a pool of its own",
    "f09_more_than_the_pool_has": "Ask for no more than the 4 units of slots pool at wide.py:3.",
    "f13_dead_producer": "Look for the first error of engine/0 and engine/1; restart them",
    "f13_producer_never_says_it_is_done": "in a `finally`",
    "f16_survivors_are_freed_by_the_fence": "Fence agent/a",
    "f22_forked_child_inherits_a_lock": "do not fork while one is held",
    "healthy_ring_that_deadlines_cut": "It ends by itself when the deadline passes",
    "three_layers_with_a_group_queue": "Release lock weights before waiting at train.py:88.",
}


@pytest.mark.parametrize(("name", "told"), EXPECTED.items())
def test_the_remedy_is_in_the_text(name: str, told: str) -> None:
    with (TRACES / f"{name}.jsonl").open("rb") as lines:
        header, events = read(lines)
        play = Replay(header)
        for one in events:
            play.feed(one)
    text = play.report().incidents[0].text
    assert "\nWhat to do: " in text
    assert told in text


def test_a_wait_that_can_be_interrupted_is_named_before_a_restart() -> None:
    scene = Scene().resource("lock:1", "lock").resource("lock:2", "lock").start("a", "b")
    scene.hold("a", "lock:1").hold("b", "lock:2").wait("a", atom("lock:2"), interruptible=True).wait("b", atom("lock:1"))
    (finding,) = evaluate(scene.graph, 9.0).findings
    assert advice(scene.graph, finding).startswith("To free it now, end the wait of a, which holds what the others need.")


def test_a_trainer_is_restarted_last() -> None:
    scene = Scene().start("trainer/0#1", "z#1").wait("trainer/0#1", atom("p=z#1")).wait("z#1", atom("p=trainer/0#1"))
    (finding,) = evaluate(scene.graph, 9.0).findings
    assert "restart z." in advice(scene.graph, finding)
