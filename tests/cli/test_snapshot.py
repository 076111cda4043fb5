"""One picture of a run from a real Redis."""

from __future__ import annotations

import pytest

from tests.cli.scene import Scene, deadlock
from unknot.graph.events import Atom, Clause, Wait
from unknot.supervisor.cli.changes import changes
from unknot.supervisor.cli.render_incident import explain_lines
from unknot.supervisor.cli.render_status import status_lines
from unknot.supervisor.cli.snapshot import read_snapshot
from unknot.supervisor.cli.text import ASCII, UNICODE, to_text
from unknot.supervisor.incidents import State
from unknot.supervisor.store.redis_store import RedisStore


def test_a_run_that_never_was_does_not_exist(store: RedisStore) -> None:
    assert not read_snapshot(store).exists


def test_a_run_at_work_is_healthy(store: RedisStore) -> None:
    scene = Scene(store)
    scene.member("trainer/0", incarnation=3)
    scene.member("agent/a", state="done")
    snapshot = read_snapshot(store)
    assert snapshot.exists
    assert snapshot.healthy
    assert [(one.source, one.state) for one in snapshot.members] == [
        ("agent/a#1", "done"),
        ("trainer/0#3", "alive"),
    ]


def test_a_knot_is_seen_with_its_waits_holders_and_incident(store: RedisStore) -> None:
    Scene(store).knot()
    snapshot = read_snapshot(store)
    assert not snapshot.healthy
    assert [(wait.participant, wait.holders) for wait in snapshot.waits] == [
        ("agent/a#1", ("agent/b#1",)),
        ("agent/b#1", ("agent/a#1",)),
    ]
    assert [incident.id for incident in snapshot.open_incidents] == ["inc_a1"]
    assert [view.action.remedy for view in snapshot.actions] == ["interrupt"]


def test_a_dead_member_and_one_past_its_lease_have_failed(store: RedisStore) -> None:
    scene = Scene(store)
    scene.member("agent/dead", state="dead", error="SIGKILL")
    scene.member("agent/silent", beat_ago_s=61)
    snapshot = read_snapshot(store)
    assert [(one.id, one.state, one.failed) for one in snapshot.members] == [
        ("agent/dead", "dead", True),
        ("agent/silent", "silent", True),
    ]
    assert not snapshot.healthy


def test_in_a_run_that_has_ended_nobody_is_missed(store: RedisStore) -> None:
    Scene(store, state="closed").member("agent/a", beat_ago_s=9000)
    assert read_snapshot(store).healthy


def test_a_dead_member_waits_for_nothing(store: RedisStore) -> None:
    scene = Scene(store)
    scene.knot()
    scene.member("agent/a", state="dead")
    assert [wait.participant for wait in read_snapshot(store).waits] == ["agent/b#1"]


def test_only_the_present_incarnation_counts(store: RedisStore) -> None:
    scene = Scene(store)
    scene.knot()
    scene.member("agent/a", incarnation=2)
    assert [wait.participant for wait in read_snapshot(store).waits] == ["agent/b#1"]


@pytest.mark.parametrize("state", ["open", "confirmed", "acting", "resolved"])
def test_an_incident_is_open_until_it_is_resolved(store: RedisStore, state: State) -> None:
    scene = Scene(store)
    scene.incident(deadlock(store.run, at=scene.now, state=state))
    snapshot = read_snapshot(store)
    assert bool(snapshot.open_incidents) is (state != "resolved")
    assert snapshot.healthy is (state == "resolved")


@pytest.mark.parametrize("cause", ["slow", "external"])
def test_slow_is_not_stuck_and_a_person_is_not_a_failure(store: RedisStore, cause: str) -> None:
    scene = Scene(store)
    scene.incident(deadlock(store.run, at=scene.now, cause=cause))
    assert read_snapshot(store).healthy


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(store: RedisStore) -> None:
    scene = Scene(store)
    scene.knot()
    store.command("HSET", store.key("proc", "agent/a#1"), "full", b"\xc1 not msgpack")
    store.command("SET", store.key("incident", "inc_bad"), '{"id": 7}')
    store.command("ZADD", store.key("incidents"), scene.now, "inc_bad")
    store.command("ZADD", store.key("incidents"), scene.now, "inc_gone")
    snapshot = read_snapshot(store)
    assert len(snapshot.problems) == 3
    assert [incident.id for incident in snapshot.incidents] == ["inc_a1"]
    assert [wait.participant for wait in snapshot.waits] == ["agent/b#1"]


def test_many_members_are_all_read(store: RedisStore) -> None:
    scene = Scene(store)
    for number in range(250):
        scene.member(f"agent/{number:03}")
    assert len(read_snapshot(store).members) == 250


def test_a_lock_held_by_somebody_who_publishes_nothing_shows_its_holder(store: RedisStore) -> None:
    scene = Scene(store)
    scene.member("agent/a")
    needs = (Clause(k=1, of=(Atom(r="lock:weights"),)),)
    scene.record("agent/a#1", Wait(p="agent/a#1", t=scene.now - 3, ticket=1, needs=needs))
    store.command("HSET", store.key("lock", "weights"), "holder", "trainer/1#1")
    assert [wait.holders for wait in read_snapshot(store).waits] == [("trainer/1#1",)]


def test_the_picture_holds_who_waits_for_what_and_for_how_long(store: RedisStore) -> None:
    Scene(store).knot()
    text = to_text(status_lines(read_snapshot(store), UNICODE), colour=False)
    assert "⛔ 1 open incident, 0 failed members" in text
    assert "… 42 s  agent/a#1  for lock:y  held by agent/b#1  agents.py:31" in text
    assert "no monitor" in text


def test_the_explanation_holds_sentences_actions_and_the_end(store: RedisStore) -> None:
    scene = Scene(store)
    incident = scene.knot()
    text = to_text(explain_lines(incident, ASCII, now=scene.now), colour=False)
    assert "  1. agent/a#1 waits for lock:y, held by agent/b#1\n" in text
    assert "  2. agent/b#1 waits for lock:x, held by agent/a#1  ! culprit\n" in text
    assert "for 42 s, at agents.py:31, could be ended by agent/b#1" in text
    assert "interrupt agent/b#1  pending" in text
    assert "! still open (confirmed)" in text
    assert "agents.py:9 in run" in text


def test_names_cannot_smuggle_escape_sequences_or_markup_into_the_picture(store: RedisStore) -> None:
    scene = Scene(store)
    scene.member("agent/[bold]x\x1b[2J\nfake", state="dead", error="\x1b]0;title\x07")
    text = to_text(status_lines(read_snapshot(store), UNICODE), colour=False)
    assert "\x1b" not in text
    assert "agent/[bold]x\\x1b[2J\\x0afake#1" in text


def test_changes_are_told_once_each(store: RedisStore) -> None:
    scene = Scene(store)
    scene.member("agent/a")
    first = read_snapshot(store)
    assert [(one.what, one.change) for one in changes(None, first)] == [
        ("run", "live"),
        ("run", "monitor"),
        ("member", "alive"),
    ]
    assert changes(first, read_snapshot(store)) == ()
    scene.knot()
    stuck = read_snapshot(store)
    assert [(one.what, one.id) for one in changes(first, stuck)] == [
        ("member", "agent/b"),
        ("wait", "agent/a#1|7"),
        ("wait", "agent/b#1|7"),
        ("incident", "inc_a1"),
        ("action", "inc_a1|0"),
    ]
    scene.member("agent/b", incarnation=2)
    scene.incident(deadlock(store.run, at=scene.now, state="resolved"))
    free = changes(stuck, read_snapshot(store))
    assert [(one.what, one.change) for one in free] == [
        ("member", "alive"),
        ("wait", "ended"),
        ("incident", "resolved"),
    ]
