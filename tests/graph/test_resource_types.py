"""One thing after another that can be waited for: what serves it, and what keeps it."""

from __future__ import annotations

import pytest

from tests.graph.scenes import Scene, atom
from unknot.graph import events as ev


def stuck(scene: Scene) -> set[str]:
    return scene.graph.stuck()


def test_a_reentrant_holder_that_asks_for_more_does_not_queue_behind_those_who_wait() -> None:
    scene = Scene().resource("rwlock:l", "rwlock", reentrant=True).start("a", "b", "d")
    scene.hold("a", "rwlock:l", mode="r").hold("d", "rwlock:l", mode="r")
    scene.wait("b", atom("rwlock:l", mode="r"), atom("p=b")).wait("a", atom("rwlock:l", mode="w"))
    assert stuck(scene) == {"b"}, "a gets it once d, which runs, has given it back"


def test_a_table_of_conflicts_says_which_modes_exclude_each_other() -> None:
    table = {"shared": ("x",), "x": ("x",)}
    scene = Scene().resource("rwlock:l", "rwlock", conflicts=table).hold("a", "rwlock:l", mode="shared").start("b")
    scene.wait("a", atom("p=b")).wait("b", atom("rwlock:l", mode="shared"))
    assert stuck(scene) == set()
    scene.put(ev.Wake(p="b", ticket=2)).wait("b", atom("rwlock:l", mode="x"))
    assert stuck(scene) == {"a", "b"}


def test_a_lock_that_another_may_release_is_freed_by_that_one_too() -> None:
    scene = Scene().resource("lock:l", "lock", setters=("c",)).start("a", "b", "c").hold("a", "lock:l")
    scene.wait("a", atom("p=b")).wait("b", atom("lock:l"))
    assert stuck(scene) == set()
    scene.wait("c", atom("p=b"))
    assert stuck(scene) == {"a", "b", "c"}


@pytest.mark.parametrize("kind", ["semaphore", "slots", "reservation"])
def test_units_are_free_again_once_enough_of_those_who_hold_them_can_go_on(kind: str) -> None:
    scene = Scene().resource("u:1", kind, capacity=3).start("a", "b", "c", "d")
    scene.hold("a", "u:1").hold("b", "u:1").hold("c", "u:1").wait("d", atom("u:1", units=2)).wait("a", atom("p=d"))
    assert stuck(scene) == set()
    scene.wait("b", atom("p=d"))
    assert stuck(scene) == {"a", "b", "d"}
    scene.put(ev.Release(p="c", r="u:1"), ev.Release(p="b", r="u:1"))
    assert stuck(scene) == set()


def test_units_that_were_asked_for_first_come_first_where_the_queue_is_fair() -> None:
    scene = Scene().resource("u:1", "slots", capacity=2).start("a", "b", "c").hold("a", "u:1")
    scene.wait("b", atom("u:1", units=2)).wait("c", atom("u:1")).wait("a", atom("p=c"))
    assert stuck(scene) == {"a", "b", "c"}, "one is free, but b asked first and needs two"


def test_who_may_close_a_mailbox_can_end_every_wait_for_it() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("b",), closers=("c",)).start("a", "b", "c")
    scene.wait("a", atom("mbox:m", op="recv")).wait("b", atom("p=a"))
    assert stuck(scene) == set()
    scene.wait("c", atom("p=a"))
    assert stuck(scene) == {"a", "b", "c"}
    scene.put(ev.Close(r="mbox:m"))
    assert stuck(scene) == set()


def test_a_message_that_another_took_is_missed_by_who_counted_on_it() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("b",), receivers=("a", "c")).start("a", "b", "c")
    scene.put(ev.Send(p="b", r="mbox:m")).wait("b", atom("p=a")).wait("a", atom("mbox:m", op="recv"))
    assert stuck(scene) == set()
    scene.put(ev.Recv(p="c", r="mbox:m"))
    assert stuck(scene) == {"a", "b"}


def test_a_wait_outside_of_the_run_that_somebody_inside_can_end_is_his_to_end() -> None:
    scene = Scene().resource("ext:file", "external", setters=("b",)).start("a", "b").wait("a", atom("ext:file"))
    assert stuck(scene) == set()
    scene.wait("b", atom("p=a"))
    assert stuck(scene) == {"a", "b"}
    scene.put(ev.Set(r="ext:file"))
    assert stuck(scene) == set()


def test_a_latch_lets_all_go_at_zero_and_does_not_call_them_back() -> None:
    scene = Scene().resource("latch:w", "latch", count=1, setters=()).wait("a", atom("latch:w"))
    assert stuck(scene) == {"a"}
    scene.put(ev.Add(r="latch:w", n=-1), ev.Add(r="latch:w", n=2))
    assert stuck(scene) == set()
    assert stuck(scene.wait("b", atom("latch:w"))) == {"b"}


def test_a_call_to_somebody_unknown_is_open_until_that_one_is_there_and_stuck() -> None:
    scene = Scene().wait("a", atom("p=b"))
    assert stuck(scene) == set()
    assert stuck(scene.start("b")) == set()
    assert stuck(scene.wait("b", atom("p=a"))) == {"a", "b"}


def test_a_call_to_somebody_who_crashed_is_open_again_once_a_newer_incarnation_may_answer() -> None:
    scene = Scene().start("agent/b#1").wait("a", atom("p=agent/b#1")).end("agent/b#1", "crash")
    assert stuck(scene) == {"a"}
    scene.put(ev.Fence(member="agent/b", incarnation=2))
    assert stuck(scene) == set()


def test_a_member_that_is_named_by_a_group_can_arrive_by_any_of_its_threads_until_one_has_issued() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("t/0#1", "t/1")).start("t/0#1", "t/1#1", "t/1#1/x")
    scene.put(ev.Arrive(p="t/0#1", r="coll:g@g1", seq=0)).wait("t/0#1", atom("coll:g@g1", seq=0))
    scene.wait("t/1#1", atom("p=t/0#1"))
    assert stuck(scene) == set()
    scene.put(ev.Arrive(p="t/1#1/x", r="coll:g@g1", seq=0))
    assert stuck(scene) == set()
    scene.put(ev.Wake(p="t/0#1", ticket=1)).wait("t/0#1", atom("coll:g@g1", seq=1))
    scene.wait("t/1#1/x", atom("p=t/0#1"))
    assert stuck(scene) == {"t/0#1", "t/1#1", "t/1#1/x"}


def test_rights_that_are_declared_anew_count_from_then_on_for_those_who_wait_already() -> None:
    scene = Scene().resource("event:e", "event", setters=("b",)).start("a", "b").wait("a", atom("event:e"))
    scene.wait("b", atom("p=a"))
    assert stuck(scene) == {"a", "b"}
    assert stuck(scene.resource("event:e", "event", setters=("b", "c")).start("c")) == set()


def test_a_policy_that_is_declared_anew_lets_those_go_whom_only_the_queue_kept() -> None:
    scene = Scene().resource("rwlock:l", "rwlock").start("r1", "r2", "w").hold("r1", "rwlock:l", mode="r")
    scene.wait("w", atom("rwlock:l", mode="w")).wait("r2", atom("rwlock:l", mode="r")).wait("r1", atom("p=r2"))
    assert stuck(scene) == {"r1", "r2", "w"}
    assert stuck(scene.resource("rwlock:l", "rwlock", policy="any")) == set()


def test_what_happened_between_two_looks_is_not_missed() -> None:
    scene = Scene().resource("lock:1", "lock").start("a").wait("a", atom("lock:1"))
    assert stuck(scene) == set()
    again = ev.Wait(p="a", ticket=2, needs=(ev.Clause(k=1, of=(atom("lock:1"),)),))
    for event in (ev.Wake(p="a", ticket=1), ev.Hold(p="a", r="lock:1"), again):
        scene.graph.apply(event)
    assert stuck(scene) == {"a"}, "it took the lock that it now waits for, and nobody looked in between"


def test_a_participant_that_is_named_twice_by_a_group_arrives_for_both_names() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("a#1", "a", "b#1")).start("a#1", "a#1/t", "b#1", "c#1")
    scene.wait("c#1", atom("coll:g@g1", seq=0)).put(ev.Arrive(p="a#1", r="coll:g@g1", seq=0))
    scene.wait("a#1", atom("p=c#1")).wait("a#1/t", atom("p=c#1"))
    assert stuck(scene) == set(), "only b has not arrived, and it runs"
