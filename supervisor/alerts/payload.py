"""The `data` of an alert: the incident as JSON, shortened until it fits, with what is left out counted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

import msgspec

from unknot.supervisor.incidents import Action, Cause, Incident, Line

T = TypeVar("T")
Severity = Literal["critical", "error", "warning", "info"]
BODY_LIMIT_BYTES = 20_000

_SEVERITY: dict[Cause, Severity] = {
    "deadlock": "critical",
    "mismatch": "critical",
    "absent": "critical",
    "dead": "error",
    "lost": "error",
    "unresponsive": "error",
    "starved": "error",
    "livelock": "error",
    "checkpoint": "error",
    "slow": "warning",
    "external": "warning",
}


class Trim(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the long parts is kept: items of a list, characters of a text, the stacks or not."""

    items: int
    chars: int
    stacks: bool


_TRIMS = (
    Trim(items=200, chars=2_000, stacks=True),
    Trim(items=200, chars=2_000, stacks=False),
    Trim(items=40, chars=500, stacks=False),
    Trim(items=12, chars=200, stacks=False),
    Trim(items=4, chars=120, stacks=False),
    Trim(items=0, chars=80, stacks=False),
)


def fit(build: Callable[[Trim], bytes]) -> bytes:
    """The fullest body under the limit; the last trim always fits."""
    for trim in _TRIMS:
        body = build(trim)
        if len(body) < BODY_LIMIT_BYTES:
            return body
    return body


def rfc3339(at: float) -> str:
    """Seconds since the epoch as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(at: float | None) -> str | None:
    """As `rfc3339`, and None for None."""
    return None if at is None else rfc3339(at)


def incident_data(incident: Incident, *, line: str, trim: Trim) -> dict[str, Any]:
    """The incident under its first line, shortened by `trim`; `truncated` counts what is missing."""
    cut = _Cutter(trim)
    facts = {
        "id": cut.text(incident.id),
        "cause": incident.cause,
        "kind": incident.kind,
        "state": incident.state,
        "headline": cut.text(incident.headline),
        "resolution": cut.text(incident.resolution),
        "opened_at": rfc3339(incident.opened_at),
        "confirmed_at": moment(incident.confirmed_at),
        "resolved_at": moment(incident.resolved_at),
        "time_to_verdict_s": time_to_verdict_s(incident),
        "culprits": cut.texts("culprits", incident.culprits),
        "victims": cut.texts("victims", incident.victims),
        "core": cut.texts("core", incident.core),
        "stuck": cut.texts("stuck", incident.stuck),
        "lines": [_line(cut, one) for one in cut.some("lines", incident.lines)],
        "actions": [_done(cut, one) for one in cut.some("actions", incident.actions, newest=True)],
        "stacks": _stacks(cut, incident),
    }
    return {
        "summary": cut.text(line),
        "severity": "info" if incident.state == "resolved" else _SEVERITY[incident.cause],
        "run": cut.text(incident.run),
        "incident": facts,
        "truncated": cut.left_out,
    }


def time_to_verdict_s(incident: Incident) -> float | None:
    """Seconds from the last wait of the core to the confirmation, None where either is unknown."""
    if incident.confirmed_at is None or incident.closing_wait_at is None:
        return None
    return round(incident.confirmed_at - incident.closing_wait_at, 3)


def _line(cut: _Cutter, line: Line) -> dict[str, Any]:
    return {
        "participant": cut.text(line.participant),
        "resource": cut.text(line.resource),
        "text": cut.text(line.text),
        "site": cut.text(line.site) if line.site is not None else None,
        "since": rfc3339(line.since),
        "helpers": cut.texts("helpers", line.helpers),
        "culprit": line.culprit,
    }


def _done(cut: _Cutter, action: Action) -> dict[str, Any]:
    return {
        "remedy": action.remedy,
        "target": cut.text(action.target),
        "at": rfc3339(action.at),
        "outcome": action.outcome,
        "note": cut.text(action.note),
    }


def _stacks(cut: _Cutter, incident: Incident) -> dict[str, list[str]]:
    if not cut.trim.stacks:
        cut.count("stacks", len(incident.stacks))
        return {}
    return {cut.text(who): [cut.text(frame) for frame in stack] for who, stack in incident.stacks.items()}


class _Cutter:
    """Shortens by one trim, and counts what it left out."""

    def __init__(self, trim: Trim) -> None:
        self.trim = trim
        self.left_out: dict[str, int] = {}

    def count(self, what: str, number: int) -> None:
        if number > 0:
            self.left_out[what] = self.left_out.get(what, 0) + number

    def some(self, what: str, items: tuple[T, ...], *, newest: bool = False) -> tuple[T, ...]:
        self.count(what, len(items) - self.trim.items)
        if newest:
            return items[max(len(items) - self.trim.items, 0) :]
        return items[: self.trim.items]

    def text(self, text: str) -> str:
        if len(text) <= self.trim.chars:
            return text
        self.count("characters", len(text) - self.trim.chars)
        return f"{text[: self.trim.chars]}…"

    def texts(self, what: str, texts: tuple[str, ...]) -> list[str]:
        return [self.text(text) for text in self.some(what, texts)]
