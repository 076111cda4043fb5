"""Whom a remedy may strike: of the core only, the cheapest that helps, and overtaking before anybody loses work."""

from __future__ import annotations

from tests.graph.chances import Chances
from tests.graph.scenes import Scene, all_of, any_of, atom, demo
from tests.graph.scripts import SCENARIOS, scenarios
from tests.graph.test_oracle import History
from unknot.graph import events as ev
from unknot.graph.finding import Finding
from unknot.graph.verdict import evaluate
from unknot.graph.victims import choices


def only(scene: Scene) -> Finding:
    (found,) = evaluate(scene.graph, 100.0).findings
    return found


def crossed(*roles: str) -> Scene:
    """A ring of locks, one participant of each role."""
    people = [f"{role}/x{number}#1" for number, role in enumerate(roles)]
    scene = Scene().start(*people)
    for number, pid in enumerate(people):
        scene.resource(f"lock:{number}", "lock").hold(pid, f"lock:{number}")
    for number, pid in enumerate(people):
        scene.wait(pid, atom(f"lock:{(number + 1) % len(people)}"), interruptible=True)
    return scene


def test_an_agent_is_struck_before_a_judge_and_a_trainer_rank_last() -> None:
    scene = crossed("trainer", "judge", "agent")
    assert [one.target for one in choices(scene.graph, only(scene))] == ["agent/x2#1", "judge/x1#1", "trainer/x0#1"]


def test_the_same_one_is_not_struck_twice_running_while_another_can_be() -> None:
    scene = crossed("agent", "agent")
    first = choices(scene.graph, only(scene))[0].target
    again = choices(scene.graph, only(scene), spare=[first])
    assert [one.target for one in again][-1] == first
    assert again[0].target != first
    assert [one.target for one in choices(scene.graph, only(scene), tried=[first])] == [again[0].target]


def test_whoever_did_the_least_since_its_last_progress_is_struck_first() -> None:
    scene = crossed("agent", "agent")
    scene.put(ev.Wake(p="agent/x0#1", ticket=1), ev.Progress(p="agent/x0#1", t=50.0))
    scene.wait("agent/x0#1", atom("lock:1"), interruptible=True)
    assert choices(scene.graph, only(scene))[0].target == "agent/x0#1"


def test_a_choice_says_what_it_frees_and_names_the_wait_that_it_ends() -> None:
    scene = crossed("agent", "trainer", "trainer")
    choice = choices(scene.graph, only(scene))[0]
    assert (choice.rung, choice.resource, choice.ticket) == ("interrupt", "lock:0", 1)
    assert choice.frees == ("agent/x0#1", "trainer/x1#1", "trainer/x2#1")
    assert choice.why == "its wait can be ended and gives back lock 0: that frees 2 of 2 others of the knot"


def test_a_reader_that_only_a_queued_writer_keeps_overtakes_before_anybody_is_interrupted() -> None:
    scene = Scene().resource("rwlock:l", "rwlock").start("r1", "r2", "w")
    scene.hold("r1", "rwlock:l", mode="r").wait("w", atom("rwlock:l", mode="w"))
    scene.wait("r2", atom("rwlock:l", mode="r")).wait("r1", atom("p=r2"), interruptible=True)
    first = choices(scene.graph, only(scene))[0]
    assert (first.rung, first.target, first.resource, first.frees) == ("overtake", "r2", "rwlock:l", ("r1", "r2", "w"))
    others = choices(scene.graph, only(scene), ours=lambda _: False)
    assert "overtake" not in {one.rung for one in others}


def test_a_waiter_whose_end_would_free_nobody_else_is_no_choice() -> None:
    scene = Scene().start("a", "b", "c").resource("lock:1", "lock").hold("a", "lock:1")
    scene.wait("c", *all_of(atom("p=a"), atom("p=b"))).wait("b", *all_of(atom("lock:1"), atom("p=c")))
    scene.wait("a", atom("p=b"), interruptible=True)
    assert choices(scene.graph, only(scene)) == ()


def test_the_group_of_the_demo_is_broken_since_no_wait_of_its_core_gives_anything_back() -> None:
    (choice,) = choices(demo().graph, only(demo()))
    assert (choice.rung, choice.target, choice.ticket) == ("break", "coll:policy@g1", None)
    assert choice.frees == only(demo()).core


def test_a_ring_that_a_deadline_will_cut_is_left_to_it() -> None:
    scene = Scene().start("a", "b").wait("a", atom("p=b"), deadline=130.0, interruptible=True).wait("b", atom("p=a"))
    assert choices(scene.graph, only(scene)) == ()


def test_a_knot_with_a_choice_is_freed_by_any_of_its_suppliers() -> None:
    scene = Scene().resource("lock:1", "lock").resource("lock:2", "lock").start("a", "b", "c")
    scene.hold("b", "lock:1").hold("c", "lock:2").wait("a", *any_of(atom("lock:1"), atom("lock:2")))
    scene.wait("b", atom("p=a"), interruptible=True).wait("c", atom("p=a"), interruptible=True)
    assert {one.target for one in choices(scene.graph, only(scene))} == {"b", "c"}


@scenarios(max(20, SCENARIOS // 10))
def test_no_choice_of_any_history_lies_outside_the_core_or_frees_nobody_and_asking_changes_nothing(
    chances: Chances,
) -> None:
    history = History(chances)
    while not chances.over:
        history.go_on()
        graph = history.graph
        for finding in evaluate(graph, 1.0).findings:
            for choice in choices(graph, finding):
                assert choice.rung == "break" or choice.target in finding.core
                assert choice.frees
                assert set(choice.frees) <= set(finding.core)
        graph.validate()
