"""Waits that are old and no deadlock: who is waited for, and what nobody wants to hear of."""

from __future__ import annotations

from typing import Any

from tests.monitor.desk import A, B, Desk, atom, member
from unknot.graph import events as ev
from unknot.supervisor.members import STARTING
from unknot.supervisor.monitor.instructions import CollectStacks, Put

C, DRIVER = "agent/c#1", "driver/main#1"


def desk_of(*sources: str, progress: bool = True, **config: Any) -> Desk:
    """Processes that have begun to work."""
    desk = Desk(**{"slow_after_s": 60.0, "external_after_s": 30.0, **config})
    for source in sources:
        party = desk.party(source)
        party.extra = [ev.Progress(p=source, t=desk.now, n=1)] if progress else []
        party.tell()
    return desk


def test_a_straggler_is_named_with_everybody_behind_it_and_where_it_is_now() -> None:
    desk = desk_of(A, B, C)
    desk.party(A).hold("lock:x").tell()
    desk.party(B).hold("lock:y").wait(atom("lock:x")).tell()
    desk.party(C).wait(atom("lock:y")).tell()
    desk.later(59.0)
    assert desk.opened() == []
    desk.later(3.0)
    found = desk.incident()
    assert (found.cause, found.culprits, found.victims) == ("slow", (A,), (B, C))
    assert "slow, not stuck" in found.lines[0].text
    assert found.advice.startswith("See where agent/a is now, by its stack.")
    stacks = desk.last(CollectStacks)
    assert list(stacks.keys) == [A]
    desk.acknowledge(stacks.keys.values(), "MainThread: rollout.py:7 think < rollout.py:1 run")
    assert any("is now at rollout.py:7 think" in line.text for line in desk.core.cases[found.id].incident.lines)
    desk.later(30.0)
    assert len(desk.opened()) == 1


def test_a_straggler_that_lets_go_ends_its_incident() -> None:
    desk = desk_of(A, B, slow_after_s=10.0)
    desk.party(A).hold("lock:x").tell()
    desk.party(B).wait(atom("lock:x")).tell()
    desk.later(13.0)
    assert desk.incident().state == "open"
    desk.party(A).release("lock:x").tell()
    desk.party(B).wake().tell()
    desk.later(15.0)
    assert (desk.incident().state, desk.incident().resolution) == ("resolved", "the wait has ended")


def test_before_any_progress_was_marked_everything_may_take_longer() -> None:
    desk = desk_of(A, B, progress=False)
    desk.party(A).hold("lock:x").tell()
    desk.party(B).wait(atom("lock:x")).tell()
    desk.later(100.0)
    assert desk.opened() == []
    desk.later(30.0)
    assert desk.opened("slow")


def test_a_thread_of_a_process_that_has_made_progress_has_begun_too() -> None:
    desk = desk_of(A, B)
    desk.party(A).hold("lock:x").tell()
    desk.party(B).wait(atom("lock:x"), p=f"{B}/loader").tell()
    desk.later(62.0)
    assert desk.incident("slow").victims == (f"{B}/loader",)


def test_the_drivers_own_wait_for_its_members_is_what_drivers_do() -> None:
    desk = desk_of(DRIVER, A)
    desk.party(DRIVER).wait(atom(f"p={A}")).tell()
    desk.later(1000.0, step_s=0.5)
    assert desk.opened() == []


def test_a_person_who_is_waited_for_is_told_and_left_in_peace() -> None:
    desk = desk_of(A)
    desk.party(A).wait(atom("ext=approval"), interruptible=False, label="human: approval (asked Ada)").tell()
    desk.later(29.0)
    assert desk.opened() == []
    desk.later(2.0)
    found = desk.incident()
    assert (found.cause, found.victims) == ("external", (A,))
    assert "human: approval (asked Ada)" in found.headline
    assert found.advice.startswith("Answer human: approval (asked Ada), or give the call")
    desk.later(100.0)
    assert len([put for put in desk.given(Put) if put.alert]) == 1
    desk.party(A).wake().tell()
    desk.later(2.0)
    assert (desk.incident().state, desk.incident().resolution) == ("resolved", "the outside answered")


def test_a_process_that_is_being_started_is_slow_at_most_and_has_more_time() -> None:
    desk = desk_of(DRIVER, A)
    desk.party(A).wait(atom(f"ext={STARTING}agent/z")).tell()
    desk.later(110.0)
    assert desk.opened() == []


def test_waits_that_are_adopted_from_an_earlier_leader_go_on_under_their_id() -> None:
    desk = desk_of(A)
    desk.party(A).wait(atom("ext=approval"), label="human: approval").tell()
    desk.later(31.5)
    adopted = desk.incident()
    heir = Desk(now=desk.now, external_after_s=30.0)
    heir.take(lambda core, now: core.adopt(adopted, now) or [])
    heir.take(lambda core, now: core.record(desk.party(A).record(), now))
    heir.later(20.0)
    assert heir.opened() == [adopted.id] or heir.opened() == []
    assert set(heir.core.cases) == {adopted.id}
    heir.take(lambda core, now: core.record(desk.party(A).wake().record(), now))
    heir.later(2.0)
    assert (heir.incident().id, heir.incident().state) == (adopted.id, "resolved")


def test_an_adopted_death_stays_open_until_its_member_comes_again() -> None:
    desk = desk_of(A)
    dead = member(A, state="dead", error="signal 9")
    desk.members(dead)
    heir = Desk()
    adopted = desk.incident()
    heir.take(lambda core, now: core.adopt(adopted, now) or [])
    heir.members(dead)
    heir.later(30.0)
    assert set(heir.core.cases) == {adopted.id}
    heir.members(member("agent/a#2", beat_at=heir.now))
    heir.tick()
    assert heir.core.cases == {}


def test_units_that_a_running_member_keeps_starve_those_who_wait_for_them() -> None:
    desk = desk_of(A, B, slow_after_s=10.0)
    desk.party(A).declare("slots:env", "slots", capacity=1).hold("slots:env").tell()
    desk.party(B).declare("slots:env", "slots", capacity=1).wait(atom("slots:env")).tell()
    desk.later(13.0)
    found = desk.incident()
    assert (found.cause, found.culprits, found.state) == ("starved", (A,), "open")
    assert found.headline.startswith("STARVED in run r: agent/b waits for agent/a")
    assert "gives nothing back: starved, not stuck" in found.lines[0].text
    assert found.advice == "Have agent/a give units of slots env back sooner, or let there be more of them."
    desk.party(A).release("slots:env").tell()
    desk.party(B).wake().tell()
    desk.later(15.0)
    assert desk.incident().resolution == "the wait has ended"


def test_who_runs_and_marks_no_progress_any_more_is_told_with_where_it_is_until_it_marks_some() -> None:
    desk = desk_of(A, livelock_after_s=60.0)

    def look(n: int, at: float) -> None:
        desk.later(1.0)
        desk.members(member(A, beat_at=desk.now, progress_n=n, progress_at=at))

    for n in range(1, 6):
        look(n, desk.now)
    last = desk.now - 1.0
    while desk.now < last + 59.0:
        look(5, last)
    assert desk.opened() == []
    look(5, last)
    look(5, last)
    found = desk.incident()
    assert (found.cause, found.culprits, found.state) == ("livelock", (A,), "open")
    assert found.lines[0].text.startswith("agent/a#1 runs, waits for nothing, and has marked no progress for 6")
    assert "(5 marks until then, one every 1 s before)" in found.lines[0].text
    assert found.advice.startswith("See where agent/a is now")
    stacks = desk.last(CollectStacks)
    desk.acknowledge(stacks.keys.values(), "MainThread: retry.py:7 send < retry.py:1 run")
    assert any("is now at retry.py:7 send" in line.text for line in desk.core.cases[found.id].incident.lines)
    look(5, last)
    assert len(desk.opened()) == 1
    look(6, desk.now)
    assert (desk.incident().state, desk.incident().resolution) == ("resolved", "it makes progress again, or has ended")


def test_time_spent_waiting_is_no_circle_also_not_in_short_waits_one_after_the_other() -> None:
    desk = desk_of(A, B, livelock_after_s=20.0, external_after_s=1000.0)
    begun = desk.now
    desk.party(A).wait(atom("ext=answer"), interruptible=False).tell()
    while desk.now < begun + 60.0:
        if int(desk.now - begun) % 2:
            desk.party(B).wait(atom("ext=poll"), interruptible=False).tell()
        else:
            desk.party(B).wake().tell()
        desk.later(1.0)
        desk.members(*(member(one, beat_at=desk.now, progress_n=1, progress_at=begun) for one in (A, B)))
    assert desk.opened() == []


def test_a_new_leader_tells_a_circle_only_of_time_that_it_has_seen_and_keeps_one_that_was_told_before() -> None:
    first = desk_of(A, livelock_after_s=20.0)
    begun = first.now
    while first.now < begun + 25.0:
        first.later(1.0)
        first.members(member(A, beat_at=first.now, progress_n=3, progress_at=begun))
    told = first.incident()
    assert (told.cause, told.state) == ("livelock", "open")

    second = desk_of(A, B, livelock_after_s=20.0)
    led, before = second.now, second.now - 25.0
    second.core.adopt(told, led)

    def look(later_s: float, n: int = 3) -> None:
        until = second.now + later_s
        while second.now < until:
            second.later(1.0)
            a = member(A, beat_at=second.now, progress_n=n, progress_at=before if n == 3 else second.now)
            second.members(a, member(B, beat_at=second.now, progress_n=3, progress_at=before))

    look(19.0)
    assert [put for put in second.given(Put) if put.alert] == [], "A's is known and stands, and of B nothing was seen before"
    look(3.0)
    assert [put.incident.culprits for put in second.given(Put) if put.alert] == [(B,)]
    look(1.0, n=4)
    ended = [put.incident.id for put in second.given(Put) if put.incident.state == "resolved"]
    assert ended == [told.id]


def test_who_has_never_marked_progress_stands_in_an_old_wait_or_usually_takes_as_long_is_no_circle() -> None:
    desk = desk_of(A, B, C, livelock_after_s=60.0, slow_after_s=10_000.0, external_after_s=10_000.0)
    desk.party(B).hold("lock:x").tell()
    desk.party(A).wait(atom("lock:x")).tell()
    begun = desk.now
    while desk.now < begun + 150.0:
        desk.later(1.0)
        desk.members(
            member(A, beat_at=desk.now, progress_n=9, progress_at=begun),
            member(B, beat_at=desk.now),
            member(C, beat_at=desk.now, progress_n=1 + int(desk.now - begun) // 30, progress_at=begun + (desk.now - begun) // 30 * 30),
        )
    assert desk.opened() == []
    for _ in range(100):
        desk.later(1.0)
        calm = [member(one, beat_at=desk.now) for one in (A, B)]
        desk.members(*calm, member(C, beat_at=desk.now, progress_n=6, progress_at=begun + 150.0))
    assert desk.opened() == [], "it usually takes 30 s, so 100 s are not ten times as long"
