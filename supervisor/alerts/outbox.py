"""The outbox: alerts that must go out, kept in Redis until they are delivered or given up.

An alert is in Redis before anybody tries to send it, and leaves only after a receiver has said 2xx. So a
crash at any point loses nothing; what it can cause is a second delivery of the same alert, when the answer
was lost, and that carries the same `webhook-id`, by which receivers drop it. (Exactly once over HTTP does not
exist.) Two monitors that overlap for a moment do not both send: an attempt begins with a claim, which is
nothing but a due time moved ahead, so that the claim of a dead process lapses by itself. Rejected: a list
with BLMOVE (no due times), a stream group (a pending entry has no time of its own either), a lock around the
whole pump (a hung receiver would hold it).
"""

from __future__ import annotations

import secrets
from typing import Any, Literal

import msgspec

from unknot.recovery.ports import Store
from unknot.supervisor.alerts.alert import Alert

RECORD_KEPT_S = 7 * 24 * 3600


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An alert in the outbox. `attempts` were made; `first_at` is Redis' time of the first, in seconds."""

    alert: Alert
    attempts: int = 0
    first_at: float | None = None
    why: str = ""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How an alert ended: the record that stays. `status` of the last answer, None without one."""

    id: str
    type: str
    end: Literal["delivered", "given up"]
    attempts: int
    at: float
    status: int | None = None
    why: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is ours to try until the claim lapses; `now` is Redis' time, in seconds.

    `disabled`: the receiver has switched itself off (410), so the entry is only to be given up.
    """

    entry: Entry
    now: float
    disabled: bool


class Deliveries(msgspec.Struct, frozen=True, kw_only=True):
    """Counters: alerts delivered, attempts that failed, alerts given up, and alerts that still wait."""

    ok: int = 0
    failed: int = 0
    dropped: int = 0
    waiting: int = 0


class Outbox:
    """The outbox of one run. Each instance has a name of its own in its claims."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name = secrets.token_hex(6)
        self._asked = 0

    def put(self, alert: Alert) -> bool:
        """Keep this alert for delivery; False if it is known already. Raises StoreUnavailable."""
        entry = msgspec.json.encode(Entry(alert=alert))
        return bool(self._run("alert_put", alert.id, entry))

    def claim(self, *, hold_s: float, receiver: str) -> Claim | None:
        """One alert that is due, not offered to anybody else for `hold_s` seconds; None if there is none.

        `receiver`: fingerprint of the address. Raises StoreUnavailable.
        """
        self._asked += 1
        answer = self._run("alert_claim", hold_s, receiver, self._name, self._asked)
        if not answer:
            return None
        entry, now, disabled = answer
        return Claim(entry=msgspec.json.decode(entry, type=Entry), now=float(now), disabled=bool(disabled))

    def again(self, entry: Entry, *, pause_s: float, hold_s: float) -> bool:
        """Try this one again in `pause_s`; nothing goes to the receiver for `hold_s`.

        Raises StoreUnavailable.
        """
        text = msgspec.json.encode(entry)
        return bool(self._settle(entry.alert.id, "retry", text, (pause_s, hold_s, "")))

    def end(self, ending: Ending, *, tried: bool = True, disable: str = "") -> bool:
        """Take it out and keep the record. `tried`: an attempt was made just now.

        `disable`: fingerprint of a receiver that wants no more. Raises StoreUnavailable.
        """
        how = ending.end if tried else "off"
        return bool(self._settle(ending.id, how, msgspec.json.encode(ending), (0, 0, disable)))

    def ending(self, alert_id: str) -> Ending | None:
        """How this alert ended, None while it waits or when the record has expired.

        Raises StoreUnavailable.
        """
        text = self._store.command("GET", self._store.key("alert", alert_id))
        return None if text is None else msgspec.json.decode(text, type=Ending)

    def deliveries(self) -> Deliveries:
        """The counters of this run. Raises StoreUnavailable."""
        counts = self._store.command("HMGET", self._store.key("deliveries"), "ok", "failed", "dropped")
        ok, failed, dropped = (int(count or 0) for count in counts)
        waiting = int(self._store.command("HLEN", self._store.key("outbox")))
        return Deliveries(ok=ok, failed=failed, dropped=dropped, waiting=waiting)

    def _settle(self, alert_id: str, end: str, text: bytes, rest: tuple[float, float, str]) -> Any:
        return self._run("alert_settle", alert_id, end, text, *rest, RECORD_KEPT_S)

    def _run(self, name: str, *args: bytes | str | float) -> Any:
        return self._store.script(name, [self._store.key()], args)
