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
    "f03_one_rank_has_fewer_batches": "To free the others now, break group policy.",
    "f04_one_rank_raises_before_the_barrier": "Look for the first error of trainer/0",
    "f05_lock_held_across_a_gather": "lock gil before rank/1 waits at main.py:20 or lock table before",
    "f06_reader_behind_a_writer": "Release lock weights before agent/a waits at act.py:12.",
    "f06_two_rows_in_two_orders": "Take lock run-1 and lock run-2 in one order everywhere.",
    "f06_two_readers_want_to_write": "take it for writing from the start",
    "f07_an_actor_calls_itself": "judge/0 must not wait for itself at judge.py:19",
    "f07_callback_into_the_blocked_caller": "break the circle at a.py:3, b.py:3 or c.py:3",
    "f09_nested_work_fills_the_pool": "give the inner work a pool of its own",
    "f09_more_than_the_pool_has": "Ask for no more than the 4 units of slots pool at wide.py:3.",
    "f13_dead_producer": "Look for the first error of engine/0 and engine/1; restart them",
    "f13_producer_never_says_it_is_done": "in a `finally`",
    "f16_survivors_are_freed_by_the_fence": "Restart agent/a: its next incarnation fences the dead one, and lock checkpoint is passed on.",
    "f22_forked_child_inherits_a_lock": "do not fork while one is held",
    "healthy_ring_that_deadlines_cut": "It ends by itself when the deadline passes",
    "three_layers_with_a_group_queue": "Release lock weights before trainer/0 waits at train.py:88.",
}


def replayed(name: str) -> str:
    """The text of the first incident of a trace."""
    with (TRACES / f"{name}.jsonl").open("rb") as lines:
        header, events = read(lines)
        play = Replay(header)
        for one in events:
            play.feed(one)
    return play.report().incidents[0].text


@pytest.mark.parametrize(("name", "told"), EXPECTED.items())
def test_the_remedy_is_in_the_text(name: str, told: str) -> None:
    text = replayed(name)
    assert "\nWhat to do: " in text
    assert told in text


def test_who_waits_for_a_read_write_lock_is_told_with_what_it_wants_it_for() -> None:
    text = replayed("f06_reader_behind_a_writer")
    assert "agent/c#1 waits 1 s for lock weights to read (act.py:5), behind agent/b#1." in text
    assert "agent/b#1 waits 2 s for lock weights to write (sync.py:30), held by agent/a#1." in text


def test_a_wait_that_can_be_interrupted_is_named_before_a_restart() -> None:
    scene = Scene().resource("lock:1", "lock").resource("lock:2", "lock").start("a", "b")
    scene.hold("a", "lock:1").hold("b", "lock:2").wait("a", atom("lock:2"), interruptible=True).wait("b", atom("lock:1"))
    (finding,) = evaluate(scene.graph, 9.0).findings
    assert advice(scene.graph, finding).startswith("To free it now, end the wait of a, which holds what the others need.")


def test_a_trainer_is_restarted_last() -> None:
    scene = Scene().start("trainer/0#1", "z#1").wait("trainer/0#1", atom("p=z#1")).wait("z#1", atom("p=trainer/0#1"))
    (finding,) = evaluate(scene.graph, 9.0).findings
    assert "Restarting z frees the others only if" in advice(scene.graph, finding)
