"""`supervisor replay`: what a recorded trace tells, line by line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from unknot.graph.errors import TraceError
from unknot.graph.replay import Replay, Report
from unknot.graph.trace import read
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note
from unknot.supervisor.cli.text import Line, line, span
from unknot.supervisor.traces import opened

_PROBLEMS_SHOWN = 5


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`until`: the last line to read. `lenient`: count and skip what cannot be, instead of refusing it."""

    as_json: bool = False
    until: int | None = None
    lenient: bool = False


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a trace, and what was skipped to get it."""

    report: Report
    skipped: int


def replay(path: Path, options: ReplayOptions, shown: Look) -> int:
    """Show what the trace in `path` tells; the exit code. Raises TraceError, ConfigError."""
    told = run(path, options)
    if options.as_json:
        emit_json(msgspec.json.encode(_document(told)))
    else:
        emit_lines(_lines(told, shown), shown=shown)
    return exit_codes.FOUND if told.report.incidents else exit_codes.OK


def run(path: Path, options: ReplayOptions) -> _Told:
    """The report of the trace in `path`. Raises TraceError, ConfigError."""
    skipped: Counter[str] = Counter()

    def skip(error: TraceError) -> None:
        skipped["lines"] += 1
        if skipped["lines"] <= _PROBLEMS_SHOWN:
            note(f"warning: skipped: {error}")

    with opened(path) as lines:
        header, events = read(lines, on_bad=skip if options.lenient else None)
        play = Replay(header)
        for one in events:
            if options.until is not None and one.number > options.until:
                break
            try:
                play.feed(one)
            except TraceError as error:
                if not options.lenient:
                    raise
                skip(error)
    return _Told(report=play.report(), skipped=skipped["lines"])


def _document(told: _Told) -> dict[str, Any]:
    report = told.report
    return {
        "schema": "unknot.replay/1",
        "events": report.events,
        "incidents": report.incidents,
        "final": report.final,
        "hazards": report.hazards,
        "warnings": report.mixings,
        "notes": report.notes,
        "skipped": told.skipped,
        "left_out": report.left_out,
    }


def _lines(told: _Told, shown: Look) -> list[Line]:
    report = told.report
    lines = [line(f"{report.events} events, {len(report.incidents) + report.left_out} incidents")]
    for one in report.incidents:
        over = f"resolved at line {one.resolved_line}" if one.resolved_line is not None else "open at the end"
        head, *rest = one.text.splitlines()
        sign = shown.glyphs.good if one.resolved_line is not None else shown.glyphs.knot
        lines += [line(), line(span(f"{sign} {head}", "bad")), *(line(f"  {text}") for text in rest)]
        lines.append(line(span(f"  {one.kind}; opened at line {one.opened_line}, {over}", "dim")))
    for hazard in report.hazards:
        lines += [line(), line(span(f"{shown.glyphs.waiting} hazard: {hazard.text}", "warn"))]
    for mixing in report.mixings:
        lines += [line(), line(span(f"{shown.glyphs.waiting} warning: {mixing.text}", "warn"))]
    for one_note in report.notes:
        lines += [line(), line(span(f"{shown.glyphs.waiting} {one_note.cause}: {one_note.text}", "warn"))]
    if told.skipped:
        lines += [line(), line(span(f"{told.skipped} lines were skipped", "warn"))]
    return lines
