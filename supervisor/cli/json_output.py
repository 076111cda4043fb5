"""The JSON of the command: a contract of its own, apart from the structs inside.

Every document is `{"schema": "supervisor.<thing>/1", "generated_at": …, "partial": …, "items": […]}`. Times
are RFC 3339 in UTC, durations are numbers whose names end in `_s`, ids are strings, and an empty list is
`[]`. Within a version keys are only added. Items of several kinds are told apart by `item`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from unknot.supervisor.alerts.payload import moment, rfc3339, time_to_verdict_s
from unknot.supervisor.cli.changes import Change
from unknot.supervisor.cli.snapshot import ActionView, DeliveryView, MemberView, RunView, Snapshot, is_open
from unknot.supervisor.cli.waits import WaitView
from unknot.supervisor.incidents import Action, Incident, Line


class _Item(msgspec.Struct, frozen=True, kw_only=True, tag_field="item"):
    pass


class RunItem(_Item, frozen=True, kw_only=True, tag="run"):
    """The run; `monitor` is who leads now."""

    id: str
    state: str
    healthy: bool
    driver: str
    started_at: str | None
    monitor: str | None
    deliveries: DeliveryView


class MemberItem(_Item, frozen=True, kw_only=True, tag="member"):
    """One member."""

    id: str
    source: str
    incarnation: int
    role: str
    state: str
    failed: bool
    beat_age_s: float | None
    pid: str
    host: str
    error: str


class WaitItem(_Item, frozen=True, kw_only=True, tag="wait"):
    """One wait."""

    participant: str
    ticket: int
    needs: str
    resources: tuple[str, ...]
    age_s: float
    site: str | None
    label: str | None
    holders: tuple[str, ...]
    helpers: tuple[str, ...]
    deadline_in_s: float | None
    limit_in_s: float | None


class SentenceItem(msgspec.Struct, frozen=True, kw_only=True):
    """One edge of an explanation."""

    participant: str
    resource: str
    text: str
    site: str | None
    since: str | None
    helpers: tuple[str, ...]
    culprit: bool


class RemedyItem(msgspec.Struct, frozen=True, kw_only=True):
    """One remedy within its incident."""

    remedy: str
    target: str
    at: str
    outcome: str
    note: str


class IncidentItem(_Item, frozen=True, kw_only=True, tag="incident"):
    """One incident with its explanation; stacks only where one incident was asked for."""

    id: str
    cause: str
    kind: str
    state: str
    open: bool
    headline: str
    resolution: str
    opened_at: str
    confirmed_at: str | None
    resolved_at: str | None
    time_to_verdict_s: float | None
    culprits: tuple[str, ...]
    victims: tuple[str, ...]
    core: tuple[str, ...]
    stuck: tuple[str, ...]
    lines: tuple[SentenceItem, ...]
    actions: tuple[RemedyItem, ...]
    advice: str = ""
    stacks: dict[str, tuple[str, ...]] = {}


class ActionItem(_Item, frozen=True, kw_only=True, tag="action"):
    """One remedy and the incident it was for."""

    incident: str
    remedy: str
    target: str
    at: str
    outcome: str
    note: str


class HazardItem(_Item, frozen=True, kw_only=True, tag="hazard"):
    """Locks that are taken in a ring of orders: nothing stands yet. `sites`: where each was taken, and then the next."""

    locks: tuple[str, ...]
    sites: tuple[tuple[str, str], ...]
    text: str


class ChangeItem(_Item, frozen=True, kw_only=True, tag="change"):
    """One difference between two looks."""

    what: str
    id: str
    change: str
    text: str


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The top level of every answer; `problems` says why it is partial."""

    schema: str
    generated_at: str
    partial: bool
    items: tuple[Any, ...]
    problems: tuple[str, ...] = ()


def document(thing: str, items: Sequence[Any], *, at: float, problems: Sequence[str] = ()) -> bytes:
    """One line of JSON. `at`: seconds since the epoch."""
    return msgspec.json.encode(
        Document(
            schema=f"supervisor.{thing}/1",
            generated_at=rfc3339(at),
            partial=bool(problems),
            items=tuple(items),
            problems=tuple(problems),
        )
    )


def status_document(snapshot: Snapshot, *, thing: str = "status") -> bytes:
    """The whole snapshot."""
    items = (
        _run(snapshot.run, snapshot),
        *(_member(member) for member in snapshot.members),
        *(_wait(wait) for wait in snapshot.waits),
        *(incident_item(incident, stacks=False) for incident in snapshot.incidents),
        *(_action(view) for view in snapshot.actions),
        *(HazardItem(**_fields(hazard)) for hazard in snapshot.hazards),
    )
    return document(thing, items, at=snapshot.at, problems=snapshot.problems)


def change_document(found: Sequence[Change], snapshot: Snapshot) -> bytes:
    """One line of JSON Lines: what changed at this look."""
    items = [ChangeItem(what=one.what, id=one.id, change=one.change, text=one.text) for one in found]
    return document("change", items, at=snapshot.at, problems=snapshot.problems)


def _run(run: RunView, snapshot: Snapshot) -> RunItem:
    return RunItem(
        id=run.name,
        state=run.state,
        healthy=snapshot.healthy,
        driver=run.driver,
        started_at=moment(run.started_at),
        monitor=run.monitor,
        deliveries=snapshot.deliveries,
    )


def _member(member: MemberView) -> MemberItem:
    return MemberItem(failed=member.failed, **_rounded(_fields(member)))


def _wait(wait: WaitView) -> WaitItem:
    fields = _rounded(_fields(wait))
    return WaitItem(needs=fields.pop("text"), **fields)


def _rounded(fields: dict[str, Any]) -> dict[str, Any]:
    """Durations to the millisecond."""
    return {
        key: round(value, 3) if key.endswith("_s") and value is not None else value
        for key, value in fields.items()
    }


def _fields(value: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(value)


def incident_item(incident: Incident, *, stacks: bool = True) -> IncidentItem:
    """One incident as it is published."""
    return IncidentItem(
        id=incident.id,
        cause=incident.cause,
        kind=incident.kind,
        state=incident.state,
        open=is_open(incident),
        headline=incident.headline,
        resolution=incident.resolution,
        opened_at=rfc3339(incident.opened_at),
        confirmed_at=moment(incident.confirmed_at),
        resolved_at=moment(incident.resolved_at),
        time_to_verdict_s=time_to_verdict_s(incident),
        culprits=incident.culprits,
        victims=incident.victims,
        core=incident.core,
        stuck=incident.stuck,
        lines=tuple(_sentence(one) for one in incident.lines),
        actions=tuple(RemedyItem(**_remedy(action)) for action in incident.actions),
        advice=incident.advice,
        stacks=incident.stacks if stacks else {},
    )


def _sentence(line: Line) -> SentenceItem:
    fields = _fields(line)
    fields["since"] = rfc3339(line.since) if line.since > 0 else None
    return SentenceItem(**fields)


def _remedy(action: Action) -> dict[str, Any]:
    return {**_fields(action), "at": rfc3339(action.at)}


def _action(view: ActionView) -> ActionItem:
    return ActionItem(incident=view.incident, **_remedy(view.action))
