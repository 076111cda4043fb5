"""Two threads of one real process and their locks, seen by a real monitor."""

from __future__ import annotations

from tests.proof.workers import Call, Scene, Worker, until
from tests.recorder.members import stream
from unknot.graph.events import Hold, Wait
from unknot.supervisor.monitor.shell import Monitor

X, Y = "agent/a#1/x", "agent/a#1/y"


def cross(worker: Worker) -> tuple[Call, Call]:
    """Each thread holds the lock that the other one wants."""
    worker.call("traced", "left", thread="x")
    worker.call("traced", "right", thread="y")
    return worker.begin("traced", "right", thread="x"), worker.begin("traced", "left", thread="y")


def test_two_threads_that_take_two_locks_in_opposite_order_are_found_with_both_places(scene: Scene) -> None:
    (worker,) = scene.workers("agent/a")
    scene.watch(on_deadlock="alert")
    cross(worker)
    found = scene.incident("deadlock")
    assert (found.kind, found.core, found.culprits) == ("cycle", (X, Y), (X, Y))
    assert {line.participant: line.resource for line in found.lines} == {
        X: "lock:right@agent/a#1",
        Y: "lock:left@agent/a#1",
    }
    assert all(line.site is not None and line.site.startswith("proof/worker.py:") for line in found.lines)
    until(lambda: scene.incident("deadlock").stacks.get("agent/a#1"), "the evidence")
    stacks = "\n".join(scene.incident("deadlock").stacks["agent/a#1"])
    assert "x: " in stacks
    assert "y: " in stacks


def test_one_of_the_two_is_interrupted_and_the_other_one_goes_on(scene: Scene) -> None:
    (worker,) = scene.workers("agent/a")
    scene.watch(on_deadlock="break")
    calls = cross(worker)
    until(lambda: any(call.done for call in calls))
    (freed,) = (call for call in calls if call.done)
    (other,) = (call for call in calls if not call.done)
    assert freed.error() == "DeadlockInterrupted"
    assert "was ended to free a deadlock" in freed.answer()["text"]
    name, thread = ("left", "x") if freed is calls[0] else ("right", "y")
    worker.call("untraced", name, thread=thread)
    other.result()
    ended = scene.incident("deadlock", state="resolved")
    (action,) = ended.actions
    assert (action.remedy, action.target, action.outcome) == ("interrupt", f"agent/a#1/{thread}", "done")
    assert ended.resolution.startswith("freed by interrupt of")


def test_a_holder_that_is_slow_is_no_deadlock(scene: Scene) -> None:
    (worker,) = scene.workers("agent/a")
    watching = scene.watch()
    worker.call("traced", "left", thread="x")
    worker.begin("run", "x done", thread="x")
    waiting = worker.begin("traced", "left", thread="y")
    until(lambda: watching.core.graph.ticket(Y) is not None)
    state = watching.core.graph.resources["lock:left@agent/a#1"]
    until(lambda: X in state.holders, "the holder is told")
    assert watching.core.verdict is not None
    assert watching.core.verdict.stuck == ()
    worker.call("go", "x done", thread="hand")
    worker.call("untraced", "left", thread="x")
    waiting.result()
    assert scene.incidents() == []


def test_a_lock_that_another_thread_released_once_is_never_proof(scene: Scene) -> None:
    """The picture of a deadlock, but somebody may still release the lock: the run has seen that happen."""
    (worker,) = scene.workers("agent/a")
    watching = scene.watch()
    worker.call("traced", "left", thread="x")
    worker.call("untraced", "left", thread="z")
    calls = cross(worker)
    until(lambda: watching.core.graph.ticket(X) is not None and watching.core.graph.ticket(Y) is not None)
    last = _absorbed_after(scene, watching.monitor)
    assert [(e.p, e.r) for e in last if isinstance(e, Hold)] == [(Y, "lock:right@agent/a#1")]
    assert sorted(e.p for e in last if isinstance(e, Wait)) == [X, Y]
    assert scene.incidents() == []
    worker.call("untraced", "left", thread="z")
    calls[1].result()


def _absorbed_after(scene: Scene, monitor: Monitor) -> tuple[object, ...]:
    """The events of the process' last record, once the monitor has read it."""
    record = stream(scene.store)[-1]
    until(lambda: monitor._core is not None and monitor._core.graph.absorbed(record.src) >= record.n)
    return tuple(record.events)
