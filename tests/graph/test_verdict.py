"""Each kind of standstill, told apart; and what is no standstill."""

from __future__ import annotations

from typing import Any

import pytest

from tests.graph.scenes import DEMO_CORE, Scene, all_of, any_of, atom, demo
from unknot.graph import events as ev
from unknot.graph.finding import Finding, Verdict
from unknot.graph.slow import slow_chains
from unknot.graph.verdict import breakable_groups, evaluate, interruptible_victims


def verdict(scene: Scene, now: float = 100.0) -> Verdict:
    return evaluate(scene.graph, now)


def only(scene: Scene) -> Finding:
    found = verdict(scene).findings
    assert len(found) == 1, found
    return found[0]


def crossed(**more: Any) -> Scene:
    """a holds lock:1 and wants lock:2, b the other way round."""
    scene = Scene().resource("lock:1", "lock").resource("lock:2", "lock").start("a", "b")
    scene.hold("a", "lock:1").hold("b", "lock:2")
    return scene.wait("a", atom("lock:2"), **more).wait("b", atom("lock:1"))


def test_the_demo_is_one_cycle_of_four_with_the_driver_dragged_along() -> None:
    found = only(demo())
    assert (found.cause, found.kind, found.core) == ("deadlock", "cycle", DEMO_CORE)
    assert found.stuck == ("driver/main#1",)
    assert found.closure == DEMO_CORE
    assert breakable_groups(found) == ("coll:policy@g1",)
    assert interruptible_victims(found) == ()
    assert found.mailboxes == ("mbox:raw",)
    assert verdict(demo()).stuck == tuple(sorted((*DEMO_CORE, "driver/main#1")))


def test_two_locks_taken_in_opposite_order_are_a_cycle_that_an_interrupt_can_free() -> None:
    found = only(crossed(interruptible=True))
    assert (found.kind, found.core, found.culprits, found.victims) == ("cycle", ("a", "b"), ("a", "b"), ())
    assert interruptible_victims(found) == ("a",)
    assert found.closing_wait_at == 2.0


def test_the_key_of_a_finding_changes_with_the_waits_of_its_core() -> None:
    scene = crossed()
    before = only(scene).key
    assert only(scene).key == before
    scene.put(ev.Wake(p="a", ticket=1)).wait("a", atom("lock:2"))
    assert only(scene).key != before


def test_a_lock_that_is_not_reentrant_makes_its_holder_wait_for_itself() -> None:
    scene = Scene().resource("lock:1", "lock").hold("a", "lock:1").wait("a", atom("lock:1"))
    assert (only(scene).kind, only(scene).core) == ("self", ("a",))


def test_a_reentrant_lock_lets_its_holder_in() -> None:
    scene = Scene().resource("lock:1", "lock", reentrant=True).hold("a", "lock:1").wait("a", atom("lock:1"))
    assert verdict(scene).stuck == ()


def test_a_choice_among_stuck_suppliers_is_a_knot() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("b", "c")).start("a", "b", "c")
    scene.wait("a", atom("mbox:m", op="recv")).wait("b", atom("p=a")).wait("c", atom("p=a"))
    assert (only(scene).kind, only(scene).core) == ("knot", ("a", "b", "c"))


def test_one_supplier_that_runs_unties_the_knot() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("b", "c")).start("a", "b", "c")
    scene.wait("a", atom("mbox:m", op="recv")).wait("b", atom("p=a"))
    assert verdict(scene).stuck == ()


def test_k_of_n_counts_what_can_still_come() -> None:
    scene = Scene().start("a", "b", "c", "d").wait("b", atom("p=a")).wait("c", atom("p=a"))
    scene.wait("a", *any_of(atom("p=b"), atom("p=c"), atom("p=d"), k=2))
    assert verdict(scene).stuck == ("a", "b", "c")
    scene.put(ev.Wake(p="a", ticket=3)).wait("a", *any_of(atom("p=b"), atom("p=c"), atom("p=d"), k=1))
    assert verdict(scene).stuck == ()


def test_a_deadline_keeps_a_ring_out_of_stuck_and_makes_it_timed() -> None:
    scene = crossed(deadline=130.0)
    assert verdict(scene).stuck == ()
    found = only(scene)
    assert (found.cause, found.kind, found.core, found.deadline) == ("deadlock", "timed", ("a", "b"), 130.0)


def test_a_limit_is_no_escape() -> None:
    assert only(crossed(limit=130.0)).kind == "cycle"


def test_two_rings_are_two_findings() -> None:
    scene = crossed().start("x", "y").wait("x", atom("p=y")).wait("y", atom("p=x"))
    assert [one.core for one in verdict(scene).findings] == [("a", "b"), ("x", "y")]


# --- rights ---


def test_a_mailbox_without_declared_senders_is_a_suspicion_not_a_proof() -> None:
    scene = Scene().resource("mbox:m", "mailbox").wait("a", atom("mbox:m", op="recv"), site="a.py:1")
    told = verdict(scene)
    assert (told.stuck, told.findings) == ((), ())
    assert [(one.participant, one.since, one.external) for one in told.suspects] == [("a", 1.0, False)]


def test_a_human_is_outside_and_never_part_of_a_deadlock() -> None:
    scene = Scene().wait("a", atom("ext=approval"), label="approval by ops").start("b").wait("b", atom("p=a"))
    told = verdict(scene)
    assert told.stuck == ()
    assert [(one.participant, one.label, one.external) for one in told.suspects] == [("a", "approval by ops", True)]


def test_an_external_wait_that_is_closed_is_absent() -> None:
    assert only(Scene().wait("a", atom("ext=gone", closed=True))).kind == "absent"


def test_a_pattern_is_closed_only_together_with_the_driver_that_may_spawn_more() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("agent/*",))
    scene.start("driver/main#1", "trainer/0#1", "agent/a#1")
    scene.wait("trainer/0#1", atom("mbox:m", op="recv")).wait("agent/a#1", atom("p=trainer/0#1"))
    assert verdict(scene).stuck == (), "the driver runs and may start agent/c"
    scene.wait("driver/main#1", atom("p=trainer/0#1"))
    assert only(scene).core == ("agent/a#1", "driver/main#1", "trainer/0#1")


def test_a_member_that_never_started_is_open_unless_the_driver_cannot_go_on() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("agent/late",)).start("driver/main#1", "trainer/0#1")
    scene.wait("trainer/0#1", atom("mbox:m", op="recv"))
    assert verdict(scene).stuck == ()
    assert only(scene.wait("driver/main#1", atom("p=trainer/0#1"))).kind == "cycle"


def test_without_a_known_driver_a_pattern_stays_open() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("agent/*",)).start("trainer/0#1")
    assert len(verdict(scene.wait("trainer/0#1", atom("mbox:m", op="recv"))).suspects) == 1


def test_a_right_of_a_member_is_a_right_of_each_of_its_threads_but_not_of_its_group_queue() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("agent/b",))
    scene.start("agent/b#1", "agent/b#1/queue:g").wait("a", atom("mbox:m", op="recv")).wait("agent/b#1", atom("p=a"))
    assert verdict(scene).stuck == ("a", "agent/b#1")
    assert verdict(scene.start("agent/b#1/loader")).stuck == ()


def test_rights_that_are_declared_again_replace_the_old_ones() -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("b",)).start("b", "c")
    scene.wait("a", atom("mbox:m", op="recv"))
    assert verdict(scene).stuck == ()
    assert only(scene.resource("mbox:m", "mailbox", senders=())).kind == "absent"


# --- who has gone ---


@pytest.mark.parametrize(("how", "kind", "cause"), [("exit", "absent", "absent"), ("crash", "orphan", "dead")])
def test_a_sender_that_is_gone_is_named(how: str, kind: str, cause: str) -> None:
    scene = Scene().resource("mbox:m", "mailbox", senders=("b",)).start("b").end("b", how)
    scene.wait("a", atom("mbox:m", op="recv")).start("c").wait("c", atom("p=a"))
    found = only(scene)
    assert (found.kind, found.cause, found.core, found.stuck) == (kind, cause, ("a",), ("c",))
    assert (found.culprits, found.victims) == (("b",), ("a", "c"))


def test_a_lock_of_a_dead_holder_is_orphaned_until_the_fence_frees_it() -> None:
    scene = Scene().resource("lock:1", "lock").hold("agent/b#1", "lock:1").end("agent/b#1", "crash")
    scene.wait("agent/a#1", atom("lock:1"))
    assert (only(scene).kind, only(scene).culprits) == ("orphaned-lock", ("agent/b#1",))
    scene.put(ev.Fence(member="agent/b", incarnation=2))
    assert verdict(scene).stuck == ()


def test_a_call_to_a_crashed_participant_is_an_orphan_and_to_an_ended_one_is_served() -> None:
    scene = Scene().start("b", "c").wait("a", atom("p=b")).end("b", "crash")
    assert only(scene).kind == "orphan"
    assert verdict(Scene().start("b").wait("a", atom("p=b")).end("b", "exit")).stuck == ()


def test_a_rank_that_left_is_absent_and_all_who_wait_for_it_are_one_finding() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("a", "b", "c")).start("a", "b", "c").end("c")
    for pid in ("a", "b"):
        scene.put(ev.Arrive(p=pid, r="coll:g@g1", seq=3)).wait(pid, atom("coll:g@g1", seq=3))
    found = only(scene)
    assert (found.kind, found.core, found.culprits) == ("absent", ("a", "b"), ("c",))


def test_an_event_whose_setters_are_gone_is_never_set() -> None:
    scene = Scene().resource("event:e", "event", setters=("b",)).start("b").end("b").wait("a", atom("event:e"))
    assert (only(scene).kind, only(scene).cause) == ("never-set", "absent")


def test_an_event_that_was_set_and_cleared_has_let_its_waiters_go() -> None:
    scene = Scene().resource("event:e", "event", setters=()).wait("a", atom("event:e"))
    scene.put(ev.Set(r="event:e"), ev.Clear(r="event:e"))
    assert verdict(scene).stuck == ()
    assert verdict(scene.wait("b", atom("event:e"))).stuck == ("b",)


def test_a_signal_wakes_only_those_who_wait_already() -> None:
    scene = Scene().resource("cond:c", "condition", setters=()).wait("a", atom("cond:c")).wait("b", atom("cond:c"))
    scene.put(ev.Signal(r="cond:c", n=1)).wait("late", atom("cond:c"))
    assert verdict(scene).stuck == ("b", "late")


# --- collectives ---


def test_different_operations_in_one_place_are_a_mismatch_and_the_minority_is_named() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("a", "b", "c")).start("a", "b", "c")
    for pid, op in (("a", "all_reduce"), ("b", "broadcast"), ("c", "all_reduce")):
        scene.put(ev.Arrive(p=pid, r="coll:g@g1", seq=1, op=op)).wait(pid, atom("coll:g@g1", seq=1))
    found = only(scene)
    assert (found.cause, found.kind, found.core, found.culprits) == ("mismatch", "mismatch", ("a", "b", "c"), ("b",))


def test_a_mismatch_is_told_even_if_nobody_waits() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("a", "b"))
    scene.put(ev.Arrive(p="a", r="coll:g@g1", seq=1, op="x"), ev.Arrive(p="b", r="coll:g@g1", seq=1, op="y"))
    told = verdict(scene)
    assert told.findings == ()
    assert [(one.resource, one.seq) for one in told.mismatches] == [("coll:g@g1", 1)]


def test_a_field_that_one_rank_does_not_tell_is_no_mismatch() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("a", "b"))
    scene.put(ev.Arrive(p="a", r="coll:g@g1", seq=1, op="x", shape="4"), ev.Arrive(p="b", r="coll:g@g1", seq=1, op="x"))
    assert verdict(scene).mismatches == ()


def test_a_member_arrives_by_any_of_its_issuing_threads_and_is_missing_while_these_are_stuck() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("trainer/0", "trainer/1"))
    scene.start("trainer/0#1", "trainer/1#1", "trainer/1#1/comm")
    scene.put(ev.Arrive(p="trainer/1#1/comm", r="coll:g@g1", seq=1), ev.Arrive(p="trainer/0#1", r="coll:g@g1", seq=2))
    scene.wait("trainer/0#1", atom("coll:g@g1", seq=2))
    assert verdict(scene).stuck == ()
    assert verdict(scene.wait("trainer/1#1/comm", atom("p=trainer/0#1"))).stuck == ("trainer/0#1", "trainer/1#1/comm")


def test_earlier_operations_of_the_group_come_first() -> None:
    scene = Scene().resource("coll:g@g1", "collective", members=("a", "b")).start("a", "b")
    scene.put(ev.Arrive(p="a", r="coll:g@g1", seq=2), ev.Arrive(p="b", r="coll:g@g1", seq=1))
    scene.wait("a", atom("coll:g@g1", seq=2)).wait("b", atom("coll:g@g1", seq=1))
    assert verdict(scene).stuck == (), "b's operation 1 is complete: it goes on and can issue 2"


# --- units, queues, mailboxes ---


def test_units_are_counted_not_holders() -> None:
    scene = Scene().resource("slots:s", "slots", capacity=4).start("a", "b", "c")
    scene.hold("a", "slots:s", units=2).hold("b", "slots:s", units=2)
    scene.wait("a", atom("slots:s", units=2)).wait("c", atom("slots:s", units=3))
    assert verdict(scene).stuck == (), "b runs and gives back 2, then a"
    assert verdict(scene.wait("b", atom("slots:s", units=1))).stuck == ("a", "b", "c")


def test_a_request_for_more_than_there_is_can_never_be_served() -> None:
    scene = Scene().resource("res:gpu", "reservation", units=8).wait("a", atom("res:gpu", units=9))
    assert only(scene).kind == "absent"


def test_a_reader_waits_behind_a_queued_writer_only_where_the_queue_is_fair() -> None:
    for policy, stuck in (("fifo", ("r1", "r2", "w")), ("writer-pref", ("r1", "r2", "w")), ("any", ())):
        scene = Scene().resource("rwlock:l", "rwlock", policy=policy).start("r1", "r2", "w")
        scene.hold("r1", "rwlock:l", mode="r").wait("w", atom("rwlock:l", mode="w"))
        scene.wait("r2", atom("rwlock:l", mode="r")).wait("r1", atom("p=r2"))
        assert verdict(scene).stuck == stuck, policy


def test_a_holder_goes_ahead_of_waiters_that_it_blocks_unless_the_queue_is_strict() -> None:
    for policy, bypass, stuck in (("fifo", True, ()), ("fifo", False, ("r", "w")), ("fifo-strict", True, ("r", "w"))):
        scene = Scene().resource("rwlock:l", "rwlock", policy=policy).hold("r", "rwlock:l", mode="r")
        scene.wait("w", atom("rwlock:l", mode="w")).wait("r", atom("rwlock:l", mode="r"), bypass=bypass)
        assert verdict(scene).stuck == stuck, (policy, bypass)


def test_a_full_mailbox_waits_for_its_receivers_and_a_closed_one_for_nobody() -> None:
    scene = Scene().resource("mbox:m", "mailbox", capacity=1, senders=("a",), receivers=("b",)).start("a", "b")
    scene.put(ev.Send(p="a", r="mbox:m")).wait("a", atom("mbox:m", op="send")).wait("b", atom("p=a"))
    assert only(scene).core == ("a", "b")
    assert verdict(scene.put(ev.Close(r="mbox:m"))).stuck == ()


def test_a_sender_and_a_receiver_meet_at_a_rendezvous() -> None:
    scene = Scene().resource("mbox:m", "mailbox", capacity=0, senders=("a",), receivers=("b",)).start("a", "b")
    scene.wait("a", atom("mbox:m", op="send"))
    assert verdict(scene).stuck == ()
    assert verdict(scene.wait("b", atom("mbox:m", op="recv"))).stuck == ()


def test_all_of_several_needs_is_stuck_with_any_one_of_them() -> None:
    scene = Scene().start("b", "c").wait("c", atom("p=c"))
    assert verdict(scene.wait("a", *all_of(atom("p=b"), atom("p=c")))).stuck == ("a", "c")


# --- slow ---


def test_a_straggler_is_named_with_everybody_who_waits_for_it() -> None:
    scene = Scene().start("slow", "a", "b").wait("a", atom("p=slow"), site="x.py:1").wait("b", atom("p=a"))
    (chain,) = slow_chains(scene.graph, 50.0, 10.0)
    assert (chain.kind, chain.roots, chain.waiters, chain.by) == ("running", ("slow",), ("a", "b"), "a")
    assert chain.oldest_age_s == 49.0
    assert slow_chains(scene.graph, 5.0, 10.0) == ()


def test_an_old_human_wait_ends_its_chain_outside() -> None:
    scene = Scene().wait("a", atom("ext=approval")).start("b").wait("b", atom("p=a"))
    (chain,) = slow_chains(scene.graph, 50.0, 10.0)
    assert (chain.kind, chain.resource, chain.waiters) == ("external", "approval", ("a", "b"))


def test_what_is_stuck_is_not_called_slow() -> None:
    assert slow_chains(crossed().graph, 500.0, 1.0) == ()
