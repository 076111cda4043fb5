"""An alert: its type, its id, and the JSON text that is sent.

The body is built once, when the alert is put into the outbox, and the same bytes are sent at every attempt.
It stays under 20 kB: what had to be left out is named in `data.truncated` with its number, never silently.

The id is a digest of (run, incident, type). So a monitor that died between deciding and writing, or a second
monitor, can only say the same alert again, never a second one; and the receiver can drop a repeat by
`webhook-id`.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from unknot.supervisor.alerts.lines import first_line, resolved_line
from unknot.supervisor.alerts.payload import fit, incident_data, rfc3339
from unknot.supervisor.incidents import Cause, Incident

AlertType = Literal[
    "deadlock.detected",
    "deadlock.resolved",
    "stall.detected",
    "stall.resolved",
    "agent.lost",
    "checkpoint.failed",
    "alert.test",
]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One message: `body` is the exact JSON text that is signed and sent, `id` never changes."""

    id: str
    type: AlertType
    body: str
    at: float


def detected(incident: Incident, *, at: float) -> Alert:
    """The alert that says that this incident stands. `at`: seconds since the epoch."""
    return _alert(incident, kind=_detected_type(incident.cause), at=at, line=first_line(incident))


def resolved(incident: Incident, *, at: float) -> Alert:
    """The alert that says that this incident is over. `at`: seconds since the epoch."""
    kind: AlertType = "deadlock.resolved" if incident.cause == "deadlock" else "stall.resolved"
    return _alert(incident, kind=kind, at=at, line=resolved_line(incident))


def trial_alert(run: str, *, at: float, nonce: str) -> Alert:
    """A marked alert that says nothing but that alerts arrive. `nonce` makes its id its own."""
    line = f"TEST in run {run}: alerts of this run arrive here. Action: none needed."
    data = {"summary": line, "severity": "info", "run": run, "test": True, "truncated": {}}
    kind: AlertType = "alert.test"
    return Alert(id=alert_id(run, nonce, kind), type=kind, body=_encode(kind, at, data).decode(), at=at)


def alert_id(run: str, incident: str, kind: str) -> str:
    """The id of one (run, incident, type). It holds no dot, as the signature scheme asks."""
    digest = hashlib.sha256("\0".join((run, incident, kind)).encode()).hexdigest()
    return f"alr_{digest[:24]}"


def _detected_type(cause: Cause) -> AlertType:
    kinds: dict[Cause, AlertType] = {
        "deadlock": "deadlock.detected", "dead": "agent.lost", "checkpoint": "checkpoint.failed",
    }  # fmt: skip
    return kinds.get(cause, "stall.detected")


def _alert(incident: Incident, *, kind: AlertType, at: float, line: str) -> Alert:
    body = fit(lambda trim: _encode(kind, at, incident_data(incident, line=line, trim=trim)))
    return Alert(id=alert_id(incident.run, incident.id, kind), type=kind, body=body.decode(), at=at)


def _encode(kind: AlertType, at: float, data: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "timestamp": rfc3339(at), "data": data})
