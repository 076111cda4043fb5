"""The pump: brings alerts from the outbox to the receiver, on a thread of its own beside the monitor.

Detection never waits for it: `announce` is one script in Redis, and everything slow happens on the thread.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from unknot.graph.errors import UnknotError
from unknot.recovery.ports import Store
from unknot.supervisor.alerts.alert import detected, resolved
from unknot.supervisor.alerts.delivery import (
    ATTEMPT_LIMIT_S,
    Attempt,
    Schedule,
    Sender,
    Verdict,
    decide,
    require_extra,
)
from unknot.supervisor.alerts.outbox import Claim, Ending, Entry, Outbox
from unknot.supervisor.alerts.webhook import endpoint_of
from unknot.supervisor.config import Config
from unknot.supervisor.incidents import Incident

LOOK_EVERY_S = 0.5
TROUBLE_PAUSE_S = 5.0

_log = structlog.get_logger("unknot.alerts")


def _told(sender: Sender, entry: Entry) -> Any:
    return _log.bind(alert_id=entry.alert.id, type=entry.alert.type, receiver=sender.endpoint.shown)


class AlertPump:
    """Announces incidents and delivers their alerts. Does nothing when no webhook is set.

    The constructor starts nothing. `clock` gives seconds since the epoch as receivers count them: it dates
    the attempts; the outbox itself goes by Redis' time. Raises ConfigError for an address or secret that
    cannot be used.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        clock: Callable[[], float] = time.time,
        *,
        schedule: Schedule | None = None,
        attempt_limit_s: float = ATTEMPT_LIMIT_S,
    ) -> None:
        receiver = endpoint_of(config)
        if receiver is not None:
            require_extra()
        self._sender = None if receiver is None else Sender(receiver, limit_s=attempt_limit_s)
        self._outbox = Outbox(store)
        self._clock = clock
        self._schedule = schedule or Schedule()
        self._claim_s = max(4 * attempt_limit_s, 1.0)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._ends_at = 0.0
        self.troubles = 0

    @property
    def enabled(self) -> bool:
        """Whether there is a receiver."""
        return self._sender is not None

    def announce(self, incident: Incident) -> bool:
        """Put the alert that this incident's state asks for into the outbox; whether that was new.

        Call it as often as you like: an incident has one alert for standing and one for being over.
        Raises StoreUnavailable.
        """
        if self._sender is None:
            return False
        over = incident.state == "resolved"
        alert = (resolved if over else detected)(incident, at=self._clock())
        new = self._outbox.put(alert)
        if new:
            _log.info("alert.queued", alert_id=alert.id, type=alert.type, incident_id=incident.id)
            self._wake.set()
        return new

    def pump_once(self) -> bool:
        """Try one alert that is due; False if none is. Raises StoreUnavailable."""
        sender = self._sender
        if sender is None:
            return False
        claim = self._outbox.claim(hold_s=self._claim_s, receiver=sender.endpoint.fingerprint)
        if claim is None:
            return False
        if claim.disabled:
            off = Verdict(then="given up", why="the receiver has switched itself off (410)")
            self._settle(sender, claim, Attempt(), off)
            return True
        attempt = sender.send(claim.entry.alert, at=self._clock())
        self._settle(sender, claim, attempt, self._decide(claim, attempt))
        return True

    def start(self) -> None:
        """Deliver on a daemon thread until `stop`."""
        if self._sender is not None and self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="unknot-alerts", daemon=True)
            self._thread.start()

    def stop(self, *, timeout_s: float = 5.0) -> None:
        """End the thread; what is due is still tried, for up to `timeout_s`.

        The rest waits for the next pump.
        """
        self._ends_at = time.monotonic() + timeout_s
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if not self._thread.is_alive() and self._sender is not None:
                self._sender.close()

    def _decide(self, claim: Claim, attempt: Attempt) -> Verdict:
        first_at = claim.entry.first_at if claim.entry.first_at is not None else claim.now
        return decide(
            attempt,
            number=claim.entry.attempts + 1,
            age_s=claim.now - first_at,
            schedule=self._schedule,
            chance=random.random(),
        )

    def _settle(self, sender: Sender, claim: Claim, attempt: Attempt, verdict: Verdict) -> None:
        if verdict.then == "retry":
            self._again(sender, claim, verdict)
        else:
            self._end(sender, claim, attempt, verdict)

    def _again(self, sender: Sender, claim: Claim, verdict: Verdict) -> None:
        entry = claim.entry
        tried = msgspec.structs.replace(
            entry,
            attempts=entry.attempts + 1,
            first_at=claim.now if entry.first_at is None else entry.first_at,
            why=verdict.why,
        )
        self._outbox.again(tried, pause_s=verdict.pause_s, hold_s=verdict.hold_s)
        pause_s = round(verdict.pause_s, 1)
        log = _told(sender, tried)
        log.warning("alert.failed", attempt=tried.attempts, why=verdict.why, next_in_s=pause_s)

    def _end(self, sender: Sender, claim: Claim, attempt: Attempt, verdict: Verdict) -> None:
        delivered = verdict.then == "delivered"
        ending = Ending(
            id=claim.entry.alert.id,
            type=claim.entry.alert.type,
            end="delivered" if delivered else "given up",
            attempts=claim.entry.attempts + (0 if claim.disabled else 1),
            at=claim.now,
            status=attempt.status,
            why=verdict.why,
        )
        off = sender.endpoint.fingerprint if verdict.disable else ""
        self._outbox.end(ending, tried=not claim.disabled, disable=off)
        log = _told(sender, claim.entry)
        if delivered:
            log.info("alert.delivered", attempts=ending.attempts)
        else:
            log.error("alert.given_up", attempts=ending.attempts, why=verdict.why)

    def _loop(self) -> None:
        while not self._stopping.is_set():
            pause_s = self._turn()
            if pause_s > 0:
                self._wake.wait(pause_s)
                self._wake.clear()
        # A run's last news is often that it is free again; its Redis may end with the run.
        while time.monotonic() < self._ends_at and self._turn() == 0.0:
            pass

    def _turn(self) -> float:
        """One look; the pause before the next, in seconds."""
        try:
            return 0.0 if self.pump_once() else LOOK_EVERY_S
        except UnknotError as error:
            self.troubles += 1
            _log.warning("alert.pump.waits", error=str(error))
        except Exception as error:  # noqa: BLE001  (the thread must outlive any surprise; it is counted and told)
            self.troubles += 1
            _log.error("alert.pump.failed", error=type(error).__name__, exc_info=True)
        return TROUBLE_PAUSE_S
