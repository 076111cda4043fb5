"""`supervisor alerts test`: sends one marked alert, and says what came of it."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import msgspec

from unknot.supervisor.alerts.alert import trial_alert
from unknot.supervisor.alerts.delivery import Attempt, Schedule, Sender, decide, require_extra
from unknot.supervisor.alerts.webhook import endpoint
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.connect import RUN_ENV
from unknot.supervisor.cli.in_time import TooLate, within
from unknot.supervisor.cli.json_output import document
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note, warn
from unknot.supervisor.cli.text import line, span
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.config import load_config, secret_of


class TrialItem(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a test."""

    id: str
    receiver: str
    delivered: bool
    status: int | None
    took_s: float
    why: str


def alerts_test(url: str, secret_file: Path | None, wanted: Wanted, shown: Look, *, as_json: bool) -> int:
    """Send a test alert to `url`; the exit code. Raises ConfigError."""
    explicit = {"webhook_secret_file": str(secret_file) if secret_file is not None else None}
    settings = load_config(explicit, os.environ, Path.cwd(), file=wanted.config_file)
    warn(settings.warnings)
    sender = Sender(endpoint(url, secret_of(settings.config, os.environ)), limit_s=wanted.limit_s)
    require_extra()
    began = time.time()
    alert = trial_alert(wanted.run or os.environ.get(RUN_ENV) or "none", at=began, nonce=secrets.token_hex(8))
    try:
        attempt = within(lambda: sender.send(alert, at=began), wanted.limit_s)
        sender.close()
    except TooLate:
        attempt = Attempt(why=f"no answer within {wanted.limit_s:g} s")
    item = _item(alert.id, sender.endpoint.shown, attempt, time.time() - began)
    if as_json:
        emit_json(document("alerts_test", [item], at=began))
    elif item.delivered:
        where = f"{item.receiver} (status {item.status}, {item.took_s:.2f} s)"
        emit_lines(
            [line(span(f"{shown.glyphs.good} delivered ", "good"), f"{item.id} to {where}")], shown=shown
        )
    if not item.delivered:
        note(
            f"error: {item.receiver} did not take the test alert: {item.why}; check the address and the receiver"
        )
    return exit_codes.OK if item.delivered else exit_codes.FAILED


def _item(name: str, receiver: str, attempt: Attempt, took_s: float) -> TrialItem:
    verdict = decide(attempt, number=1, age_s=0.0, schedule=Schedule(), chance=0.0)
    return TrialItem(
        id=name,
        receiver=receiver,
        delivered=verdict.then == "delivered",
        status=attempt.status,
        took_s=round(took_s, 3),
        why=verdict.why,
    )
