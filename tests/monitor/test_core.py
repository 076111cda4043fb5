"""The decisions of a leader, on an injected clock: from a candidate to the end of an incident."""

from __future__ import annotations

import msgspec
import pytest

from tests.monitor.desk import A, B, Desk, atom, crossed, evidence, interrupted, member
from unknot.graph import events as ev
from unknot.recovery.checkpoint_wishes import FailedSave
from unknot.recovery.registration import Crash
from unknot.supervisor.incidents import Action, Incident
from unknot.supervisor.monitor.case import Stage
from unknot.supervisor.monitor.instructions import (
    AskRound,
    BreakGroup,
    CollectStacks,
    InterruptWait,
    Put,
    RestartMember,
)

QUEUE = "trainer/0#1/queue:policy"


@pytest.fixture
def desk() -> Desk:
    return Desk()


def ring_in_a_group(desk: Desk) -> None:
    """Rank 1 wants a lock that rank 0 holds, and rank 0 stands in a collective that rank 1 has not joined."""
    group = {"members": ("trainer/0#1", "trainer/1#1"), "match": ("op",)}
    zero, one = desk.party("trainer/0#1"), desk.party("trainer/1#1")
    for rank in (zero, one):
        rank.declare("coll:policy@g1", "collective", **group)
    zero.hold("lock:w").wait(atom(f"p={QUEUE}"), interruptible=False)
    zero.wait(atom("coll:policy@g1", seq=4), p=QUEUE, interruptible=False)
    zero.extra = [ev.Arrive(p=zero.source, r="coll:policy@g1", seq=4)]
    one.extra = [ev.Arrive(p=one.source, r="coll:policy@g1", seq=3)]
    one.wait(atom("lock:w"), interruptible=True)
    zero.tell()
    one.tell()


# --- to the verdict ---


def test_a_candidate_is_asked_about_in_two_rounds_and_only_then_told(desk: Desk) -> None:
    crossed(desk)
    (ask,) = desk.asks()
    assert ask.sources == (A, B)
    assert desk.opened() == []
    desk.answer(ask)
    second = desk.asks()[-1]
    assert (second.sources, second.round_id > ask.round_id) == ((A, B), True)
    assert desk.opened() == []
    desk.party(A).tell(second.round_id)
    assert desk.opened() == [], "one of two has answered"
    told = desk.party(B).tell(second.round_id)
    assert [type(one) for one in told] == [Put, CollectStacks]
    found = desk.incident()
    assert (found.cause, found.kind, found.state, found.core) == ("deadlock", "cycle", "confirmed", (A, B))
    assert (found.opened_at, found.confirmed_at, found.closing_wait_at) == (1000.0, 1000.0, 1000.0)
    assert isinstance(told[0], Put)
    assert told[0].alert


def test_an_answer_that_says_otherwise_dissolves_the_candidate(desk: Desk) -> None:
    crossed(desk)
    desk.answer()
    ask = desk.asks()[-1]
    desk.party(A).tell(ask.round_id)
    desk.party(B).wake().tell(ask.round_id)
    desk.later(10.0)
    assert desk.opened() == []
    assert len(desk.asks()) == 2


def test_a_candidate_that_was_dropped_and_stands_again_is_asked_about_anew(desk: Desk) -> None:
    crossed(desk)
    desk.party(B).wake().tell()
    desk.party(B).wait(atom("lock:left")).tell()
    desk.confirm()
    assert desk.incident().tickets[B] == 3


def test_a_question_is_asked_again_of_those_who_have_not_answered(desk: Desk) -> None:
    crossed(desk)
    (ask,) = desk.asks()
    desk.party(A).tell(ask.round_id)
    again = [one for one in desk.later(1.9) if isinstance(one, AskRound)]
    assert {one.round_id for one in again} == {ask.round_id}
    assert {one.sources for one in again} == {(B,)}
    assert 2 <= len(again) <= 4
    desk.party(B).tell(ask.round_id)
    desk.answer(desk.asks()[-1])
    assert desk.incident().state == "confirmed"


def test_a_missing_record_keeps_a_candidate_from_being_told(desk: Desk) -> None:
    crossed(desk)
    gap = ev.Record(src=B, n=desk.party(B).n + 2, t=1000.0)
    desk.take(lambda core, now: core.record(gap, now))
    desk.later(5.0)
    assert desk.opened() == []
    desk.party(B).n = gap.n
    desk.party(B).tell()
    desk.tick()
    desk.confirm()
    assert desk.opened("deadlock")


# --- remedies ---


def test_evidence_is_collected_before_any_remedy(desk: Desk) -> None:
    crossed(desk)
    desk.confirm()
    stacks = desk.last(CollectStacks)
    assert sorted(stacks.keys) == [A, B]
    assert desk.given(InterruptWait) == []
    desk.acknowledge([stacks.keys[A]], "MainThread: user.py:1 f")
    assert desk.given(InterruptWait) == []
    desk.acknowledge([stacks.keys[B]], "MainThread: user.py:2 g\nloader: user.py:3 h")
    (order,) = desk.given(InterruptWait)
    assert desk.incident().stacks[B] == ("MainThread: user.py:2 g", "loader: user.py:3 h")
    assert desk.incident().state == "acting"
    assert (order.participant, order.ticket) == (B, desk.incident().tickets[B]), "the youngest wait of equals"


def test_a_process_that_sends_no_stacks_delays_the_remedy_by_half_a_second(desk: Desk) -> None:
    crossed(desk)
    desk.confirm()
    assert desk.later(0.4) == []
    assert desk.later(0.2)
    assert len(desk.given(InterruptWait)) == 1


def test_the_component_is_left_alone_after_a_remedy_and_then_the_next_rung_comes_with_another_target(
    desk: Desk,
) -> None:
    crossed(desk)
    desk.confirm()
    evidence(desk)
    first = interrupted(desk)
    assert desk.incident().actions[-1].outcome == "done"
    assert desk.core.cases[desk.incident().id].stage is Stage.HOLDING
    assert [one for one in desk.later(1.9) if not isinstance(one, AskRound)] == []
    desk.later(0.2)
    second = desk.last(InterruptWait)
    assert (first.participant, second.participant) == (B, A)
    interrupted(desk, "gone")
    assert (desk.incident().actions[-1].outcome, desk.incident().actions[-1].note) == ("failed", f"{A}|1: gone")
    desk.later(2.1)
    assert len(desk.given(InterruptWait)) == 2, "never twice the same target, and there is no third"
    assert desk.core.cases[desk.incident().id].stage is Stage.WAITING
    desk.later(100.0)
    assert len(desk.incident().actions) == 2


def test_a_remedy_that_nobody_acknowledges_has_failed_after_its_time(desk: Desk) -> None:
    crossed(desk)
    desk.confirm()
    evidence(desk)
    desk.later(5.1)
    (action,) = desk.incident().actions
    assert (action.outcome, action.note) == ("failed", "; no answer from 1")


def test_the_incident_is_over_as_soon_as_a_wait_of_its_core_has_ended(desk: Desk) -> None:
    crossed(desk)
    desk.confirm()
    evidence(desk)
    interrupted(desk)
    told = desk.party(B).wake().release("lock:right").tell()
    assert [(put.incident.state, put.alert) for put in told if isinstance(put, Put)] == [("resolved", True)]
    over = desk.incident()
    assert (over.resolved_at, over.resolution) == (1000.0, "freed by interrupt of agent/b#1")
    assert desk.core.cases == {}


def test_a_late_acknowledgement_of_a_closed_incident_is_nothing(desk: Desk) -> None:
    crossed(desk)
    desk.confirm()
    evidence(desk)
    order = desk.last(InterruptWait)
    desk.party(B).wake().release("lock:right").tell()
    assert desk.acknowledge([order.key], "interrupted") == []


def test_a_core_whose_record_is_missing_is_neither_closed_nor_acted_upon(desk: Desk) -> None:
    crossed(desk)
    desk.confirm()
    evidence(desk)
    interrupted(desk)
    lost = ev.Record(src=A, n=desk.party(A).n + 2, t=1000.0)
    desk.take(lambda core, now: core.record(lost, now))
    desk.later(30.0)
    assert desk.incident().state != "resolved"
    assert len(desk.given(InterruptWait)) == 1
    desk.party(A).n = lost.n
    desk.party(A).tell()
    desk.later(2.1)
    assert len(desk.given(InterruptWait)) == 2, "it still stands, so it goes on"


def test_only_who_holds_what_others_need_is_interrupted(desk: Desk) -> None:
    """A owes B a message and holds nothing; to end its wait would free nobody."""
    desk.party(A).declare("mbox:q", "mailbox", senders=("agent/a",), capacity=1).wait(atom("lock:x"))
    desk.party(B).hold("lock:x").declare("mbox:q", "mailbox", senders=("agent/a",), capacity=1)
    desk.party(B).wait(atom("mbox:q", op="recv"))
    desk.party(A).tell()
    desk.party(B).tell()
    desk.confirm()
    evidence(desk)
    assert desk.last(InterruptWait).participant == B
    interrupted(desk)
    desk.later(2.1)
    assert len(desk.given(InterruptWait)) == 1


def test_a_wait_that_cannot_be_interrupted_is_not(desk: Desk) -> None:
    desk.party(A).hold("lock:left").wait(atom("lock:right"), interruptible=True)
    desk.party(B).hold("lock:right").wait(atom("lock:left"), interruptible=False)
    desk.party(A).tell()
    desk.party(B).tell()
    desk.confirm()
    evidence(desk)
    assert desk.last(InterruptWait).participant == A


def test_the_wait_whose_end_frees_most_is_interrupted_though_another_is_newer(desk: Desk) -> None:
    hub, *spokes = (desk.party(f"agent/{name}#1") for name in ("hub", "x", "y"))
    hub.hold("lock:hub").wait(atom("lock:x"), atom("lock:y"))
    for spoke, lock in zip(spokes, ("lock:x", "lock:y"), strict=True):
        spoke.hold(lock).wait(atom("lock:hub"))
    for party in (hub, *spokes):
        party.tell()
    desk.confirm()
    evidence(desk)
    assert desk.last(InterruptWait).participant == "agent/hub#1", "the end of a spoke's wait leaves the hub with the other"
    assert "frees 2 of 2 others" in desk.incident().actions[-1].note


def test_a_group_in_which_a_core_member_stands_is_broken_where_no_interrupt_helps(desk: Desk) -> None:
    ring_in_a_group(desk)
    desk.confirm()
    evidence(desk)
    order = desk.last(BreakGroup)
    assert (order.group, order.generation, sorted(order.keys)) == ("policy", 1, ["trainer/0#1", "trainer/1#1"])
    assert order.incident in order.reason
    assert desk.given(InterruptWait) == [], "rank 1 could be interrupted, but holds nothing that anybody needs"
    desk.acknowledge([order.keys["trainer/0#1"]], "broke 1 links")
    assert desk.incident().actions[-1].outcome == "pending"
    desk.acknowledge([order.keys["trainer/1#1"]], "broke 1 links")
    assert (desk.incident().actions[-1].remedy, desk.incident().actions[-1].outcome) == ("break", "done")


@pytest.mark.parametrize(("policy", "remedies"), [("alert", []), ("interrupt", []), ("break", ["break"])])
def test_policy_bounds_the_ladder(policy: str, remedies: list[str]) -> None:
    desk = Desk(on_deadlock=policy)
    ring_in_a_group(desk)
    desk.confirm()
    evidence(desk)
    desk.later(20.0)
    assert [action.remedy for action in desk.incident("deadlock").actions] == remedies


def test_with_the_alert_policy_people_are_told_and_nothing_is_done() -> None:
    desk = Desk(on_deadlock="alert")
    crossed(desk)
    desk.confirm()
    evidence(desk)
    desk.later(20.0)
    assert desk.given(InterruptWait) == []
    assert [put.alert for put in desk.given(Put)].count(True) == 1
    desk.party(A).wake().release("lock:left").tell()
    assert (desk.incident().state, desk.incident().resolution) == ("resolved", "the waits have ended by themselves")


def test_freed_threads_that_cross_again_at_once_are_left_alone_and_then_the_other_one_yields(desk: Desk) -> None:
    crossed(desk)
    desk.confirm()
    evidence(desk)
    assert interrupted(desk).participant == B
    desk.party(B).wake().release("lock:right").tell()
    desk.party(A).wake().tell()
    desk.later(0.3)
    desk.party(A).wait(atom("lock:right")).tell()
    desk.party(B).hold("lock:right").wait(atom("lock:left")).tell()
    desk.confirm()
    evidence(desk)
    assert len(desk.opened("deadlock")) == 2
    desk.later(1.5)
    assert len(desk.given(InterruptWait)) == 1, "left alone for two seconds from the remedy on"
    desk.later(0.4)
    assert desk.last(InterruptWait).participant == A, "not the same one twice running"


def test_a_ring_that_a_deadline_will_cut_is_told_and_left_to_it(desk: Desk) -> None:
    desk.party(A).hold("lock:left").wait(atom("lock:right"), deadline=1060.0)
    desk.party(B).hold("lock:right").wait(atom("lock:left"))
    desk.party(A).tell()
    desk.party(B).tell()
    desk.confirm()
    evidence(desk)
    desk.later(20.0)
    assert (desk.incident().kind, desk.given(InterruptWait)) == ("timed", [])


# --- earlier leaders ---


def earlier(desk: Desk, **changes: object) -> Incident:
    """The incident as an earlier leader has written it."""
    crossed(desk)
    desk.confirm()
    return msgspec.structs.replace(desk.incident(), **changes)


def test_an_adopted_incident_whose_waits_still_stand_is_continued_where_it_was_left(desk: Desk) -> None:
    done = Action(remedy="interrupt", target=B, at=999.0)
    adopted = earlier(desk, actions=(done,), state="acting")
    heir = Desk()
    heir.take(lambda core, now: core.adopt(adopted, now) or [])
    crossed(heir)
    assert heir.asks() == [], "it is confirmed already"
    heir.later(2.1)
    assert heir.last(InterruptWait).participant == A
    assert heir.incident().id == adopted.id
    before, now = heir.incident().actions
    assert (before.outcome, before.note) == ("failed", "the monitor that began it went away")
    assert now.target == A


def test_an_adopted_incident_whose_waits_have_ended_is_closed_once_the_records_were_read(desk: Desk) -> None:
    adopted = earlier(desk)
    heir = Desk()
    heir.take(lambda core, now: core.adopt(adopted, now) or [])
    heir.party(A).hold("lock:left").tell()
    heir.party(B).tell()
    assert heir.later(1.5) == []
    heir.later(1.0)
    assert (heir.incident().id, heir.incident().state) == (adopted.id, "resolved")
    assert heir.core.cases == {}


def test_the_same_root_cause_has_the_same_id_under_any_leader(desk: Desk) -> None:
    first = earlier(desk)
    heir = Desk()
    crossed(heir)
    heir.confirm()
    assert heir.incident().id == first.id


def test_a_fence_that_was_announced_before_the_lead_was_taken_is_not_waited_for(desk: Desk) -> None:
    desk.core.store_read_up_to(7)
    fence = ev.Record(src="store", n=8, t=1000.0, events=(ev.Fence(member="agent/a", incarnation=2),))
    desk.party(A).hold("lock:x").tell()
    desk.take(lambda core, now: core.record(fence, now))
    assert desk.core.graph.participants[A].how == "fence"


# --- members ---


def test_a_member_that_died_is_told_with_how_it_ended_until_its_next_incarnation(desk: Desk) -> None:
    desk.members(member(A), member(B))
    dead = member(A, state="dead", error="signal 9", ended_at=1000.0)
    desk.members(dead)
    desk.members(dead)
    found = desk.incident()
    assert (found.cause, found.kind, found.culprits, found.state) == ("dead", "member", (A,), "open")
    assert "signal 9" in found.headline
    assert found.advice.startswith("Find the first error in the output of agent/a")
    assert len(desk.given(Put)) == 1
    desk.members(member("agent/a#2"))
    desk.tick()
    assert (desk.incident().state, desk.incident().resolution) == ("resolved", "a new incarnation has registered")


def test_a_restart_whose_process_dies_before_it_is_there_has_failed(desk: Desk) -> None:
    lost = Crash(incarnation=1, at=1000.0, how="signal 9")
    desk.members(member("agent/a#2", state="starting", crash=lost))
    found = desk.incident()
    assert (found.kind, found.state, found.actions[0].outcome) == ("crash", "acting", "pending")
    desk.members(member("agent/a#2", state="dead", crash=lost, error="ActorDiedError", ended_at=1001.0))
    desk.tick()
    ended = next(case for case in desk.given(Put) if case.incident.id == found.id and case.incident.state == "resolved").incident
    assert (ended.resolution, ended.actions[0].outcome) == ("its restart failed", "failed")


def test_who_waits_for_what_a_dead_member_holds_is_told_as_its_victim(desk: Desk) -> None:
    desk.party(A).hold("lock:x").wait(atom("ext=disk"))
    desk.party(A).tell()
    desk.party(B).wait(atom("lock:x")).tell()
    desk.members(member(A, state="dead", error="signal 9"), member(B))
    desk.confirm()
    found = [put.incident for put in desk.given(Put) if put.incident.kind == "orphaned-lock"]
    assert (found[0].culprits, found[0].victims) == ((A,), (B,))


@pytest.mark.parametrize("order", ["end first", "record first"])
def test_a_record_that_is_read_after_the_end_of_its_process_does_not_make_it_run_again(desk: Desk, order: str) -> None:
    desk.party(A).tell()
    dead = member(A, state="dead", error="x")
    last = desk.party(A).hold("lock:x", p=f"{A}/loader")
    if order == "end first":
        desk.members(dead)
        last.tell()
    else:
        last.tell()
        desk.members(dead)
    assert {one.how for one in desk.core.graph.participants.values()} == {"crash"}


def test_records_of_an_incarnation_that_was_replaced_are_not_believed(desk: Desk) -> None:
    desk.members(member("agent/a#2"))
    crossed(desk)
    desk.later(5.0)
    assert (desk.asks(), desk.opened()) == ([], [])
    assert A not in desk.core.graph.participants


@pytest.mark.parametrize("state", ["starting", "alive"])
def test_a_member_that_has_sent_no_record_yet_counts_as_running(desk: Desk, state: str) -> None:
    desk.party(B).declare("mbox:q", "mailbox", senders=("agent/a",), capacity=1).wait(atom("mbox:q", op="recv"))
    desk.members(member(A, state=state), member(B))
    desk.party(B).tell()
    assert desk.core.verdict is not None
    assert (desk.core.verdict.running, desk.core.verdict.stuck) == ((A,), ())


# --- silence ---


def test_who_does_not_answer_a_round_is_unresponsive_and_the_rest_is_not_called_a_deadlock(desk: Desk) -> None:
    crossed(desk)
    desk.party(A).tell(desk.asks()[-1].round_id)
    assert [one for one in desk.later(1.9) if isinstance(one, Put)] == []
    desk.later(0.2)
    found = desk.incident()
    assert (found.cause, found.culprits, found.core) == ("unresponsive", (B,), ())
    desk.later(0.1)
    assert desk.asks()[-1].round_id != desk.asks()[0].round_id, "it is asked about again"
    for _ in range(20):
        desk.party(A).tell(desk.asks()[-1].round_id)
        desk.later(0.5)
    assert len(desk.opened()) == 1, "told once"
    desk.confirm()
    assert desk.incident("unresponsive").state == "resolved" or desk.tick()
    assert desk.incident("unresponsive").resolution == "it answers again"
    assert desk.incident("deadlock").state == "confirmed"


def test_a_process_that_ended_is_not_called_unresponsive(desk: Desk) -> None:
    desk.members(member(A), member(B))
    crossed(desk)
    desk.later(1.0)
    desk.members(member(A), member(B, state="done", beat_at=1000.0))
    desk.confirm()
    desk.later(3.0)
    assert desk.opened("unresponsive") == []
    assert desk.incident("dead").culprits == (B,), "it left with a lock in its hands"


def test_after_one_lease_without_a_heartbeat_nothing_that_was_told_counts_any_more(desk: Desk) -> None:
    desk.members(member(A), member(B))
    crossed(desk)
    desk.later(5.2)
    desk.members(member(A, beat_at=desk.now), member(B, beat_at=1000.0))
    assert desk.core.graph.is_unknown(B)
    assert desk.core.verdict is not None
    assert (desk.core.verdict.stuck, desk.core.verdict.unknown) == ((), (A,))
    desk.party(B).tell()
    desk.members(member(A, beat_at=desk.now), member(B, beat_at=desk.now))
    assert not desk.core.graph.is_unknown(B)


def test_after_two_leases_people_are_told_whoever_waits_and_until_it_is_heard_again(desk: Desk) -> None:
    desk.party(B).tell()
    while desk.now < 1011.0:
        desk.later(0.5)
        desk.members(member(A, beat_at=desk.now), member(B, beat_at=1000.0))
    (name,) = desk.opened()
    found = desk.incident()
    assert (found.cause, found.culprits, found.lines[0].since) == ("unresponsive", (B,), 1000.0)
    assert "has not been heard of for" in found.headline
    assert found.advice.startswith("See what ")
    desk.party(B).tell()
    desk.tick()
    assert (desk.incident().id, desk.incident().state) == (name, "resolved")


def test_a_stopped_process_that_was_told_when_it_did_not_answer_is_replaced_after_two_leases_all_the_same(desk: Desk) -> None:
    driver = "driver/main#1"
    crossed(desk)
    told: list[object] = []
    while desk.now < 1013.0:
        told += desk.later(0.5)
        desk.party(A).tell(desk.asks()[-1].round_id)
        told += desk.members(member(driver, beat_at=desk.now), member(A, beat_at=desk.now), member(B, beat_at=1000.0))
    assert len(desk.opened()) == 1, "told once"
    (order,) = [one for one in told if isinstance(one, RestartMember)]
    assert (order.driver, order.member, order.incident) == (driver, "agent/b", desk.incident().id)
    assert [(a.remedy, a.target, a.outcome) for a in desk.incident().actions] == [("restart", B, "pending")]


def test_time_that_the_monitor_missed_is_held_against_nobody(desk: Desk) -> None:
    desk.members(member(A), member(B))
    crossed(desk)
    desk.now += 30.0
    desk.members(member(A), member(B))
    told = desk.tick()
    assert desk.opened() == []
    assert not desk.core.graph.is_unknown(B)
    assert [one for one in told if isinstance(one, AskRound)] or len(desk.asks()) > 1, "all is asked anew"
    desk.confirm()
    assert desk.opened("deadlock")


def test_a_remedy_gets_the_time_that_the_monitor_missed(desk: Desk) -> None:
    crossed(desk)
    desk.confirm()
    evidence(desk)
    desk.now += 60.0
    desk.tick()
    assert desk.incident().actions[-1].outcome == "pending"
    desk.later(5.1)
    assert desk.incident().actions[-1].outcome == "failed"


def test_a_record_that_was_written_and_never_came_makes_its_source_unknown_and_is_asked_for(desk: Desk) -> None:
    crossed(desk)
    ahead = member(B, records=desk.party(B).n + 1)
    desk.members(member(A), ahead)
    assert not desk.core.graph.is_unknown(B), "it may be on its way"
    told = desk.members(member(A), ahead)
    assert [one.sources for one in told if isinstance(one, AskRound)] == [(B,)]
    assert desk.core.graph.is_unknown(B)
    desk.later(1.0)
    assert desk.opened() == []
    desk.party(B).n += 1
    desk.party(B).tell()
    assert not desk.core.graph.is_unknown(B)
    desk.tick()
    desk.confirm()
    assert desk.opened("deadlock")


# --- checkpoints that were not made ---


def failed_save(seq: int, why: str, since: str = "990.0") -> FailedSave:
    return FailedSave(
        group="policy", generation=1, seq=seq, source="trainer/1#1", why=why, todo="free disk space", since=since
    )  # fmt: skip


def test_a_checkpoint_that_was_not_made_is_one_incident_until_the_next_is_committed(desk: Desk) -> None:
    desk.take(lambda core, now: core.checkpoints([failed_save(3, "No space left on device")], now))
    opened = desk.last(Put).incident
    assert (opened.cause, opened.kind, opened.culprits) == ("checkpoint", "failed", ("trainer/1#1",))
    assert opened.headline == (
        "CHECKPOINT in run r: the checkpoint of group policy before step 3 was not made: No space left on device"
    )
    assert opened.advice == "free disk space"
    assert desk.take(lambda core, now: core.checkpoints([failed_save(3, "No space left on device")], now)) == []
    (put,) = desk.take(lambda core, now: core.checkpoints([failed_save(6, "Disk quota exceeded")], now))
    assert isinstance(put, Put)
    assert (put.incident.id, put.alert, put.incident.opened_at) == (opened.id, False, opened.opened_at)
    assert "before step 6 was not made: Disk quota exceeded" in put.incident.headline
    (over,) = desk.take(lambda core, now: core.checkpoints([], now))
    assert isinstance(over, Put)
    assert (over.incident.id, over.incident.state, over.alert) == (opened.id, "resolved", True)
    assert over.incident.resolution == "a checkpoint was committed"
    desk.take(lambda core, now: core.checkpoints([failed_save(9, "No space left on device", since="999.0")], now))
    assert len(desk.opened()) == 2, "what fails later is another incident"


def test_another_leader_goes_on_with_the_incident_of_a_checkpoint(desk: Desk) -> None:
    desk.take(lambda core, now: core.checkpoints([failed_save(3, "No space left on device")], now))
    opened = desk.last(Put).incident
    heir = Desk(now=desk.now)
    heir.core.adopt(opened, heir.now)
    assert heir.take(lambda core, now: core.checkpoints([failed_save(3, "No space left on device")], now)) == []
    (over,) = heir.take(lambda core, now: core.checkpoints([], now))
    assert isinstance(over, Put)
    assert over.incident.id == opened.id
