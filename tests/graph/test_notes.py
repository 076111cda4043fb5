"""What keeps others without being a standstill, told apart by what the events say."""

from __future__ import annotations

from tests.graph.scenes import Scene, atom
from unknot.graph import events as ev
from unknot.graph.notes import Activity, Note, Patience, notes


def told(scene: Scene, now: float, activity: Activity | None = None) -> tuple[Note, ...]:
    return notes(scene.graph, activity if activity is not None else Activity(), now)


def test_old_waits_for_somebody_who_runs_are_slow_and_young_ones_are_nothing() -> None:
    scene = Scene().start("a", "b", "c").wait("b", atom("p=a")).wait("c", atom("p=b"))
    assert told(scene, 100.0) == ()
    (one,) = told(scene, 130.0)
    assert (one.cause, one.culprits, one.waiters) == ("slow", ("a",), ("b", "c"))


def test_waits_for_the_outside_are_external_and_told_earlier() -> None:
    scene = Scene().start("a", "b").wait("a", atom("ext=approval"), label="human: approval (asked Ada)").wait("b", atom("p=a"))
    assert told(scene, 20.0) == ()
    (one,) = told(scene, 40.0)
    assert (one.cause, one.culprits, one.waiters) == ("external", (), ("a", "b"))
    assert "a waits for human: approval (asked Ada), and nobody in the run can help" in one.text


def test_units_that_running_holders_keep_starve_who_waits_for_them() -> None:
    scene = Scene().resource("slots:s", "slots", capacity=2).start("a", "b", "c").hold("a", "slots:s").hold("b", "slots:s")
    (one,) = told(scene.wait("c", atom("slots:s")), 200.0)
    assert (one.cause, one.culprits) == ("starved", ("a", "b"))
    assert "c waits 3 min for slots s, held by a and b" in one.text


def acts(n: int, *, progress_at: float = 0.0, until: float = 1000.0) -> Activity:
    activity = Activity()
    activity.observe(ev.Progress(p="a#1", t=progress_at))
    for at in range(n):
        activity.observe(ev.Send(p="a#1/worker", r="mbox:m", t=progress_at + (until - progress_at) * (at + 1) / n))
    return activity


def test_much_activity_without_progress_for_long_is_a_livelock() -> None:
    (one,) = told(Scene(), 1000.0, acts(200))
    assert (one.cause, one.culprits) == ("livelock", ("a#1",))
    assert "acted 200 times in the 17 min since its last mark of progress" in one.text


def test_little_activity_recent_progress_or_silence_are_none() -> None:
    assert told(Scene(), 1000.0, acts(20)) == ()
    assert told(Scene(), 1000.0, acts(200, progress_at=900.0)) == ()
    assert told(Scene(), 3000.0, acts(200)) == ()
    quiet = acts(200)
    quiet.observe(ev.End(p="a#1"))
    assert told(Scene(), 1000.0, quiet) == ()


def test_who_never_marks_progress_is_not_judged_by_it() -> None:
    activity = Activity()
    for at in range(500):
        activity.observe(ev.Send(p="a#1", r="mbox:m", t=float(at)))
    assert activity.circling(5000.0, Patience()) == []


def test_what_is_stuck_is_an_incident_and_no_note() -> None:
    scene = Scene().start("a", "b").wait("a", atom("p=b")).wait("b", atom("p=a"))
    assert told(scene, 900.0) == ()
