"""What changed between two looks at a run: one line each, for logs and for JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeVar

import msgspec

from unknot.graph.wording import listed
from unknot.supervisor.cli.snapshot import MemberView, RunView, Snapshot
from unknot.supervisor.cli.text import Style
from unknot.supervisor.cli.waits import WaitView
from unknot.supervisor.incidents import Action, Incident

# Every healthy run waits all the time; a log shows only waits that last.
WAIT_TOLD_AFTER_S = 1.0
T = TypeVar("T")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that became different. `what`: the kind of thing; `id`: which; `text`: the sentence."""

    what: Literal["run", "member", "wait", "incident", "action", "hazard", "problem"]
    id: str
    change: str
    text: str
    style: Style = "plain"


def changes(before: Snapshot | None, now: Snapshot) -> tuple[Change, ...]:
    """What is different in `now`; against nothing, everything that is there."""
    return (
        *_run(before.run if before else None, now.run),
        *_members(_members_by_id(before), _members_by_id(now)),
        *_waits(_lasting(before), _lasting(now)),
        *_incidents(_incidents_by_id(before), _incidents_by_id(now)),
        *_actions(_actions_by_id(before), _actions_by_id(now)),
        *_hazards(before, now),
        *_problems(frozenset(before.problems) if before else frozenset(), now.problems),
    )


def _run(before: RunView | None, now: RunView) -> Iterator[Change]:
    if before is None or before.state != now.state:
        yield Change(what="run", id=now.name, change=now.state, text=f"run {now.name} is {now.state}")
    if before is None or before.monitor != now.monitor:
        text = f"monitor is {now.monitor}" if now.monitor else "no monitor leads"
        style: Style = "plain" if now.monitor else "warn"
        yield Change(what="run", id=now.name, change="monitor", text=text, style=style)


def _members_by_id(snapshot: Snapshot | None) -> dict[str, MemberView]:
    return {member.id: member for member in snapshot.members} if snapshot else {}


def _members(before: Mapping[str, MemberView], now: Mapping[str, MemberView]) -> Iterator[Change]:
    for key, member in now.items():
        old = before.get(key)
        if old is not None and (old.incarnation, old.state) == (member.incarnation, member.state):
            continue
        why = f" ({member.error})" if member.error else ""
        style: Style = "bad" if member.failed else "plain"
        text = f"member {member.source} is {member.state}{why}"
        yield Change(what="member", id=key, change=member.state, text=text, style=style)


def _lasting(snapshot: Snapshot | None) -> dict[str, WaitView]:
    if snapshot is None:
        return {}
    return {
        f"{wait.participant}|{wait.ticket}": wait
        for wait in snapshot.waits
        if wait.age_s >= WAIT_TOLD_AFTER_S
    }


def _waits(before: Mapping[str, WaitView], now: Mapping[str, WaitView]) -> Iterator[Change]:
    for key, wait in now.items():
        if key in before:
            continue
        by = f", held by {listed(wait.holders)}" if wait.holders else ""
        site = f" at {wait.site}" if wait.site else ""
        text = f"{wait.participant} waits for {wait.text}{site}{by}"
        yield Change(what="wait", id=key, change="waits", text=text, style="warn")
    for key, wait in before.items():
        if key in now:
            continue
        text = f"{wait.participant} no longer waits for {wait.text}"
        yield Change(what="wait", id=key, change="ended", text=text)


def _incidents_by_id(snapshot: Snapshot | None) -> dict[str, Incident]:
    return {incident.id: incident for incident in snapshot.incidents} if snapshot else {}


def _incidents(before: Mapping[str, Incident], now: Mapping[str, Incident]) -> Iterator[Change]:
    for key, incident in reversed(list(now.items())):
        old = before.get(key)
        if old is not None and old.state == incident.state:
            continue
        over = incident.state == "resolved"
        said = incident.resolution or incident.headline if over else incident.headline
        text = f"{incident.cause} {incident.id} is {incident.state}: {said}"
        yield Change(
            what="incident", id=key, change=incident.state, text=text, style="good" if over else "bad"
        )


def _actions_by_id(snapshot: Snapshot | None) -> dict[str, Action]:
    if snapshot is None:
        return {}
    return {
        f"{incident.id}|{index}": action
        for incident in reversed(snapshot.incidents)
        for index, action in enumerate(incident.actions)
    }


def _actions(before: Mapping[str, Action], now: Mapping[str, Action]) -> Iterator[Change]:
    for key, action in now.items():
        old = before.get(key)
        if old is not None and old.outcome == action.outcome:
            continue
        note = f" ({action.note})" if action.note else ""
        text = f"{action.remedy} {action.target} is {action.outcome}{note}"
        style: Style = "bad" if action.outcome == "failed" else "plain"
        yield Change(what="action", id=key, change=action.outcome, text=text, style=style)


def _hazards(before: Snapshot | None, now: Snapshot) -> Iterator[Change]:
    known = {hazard.locks for hazard in before.hazards} if before else set()
    for hazard in now.hazards:
        if hazard.locks not in known:
            text = f"hazard, nothing stands yet: {hazard.text}"
            yield Change(what="hazard", id=" ".join(hazard.locks), change="found", text=text, style="warn")


def _problems(before: frozenset[str], now: tuple[str, ...]) -> Iterator[Change]:
    for problem in now:
        if problem not in before:
            yield Change(what="problem", id="", change="incomplete", text=problem, style="warn")
