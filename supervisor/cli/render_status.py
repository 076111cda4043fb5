"""A snapshot as lines of text. Pure: the same snapshot gives the same lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from unknot.graph.wording import age, listed
from unknot.supervisor.alerts.payload import rfc3339
from unknot.supervisor.cli.snapshot import ActionView, MemberState, MemberView, Snapshot, is_open
from unknot.supervisor.cli.text import Glyphs, Line, Span, Style, line, span, table
from unknot.supervisor.cli.waits import WaitView
from unknot.supervisor.incidents import Incident

ACTIONS_SHOWN = 10
RESOLVED_SHOWN = 5

_STYLE: dict[MemberState, Style] = {
    "starting": "dim",
    "alive": "good",
    "done": "dim",
    "silent": "bad",
    "dead": "bad",
    "unknown": "warn",
}


def status_lines(snapshot: Snapshot, glyphs: Glyphs) -> tuple[Line, ...]:
    """The whole picture: run, incidents first since they matter most, then waits, members, actions."""
    return (
        *_head(snapshot, glyphs),
        *_section("INCIDENTS", _incident_rows(snapshot, glyphs)),
        *_hazards(snapshot, glyphs),
        *_section("WAITS", [_wait_row(wait, glyphs) for wait in snapshot.waits]),
        *_section("MEMBERS", [_member_row(member, glyphs) for member in snapshot.members]),
        *_section("ACTIONS", [_action_row(view) for view in snapshot.actions[:ACTIONS_SHOWN]]),
    )


def _head(snapshot: Snapshot, glyphs: Glyphs) -> Iterator[Line]:
    run = snapshot.run
    open_now = len(snapshot.open_incidents)
    failed = sum(1 for member in snapshot.members if member.failed)
    verdict = (
        span(f"{glyphs.good} healthy", "good")
        if snapshot.healthy
        else span(
            f"{glyphs.knot} {_counted(open_now, 'open incident')}, {_counted(failed, 'failed member')}", "bad"
        )
    )
    monitor = span(f"monitor {run.monitor}") if run.monitor else span("no monitor", "warn")
    yield line(span(f"run {run.name}", "head"), "  ", run.state, "  ", verdict, "  ", monitor)
    sent = snapshot.deliveries
    if sent.failed or sent.dropped or sent.waiting:
        style: Style = "bad" if sent.dropped else "warn"
        attempts = f"{sent.ok} delivered, {sent.waiting} waiting, {sent.failed} failed attempts"
        yield line(span(f"alerts: {attempts}, {sent.dropped} given up", style))
    for problem in snapshot.problems:
        yield line(span(f"incomplete: {problem}", "warn"))


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _section(title: str, rows: Sequence[Sequence[Span]]) -> Iterator[Line]:
    yield ()
    yield line(span(f"{title} ({len(rows)})", "head"))
    for row in table(rows):
        yield (Span("  "), *row)


def _hazards(snapshot: Snapshot, glyphs: Glyphs) -> Iterator[Line]:
    """Only where there are some: most runs never have one."""
    if snapshot.hazards:
        rows = [[span(f"{glyphs.waiting} {hazard.text}", "warn")] for hazard in snapshot.hazards]
        yield from _section("HAZARDS", rows)


def _member_row(member: MemberView, glyphs: Glyphs) -> list[Span]:
    style = _STYLE[member.state]
    glyph = glyphs.dead if member.failed else glyphs.good
    where = f"pid {member.pid} on {member.host}" if member.pid else ""
    return [
        span(f"{glyph} {member.state}", style),
        span(member.source),
        span(f"beat {_since(member.beat_age_s)}", "bad" if member.state == "silent" else "plain"),
        span(where, "dim"),
        span(member.error, "bad"),
    ]


def _since(age_s: float | None) -> str:
    return "never" if age_s is None else f"{age(age_s)} ago"


def _wait_row(wait: WaitView, glyphs: Glyphs) -> list[Span]:
    return [
        span(f"{glyphs.waiting} {age(wait.age_s)}", "warn"),
        span(wait.participant),
        span(f"for {wait.text}"),
        span(_by(wait)),
        span(wait.site or "", "dim"),
        span(_ends(wait), "dim"),
    ]


def _by(wait: WaitView) -> str:
    if wait.holders:
        return f"held by {listed(wait.holders)}"
    return f"from {listed(wait.helpers, 'or')}" if wait.helpers else "from nobody known"


def _ends(wait: WaitView) -> str:
    ends = []
    if wait.deadline_in_s is not None:
        ends.append(f"goes on in {age(wait.deadline_in_s)}")
    if wait.limit_in_s is not None:
        ends.append(f"is ended in {age(wait.limit_in_s)}")
    return ", ".join(ends)


def _incident_rows(snapshot: Snapshot, glyphs: Glyphs) -> list[list[Span]]:
    resolved = [incident for incident in snapshot.incidents if not is_open(incident)][:RESOLVED_SHOWN]
    return [incident_row(one, glyphs, now=snapshot.at) for one in (*snapshot.open_incidents, *resolved)]


def incident_row(incident: Incident, glyphs: Glyphs, *, now: float) -> list[Span]:
    """One incident as cells: state with its age, id, cause, headline."""
    if is_open(incident):
        first = span(f"{glyphs.knot} {incident.state} for {age(now - incident.opened_at)}", "bad")
    else:
        end = incident.resolved_at if incident.resolved_at is not None else incident.opened_at
        first = span(f"{glyphs.good} resolved {age(now - end)} ago", "good")
    return [first, span(incident.id), span(f"{incident.cause} ({incident.kind})"), span(incident.headline)]


def _action_row(view: ActionView) -> list[Span]:
    action = view.action
    style: Style = {"done": "good", "failed": "bad"}.get(action.outcome, "warn")  # type: ignore[assignment]
    return [
        span(rfc3339(action.at), "dim"),
        span(f"{action.remedy} {action.target}"),
        span(action.outcome, style),
        span(view.incident),
        span(action.note, "dim"),
    ]
