"""One incident in sentences: what stands, why, what was done, and how it ended."""

from __future__ import annotations

from collections.abc import Iterator

from unknot.graph.wording import age, listed
from unknot.supervisor.alerts.payload import rfc3339
from unknot.supervisor.cli.render_status import incident_row
from unknot.supervisor.cli.snapshot import is_open
from unknot.supervisor.cli.text import Glyphs, Line, Span, Style, line, span, table
from unknot.supervisor.incidents import Action, Incident
from unknot.supervisor.incidents import Line as Sentence

STACK_SHOWN = 30


def explain_lines(incident: Incident, glyphs: Glyphs, *, now: float) -> tuple[Line, ...]:
    """The incident as numbered sentences. `now`: seconds since the epoch by Redis' clock."""
    return (
        *table([incident_row(incident, glyphs, now=now)]),
        (),
        *_sentences(incident, glyphs, now),
        *_people(incident),
        *_advice(incident),
        *_actions(incident),
        *_ending(incident, glyphs),
        *_stacks(incident),
    )


def _sentences(incident: Incident, glyphs: Glyphs, now: float) -> Iterator[Line]:
    for number, sentence in enumerate(incident.lines, 1):
        yield _sentence(number, sentence, glyphs)
        since = f"for {age(_until(incident, now) - sentence.since)}" if sentence.since > 0 else ""
        site = f"at {sentence.site}" if sentence.site else ""
        helped = f"could be ended by {listed(sentence.helpers, 'or')}" if sentence.helpers else ""
        details = ", ".join(part for part in (since, site, helped) if part)
        if details:
            yield line(span(f"     {details}", "dim"))
    if incident.lines:
        yield ()


def _until(incident: Incident, now: float) -> float:
    return incident.resolved_at if incident.resolved_at is not None else now


def _sentence(number: int, sentence: Sentence, glyphs: Glyphs) -> Line:
    mark = [span(f"  {glyphs.knot} culprit", "bad")] if sentence.culprit else []
    return line(span(f"{number:3d}. "), span(sentence.text), *mark)


def _people(incident: Incident) -> Iterator[Line]:
    groups = (
        ("culprits", incident.culprits),
        ("victims", incident.victims),
        ("core", incident.core),
        ("stuck", incident.stuck),
    )
    for title, who in groups:
        if who:
            yield line(span(f"{title}: ", "head"), listed(who))
    if incident.confirmed_at is not None and incident.closing_wait_at is not None:
        took = age(incident.confirmed_at - incident.closing_wait_at)
        yield line(
            span("confirmed: ", "head"), f"{rfc3339(incident.confirmed_at)}, {took} after the last wait began"
        )


def _advice(incident: Incident) -> Iterator[Line]:
    if incident.advice:
        yield line(span("what to do: ", "head"), incident.advice)


def _actions(incident: Incident) -> Iterator[Line]:
    yield ()
    yield line(span(f"ACTIONS ({len(incident.actions)})", "head"))
    for row in table([_action(action) for action in incident.actions]):
        yield (Span("  "), *row)


def _action(action: Action) -> list[Span]:
    styles: dict[str, Style] = {"done": "good", "failed": "bad", "pending": "warn"}
    return [
        span(rfc3339(action.at), "dim"),
        span(f"{action.remedy} {action.target}"),
        span(action.outcome, styles[action.outcome]),
        span(action.note),
    ]


def _ending(incident: Incident, glyphs: Glyphs) -> Iterator[Line]:
    yield ()
    if is_open(incident):
        yield line(span(f"{glyphs.knot} still open ({incident.state})", "bad"))
        return
    took = age(_until(incident, 0.0) - incident.opened_at)
    how = incident.resolution or "the waits ended"
    yield line(span(f"{glyphs.good} resolved after {took}: ", "good"), how)


def _stacks(incident: Incident) -> Iterator[Line]:
    for who, frames in incident.stacks.items():
        yield ()
        yield line(span(f"stack of {who}", "head"))
        for frame in frames[:STACK_SHOWN]:
            yield line(span(f"  {frame}", "dim"))
        if len(frames) > STACK_SHOWN:
            yield line(span(f"  ({len(frames) - STACK_SHOWN} more frames, see --json)", "dim"))
