"""What an alert says."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.alerts.incidents import AT, HEADLINE, action, incident
from unknot.supervisor.alerts.alert import AlertType, alert_id, detected, resolved, trial_alert
from unknot.supervisor.alerts.payload import BODY_LIMIT_BYTES
from unknot.supervisor.incidents import Cause, Line


def test_the_body_is_type_timestamp_and_data() -> None:
    body = json.loads(detected(incident(), at=AT).body)
    assert sorted(body) == ["data", "timestamp", "type"]
    assert body["type"] == "deadlock.detected"
    assert body["timestamp"] == "2026-09-21T14:13:20.000Z"
    assert body["data"]["run"] == "ppo-17"
    assert body["data"]["severity"] == "critical"
    assert body["data"]["truncated"] == {}


def test_the_first_line_is_the_headline_and_what_was_done() -> None:
    before = json.loads(detected(incident(), at=AT).body)["data"]["summary"]
    assert before == f"{HEADLINE}. Action: none yet."
    acted = incident(actions=(action(1), action(2)))
    after = json.loads(detected(acted, at=AT).body)["data"]["summary"]
    assert after == f"{HEADLINE}. Action: interrupt agent/b#1 (done, attempt 2)."


def test_a_resolved_alert_says_how_long_it_stood_and_how_it_ended() -> None:
    over = incident(
        state="resolved", resolved_at=AT, resolution="agent/b#1 was interrupted.", actions=(action(),)
    )
    data = json.loads(resolved(over, at=AT).body)["data"]
    assert data["summary"] == (
        f"RESOLVED after 42 s (agent/b#1 was interrupted): {HEADLINE}. Action: interrupt agent/b#1 (done)."
    )
    assert data["severity"] == "info"


def test_the_incident_is_told_with_utc_times_and_seconds() -> None:
    told = json.loads(detected(incident(), at=AT).body)["data"]["incident"]
    assert told["id"] == "inc_0001"
    assert told["opened_at"] == "2026-09-21T14:12:38.500Z"
    assert told["resolved_at"] is None
    assert told["time_to_verdict_s"] == 0.75
    assert [line["resource"] for line in told["lines"]] == ["lock:replay", "mbox:raw"]
    assert told["stacks"] == {"agent/b#1": ["agents.py:31 in act"]}


@pytest.mark.parametrize(
    ("cause", "standing", "over"),
    [
        ("deadlock", "deadlock.detected", "deadlock.resolved"),
        ("dead", "agent.lost", "stall.resolved"),
        ("checkpoint", "checkpoint.failed", "stall.resolved"),
        ("mismatch", "stall.detected", "stall.resolved"),
        ("slow", "stall.detected", "stall.resolved"),
    ],
)
def test_the_type_follows_from_the_cause(cause: Cause, standing: str, over: str) -> None:
    assert detected(incident(cause=cause), at=AT).type == standing
    assert resolved(incident(cause=cause), at=AT).type == over


def test_every_cause_has_a_type_and_a_severity() -> None:
    for cause in get_args(Cause):
        alert = detected(incident(cause=cause), at=AT)
        assert alert.type in get_args(AlertType)
        assert json.loads(alert.body)["data"]["severity"] in ("critical", "error", "warning", "info")


def test_one_incident_has_one_id_for_standing_and_one_for_being_over() -> None:
    standing, again = detected(incident(), at=AT), detected(incident(actions=(action(),)), at=AT + 9)
    assert standing.id == again.id != resolved(incident(), at=AT).id
    assert detected(incident(run="other"), at=AT).id != standing.id


def test_an_id_holds_no_dot_whatever_the_run_is_called() -> None:
    assert "." not in alert_id("run.1", "inc.2", "deadlock.detected")


def test_a_test_alert_is_marked_and_has_an_id_of_its_own() -> None:
    one, two = trial_alert("r", at=AT, nonce="1"), trial_alert("r", at=AT, nonce="2")
    assert one.type == "alert.test"
    assert one.id != two.id
    assert json.loads(one.body)["data"]["test"] is True


def test_what_does_not_fit_is_left_out_and_counted() -> None:
    lines = tuple(
        Line(participant=f"agent/{n}#1", resource=f"lock:{n}", text="x" * 300, helpers=(f"agent/{n + 1}#1",))
        for n in range(1000)
    )
    alert = detected(incident(lines=lines, stacks={"a": ("frame",) * 9000}), at=AT)
    data = json.loads(alert.body)["data"]
    assert len(alert.body.encode()) < BODY_LIMIT_BYTES
    assert data["truncated"]["lines"] == 1000 - len(data["incident"]["lines"])
    assert data["truncated"]["stacks"] == 1
    assert data["summary"].startswith("DEADLOCK in run ppo-17: ")


texts = st.text(max_size=400)
names = st.lists(texts, max_size=100).map(tuple)


@settings(max_examples=20, deadline=None)
@given(texts, texts, names, st.dictionaries(texts, names, max_size=3))
def test_a_body_fits_whatever_the_incident_holds(
    headline: str, run: str, stuck: tuple[str, ...], stacks: dict[str, tuple[str, ...]]
) -> None:
    lines = tuple(Line(participant=who, resource=who, text=who * 9, helpers=stuck) for who in stuck)
    told = incident(headline=headline * 20, run=run, stuck=stuck, core=stuck, lines=lines, stacks=stacks)
    for alert in (detected(told, at=AT), resolved(told, at=AT)):
        assert len(alert.body.encode()) < BODY_LIMIT_BYTES
        assert json.loads(alert.body)["data"]["truncated"] is not None
