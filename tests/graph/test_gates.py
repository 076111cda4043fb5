"""The net of gates by itself: random rewiring against a full reduction, and what a change costs."""

from __future__ import annotations

from tests.graph.chances import Chances
from tests.graph.scenes import Scene, any_of, atom
from tests.graph.scripts import SCENARIOS, scenarios
from unknot.graph import events as ev
from unknot.graph.analysis import Analysis
from unknot.graph.gates import OPEN, RUNNING, Net, Node, from_scratch


def right(net: Net, nodes: list[Node]) -> None:
    live = from_scratch(nodes)
    assert net.out == set(nodes) - live
    for node in nodes:
        if node.free:
            assert node.at == 0.0
        elif node.at >= 0.0:
            assert node.left == node.lacks_before(node.at) <= 0, "support that came later counts for nothing"
        else:
            assert node.left == node.lacks() > 0


def rewire(chances: Chances, net: Net, nodes: list[Node]) -> None:
    node = chances.pick(nodes)
    if chances.rarely(3):
        net.rewire(node, 0, (), free=chances.pick([RUNNING, OPEN]))
        return
    ins = tuple(chances.some(nodes, 4))
    weights = {one: chances.number(1, 3) for one in ins} if chances.rarely(3) else None
    most = sum(weights.values()) if weights else len(ins)
    net.rewire(node, chances.number(0, most + 1) if chances.rarely(2) else len(ins), ins, weights=weights)


@scenarios(max(20, SCENARIOS // 2))
def test_whatever_is_rewired_the_net_is_what_a_full_reduction_says(chances: Chances) -> None:
    net, nodes = Net(), [Node(f"p{number}") for number in range(chances.number(3, 9))]
    for node in nodes:
        net.rewire(node, 0, (), free=RUNNING)
    while not chances.over:
        for _ in range(chances.number(1, 3)):
            rewire(chances, net, nodes)
        net.settle()
        right(net, nodes)


@scenarios(max(20, SCENARIOS // 10))
def test_what_if_questions_answer_as_a_full_reduction_does_and_leave_everything_as_it_was(chances: Chances) -> None:
    net, nodes = Net(), [Node(f"p{number}") for number in range(8)]
    for node in nodes:
        net.rewire(node, 0, (), free=RUNNING)
    while not chances.over:
        rewire(chances, net, nodes)
        net.settle()
        before = set(net.out)
        freed = [node for node in chances.some(nodes, 2) if not node.free]
        answer = net.out_with(freed)
        assert answer <= before - set(freed)
        assert net.out == before
        right(net, nodes)
        net.out_without([node for node in nodes if node.free == OPEN], OPEN)
        assert net.out == before
        right(net, nodes)


def test_two_that_hold_each_other_up_fall_together_once_their_support_is_gone() -> None:
    net, a, b, support = Net(), Node("a"), Node("b"), Node("s")
    net.rewire(support, 0, (), free=RUNNING)
    net.rewire(a, 1, (support, b))
    net.rewire(b, 1, (a,))
    net.settle()
    assert net.out == set()
    net.rewire(support, 1, ())
    net.settle()
    assert net.out == {a, b, support}


def test_who_would_be_out_without_its_deadline_is_not_who_has_all_that_it_waits_for() -> None:
    scene = Scene().resource("event:e", "event", setters=()).put(ev.Set(r="event:e")).start("b")
    scene.wait("a", atom("event:e"), deadline=9.0).wait("c", atom("p=c"), deadline=9.0)
    assert {"a", "b", "c"} - Analysis(scene.graph).live_without_deadlines == {"c"}


def held_by_one(waiters: int) -> Scene:
    scene = Scene()
    scene.graph.apply(ev.Resource(r="lock:l", type="lock", policy="any"))
    scene.graph.apply(ev.Hold(p="a", r="lock:l"))
    for number in range(waiters):
        needs = (ev.Clause(k=1, of=(atom("lock:l"),)),)
        scene.graph.apply(ev.Wait(p=f"w{number}", ticket=number, needs=needs))
    scene.put(ev.Start(p="b"), ev.Start(p="c"))
    return scene


def visits(scene: Scene, *events: ev.Event) -> int:
    net = scene.graph.wiring.settle()
    before = net.visits
    for event in events:
        scene.graph.apply(event)
        scene.graph.stuck()
    return net.visits - before


def test_a_lock_that_changes_hands_is_one_changed_gate_however_many_wait_for_it() -> None:
    scene = held_by_one(500)
    assert visits(scene, ev.Release(p="a", r="lock:l"), ev.Hold(p="b", r="lock:l")) == 0
    scene.graph.validate()


def test_a_holder_that_waits_for_somebody_who_runs_does_not_touch_those_behind_it() -> None:
    scene = held_by_one(500)
    wait = ev.Wait(p="a", ticket=9000, needs=(ev.Clause(k=1, of=(atom("p=c"),)),))
    assert visits(scene, wait, ev.Wake(p="a", ticket=9000)) == 0
    scene.put(ev.Resource(r="lock:m", type="lock"), ev.Hold(p="c", r="lock:m"))
    wait = ev.Wait(p="a", ticket=9001, needs=(ev.Clause(k=1, of=(atom("lock:m"),)),))
    assert visits(scene, wait, ev.Wake(p="a", ticket=9001)) == 0
    scene.graph.validate()


def test_a_holder_that_gets_stuck_takes_those_behind_it_with_it_and_nobody_else() -> None:
    scene = held_by_one(500)
    scene.start("x", "y").wait("x", *any_of(atom("p=y"), atom("p=c")))
    wait = ev.Wait(p="a", ticket=9000, needs=(ev.Clause(k=1, of=(atom("p=a"),)),))
    assert visits(scene, wait) <= 2 * 502
    assert len(scene.graph.stuck()) == 501


def test_a_choice_stays_in_as_long_as_one_of_its_suppliers_does() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("b", "c")).start("a", "b", "c", "d")
    scene.wait("a", atom("mbox:m", op="recv")).wait("b", atom("p=a"))
    assert scene.graph.stuck() == set()
    scene.wait("c", atom("p=a"))
    assert scene.graph.stuck() == {"a", "b", "c"}
    scene.put(ev.Send(p="d", r="mbox:m"))
    assert scene.graph.stuck() == set()
