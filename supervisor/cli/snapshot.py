"""One picture of a run, read from Redis: who is there, who waits, what happened.

Consistent enough for people: each member and its last record are read at one instant, the run and its
incidents at one instant, but not both at the same. Nothing is locked and nothing is written, so watching
cannot be in the way. What cannot be read (a record of another version) is left out and named in `problems`:
half a picture that says so is worth more at three in the morning than an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from unknot.graph.events import Record
from unknot.graph.hazards import Hazard
from unknot.recovery.ports import Store
from unknot.supervisor.cli.waits import LOCK_PREFIX, WaitView, locks_waited_for, waits_of
from unknot.supervisor.incidents import Action, Cause, Incident
from unknot.supervisor.store.hazard_store import decoded as hazards_in
from unknot.supervisor.store.hazard_store import name_of

MemberState = Literal["starting", "alive", "silent", "done", "dead", "unknown"]
INCIDENTS_READ = 200
_CHUNK = 100
_PROVEN: frozenset[Cause] = frozenset({"deadlock", "mismatch", "absent", "dead", "lost"})


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """The run itself. Times are seconds since the epoch; `monitor` is who leads, if anybody does now."""

    name: str
    state: str = "unknown"
    driver: str = ""
    started_at: float | None = None
    monitor: str | None = None


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """One member.

    `silent`: alive by its own word, but past its lease. `beat_age_s`: since its last sign of life.
    """

    id: str
    source: str
    incarnation: int
    role: str
    state: MemberState
    beat_age_s: float | None = None
    pid: str = ""
    host: str = ""
    error: str = ""

    @property
    def failed(self) -> bool:
        """Whether the run has lost it."""
        return self.state in ("dead", "silent")


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """Alerts delivered, attempts that failed, alerts given up, alerts that wait."""

    ok: int = 0
    failed: int = 0
    dropped: int = 0
    waiting: int = 0


class ActionView(msgspec.Struct, frozen=True, kw_only=True):
    """One remedy and the incident it was for."""

    incident: str
    action: Action


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A run at `at`, seconds since the epoch by Redis' clock.

    Incidents are newest first, waits oldest first. `hazards`: lock orders that another schedule could turn into a deadlock.
    """

    at: float
    run: RunView
    members: tuple[MemberView, ...] = ()
    waits: tuple[WaitView, ...] = ()
    incidents: tuple[Incident, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    deliveries: DeliveryView = DeliveryView()
    problems: tuple[str, ...] = ()

    @property
    def open_incidents(self) -> tuple[Incident, ...]:
        """Those that are not resolved."""
        return tuple(incident for incident in self.incidents if is_open(incident))

    @property
    def actions(self) -> tuple[ActionView, ...]:
        """All remedies, newest first."""
        found = [
            ActionView(incident=one.id, action=action) for one in self.incidents for action in one.actions
        ]
        return tuple(sorted(found, key=lambda view: -view.action.at))

    @property
    def healthy(self) -> bool:
        """No proven standstill is open and no member has failed."""
        standstill = any(incident.cause in _PROVEN for incident in self.open_incidents)
        return not standstill and not any(member.failed for member in self.members)

    @property
    def exists(self) -> bool:
        """Whether there ever was such a run."""
        return self.run.state != "unknown" or bool(self.members) or bool(self.incidents)


def is_open(incident: Incident) -> bool:
    """An incident is open until it is resolved."""
    return incident.state != "resolved"


def read_snapshot(store: Store, *, incidents: int = INCIDENTS_READ) -> Snapshot:
    """The run as it is now, with its newest `incidents`. Raises StoreUnavailable."""
    answer = store.script("snapshot_run", [store.key()], [incidents])
    at, run, leader, deliveries, waiting, members, found, hazards = answer
    problems: list[str] = []
    decoded = tuple(_incidents(found, problems))
    view = _run_view(store.run, _fields(run), _fields(leader), now=float(at))
    people, records = _members(store, sorted(_text(member) for member in members), problems, view.state)
    now = float(at)
    return Snapshot(
        at=now,
        run=view,
        members=tuple(people),
        waits=_waits(store, records, now),
        incidents=decoded,
        hazards=tuple(sorted(hazards_in(hazards, problems), key=name_of)),
        deliveries=_deliveries(_fields(deliveries), int(waiting)),
        problems=tuple(problems),
    )


def _waits(store: Store, records: Sequence[Record], now: float) -> tuple[WaitView, ...]:
    names = locks_waited_for(records)
    answers = store.script("snapshot_locks", [store.key()], names) if names else []
    holders = {LOCK_PREFIX + name: _text(who) for name, who in zip(names, answers, strict=True) if who}
    return waits_of(records, now=now, holders=holders)


def _members(
    store: Store, ids: Sequence[str], problems: list[str], run_state: str
) -> tuple[list[MemberView], list[Record]]:
    views: list[MemberView] = []
    records: list[Record] = []
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        at, *answers = store.script("snapshot_members", [store.key()], chunk)
        for member, (fields, _number, full) in zip(chunk, answers, strict=True):
            view = member_view(member, _fields(fields), now=float(at), run_state=run_state)
            views.append(view)
            if full and view.state in ("alive", "silent"):
                records.extend(_record(view, full, problems))
    return views, records


def _record(member: MemberView, full: bytes, problems: list[str]) -> Iterator[Record]:
    try:
        yield msgspec.msgpack.decode(full, type=Record)
    except msgspec.DecodeError as error:
        problems.append(f"the record of {member.source} cannot be read: {error}")


def _incidents(found: Sequence[Any], problems: list[str]) -> Iterator[Incident]:
    for name, text in found:
        if not text:
            problems.append(f"incident {_text(name)} is listed but not there")
            continue
        try:
            yield msgspec.json.decode(text, type=Incident)
        except msgspec.DecodeError as error:
            problems.append(f"incident {_text(name)} cannot be read: {error}")


def member_view(member: str, fields: dict[str, str], *, now: float, run_state: str = "live") -> MemberView:
    """One member from its hash. `now`: Redis' time. In a run that has ended nobody is missed."""
    incarnation = int(fields.get("incarnation", "0"))
    beat_at = _number(fields.get("beat_at"))
    return MemberView(
        id=member,
        source=f"{member}#{incarnation}",
        incarnation=incarnation,
        role=fields.get("role", member.partition("/")[0]),
        state=_member_state(fields, now=now, run_state=run_state),
        beat_age_s=None if beat_at is None else max(now - beat_at, 0.0),
        pid=fields.get("pid", ""),
        host=fields.get("host", ""),
        error=fields.get("error", ""),
    )


def _member_state(fields: dict[str, str], *, now: float, run_state: str) -> MemberState:
    state = fields.get("state", "")
    if state in ("done", "dead"):
        return "done" if state == "done" else "dead"
    if state != "alive":
        return "starting" if state == "starting" else "unknown"
    beat_at, lease_s = _number(fields.get("beat_at")), _number(fields.get("lease_s"))
    if run_state == "closed" or beat_at is None or lease_s is None:
        return "alive" if run_state != "closed" else "done"
    return "silent" if now - beat_at > lease_s else "alive"


def _run_view(name: str, run: dict[str, str], leader: dict[str, str], *, now: float) -> RunView:
    until = _number(leader.get("until"))
    return RunView(
        name=name,
        state=run.get("state", "unknown"),
        driver=run.get("driver_name", ""),
        started_at=_number(run.get("started_at")),
        monitor=leader.get("holder") if until is not None and until > now else None,
    )


def _deliveries(fields: dict[str, str], waiting: int) -> DeliveryView:
    return DeliveryView(
        ok=int(fields.get("ok", "0")),
        failed=int(fields.get("failed", "0")),
        dropped=int(fields.get("dropped", "0")),
        waiting=waiting,
    )


def _fields(flat: Sequence[bytes]) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in zip(flat[::2], flat[1::2], strict=True)}


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def _number(text: str | None) -> float | None:
    try:
        return None if text is None or not text else float(text)
    except ValueError:
        return None
