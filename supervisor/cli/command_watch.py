"""`supervisor watch`: a live picture on a terminal, one line per change anywhere else.

Slurm logs, CI and pipes get lines and no cursor tricks; `--json` makes each line a document. A look is one
read of Redis. The end of the run ends the watching, also where its Redis goes away with it before that was read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.supervisor.alerts.payload import rfc3339
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.changes import Change, changes
from unknot.supervisor.cli.command_status import ask, look_once, show
from unknot.supervisor.cli.connect import Target, connect
from unknot.supervisor.cli.ended import RunHasEnded, last_word, left_by
from unknot.supervisor.cli.in_time import answered
from unknot.supervisor.cli.json_output import change_document
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note, reader_leaves
from unknot.supervisor.cli.render_status import status_lines
from unknot.supervisor.cli.snapshot import Snapshot, read_snapshot
from unknot.supervisor.cli.text import Line, line, span
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.store.address import shown_address
from unknot.supervisor.store.redis_store import RedisStore

if TYPE_CHECKING:
    from rich.text import Text

LEAST_INTERVAL_S = 0.25
FailOn = Literal["deadlock"]
_RICH = {"plain": "", "head": "bold", "good": "green", "warn": "yellow", "bad": "bold red", "dim": "dim"}


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to watch. `interval_s`: seconds between looks."""

    once: bool = False
    as_json: bool = False
    interval_s: float = 1.0
    fail_on: FailOn | None = None
    alt_screen: bool = True


def check_interval(interval_s: float) -> float:
    """`interval_s` if it is not too short. Raises ConfigError."""
    if interval_s < LEAST_INTERVAL_S:
        raise ConfigError(
            what=f"--interval {interval_s:g} s is too short: each look reads the whole run from Redis",
            todo=f"choose {LEAST_INTERVAL_S * 1000:g}ms or more",
        )
    return interval_s


def watch(wanted: Wanted, shown: Look, options: WatchOptions) -> int:
    """Watch until the run ends, --fail-on is met, or nobody reads; the exit code.

    Raises ConfigError, StoreUnavailable.
    """
    try:
        target, first = ask(wanted, lambda target: (target, look_once(target, limit_s=wanted.limit_s)))
    except RunHasEnded as end:
        if options.once:
            raise
        return _shown(iter([last_word(end.kept, None)]), shown, options)
    if options.once:
        show(first, shown, as_json=options.as_json, thing="watch")
        return _verdict(first, options)
    return _shown(_looks(target, first, wanted.limit_s, options.interval_s), shown, options)


def _shown(looks: Iterator[Snapshot], shown: Look, options: WatchOptions) -> int:
    if sys.stdout.isatty() and not options.as_json:
        return _on_terminal(looks, shown, options)
    return _as_lines(looks, shown, options)


def _verdict(snapshot: Snapshot, options: WatchOptions) -> int:
    met = options.fail_on is not None and any(one.cause == options.fail_on for one in snapshot.open_incidents)
    return exit_codes.FOUND if met else exit_codes.OK


def _looks(target: Target, first: Snapshot, limit_s: float, interval_s: float) -> Iterator[Snapshot]:
    """Snapshots until the run has ended, or its Redis went away while it was ending."""
    yield first
    last = first
    look = _Eye(target, limit_s)
    while last.run.state != "closed" and not reader_leaves(interval_s):
        try:
            last = look()
        except StoreUnavailable:
            kept = left_by(target)
            if kept is None and last.run.state != "closing":
                raise
            if kept is not None:
                yield last_word(kept, last)
            return
        yield last


class _Eye:
    """Looks at a run again and again over one connection."""

    def __init__(self, target: Target, limit_s: float) -> None:
        self._target = target
        self._limit_s = limit_s
        self._store: RedisStore | None = None

    def __call__(self) -> Snapshot:
        """One look. Raises StoreUnavailable, also when it takes longer than --timeout in all."""
        return answered(self._look, limit_s=self._limit_s, where=shown_address(self._target.url))

    def _look(self) -> Snapshot:
        if self._store is None:
            self._store = connect(self._target, limit_s=self._limit_s)
        return read_snapshot(self._store)


def _as_lines(looks: Iterator[Snapshot], shown: Look, options: WatchOptions) -> int:
    before: Snapshot | None = None
    for snapshot in looks:
        found = changes(before, snapshot)
        before = snapshot
        if found and not _tell(found, snapshot, shown, options):
            return exit_codes.OK
        if code := _verdict(snapshot, options):
            return code
    return exit_codes.OK


def _tell(found: tuple[Change, ...], snapshot: Snapshot, shown: Look, options: WatchOptions) -> bool:
    if options.as_json:
        return emit_json(change_document(found, snapshot))
    at = rfc3339(snapshot.at)
    return emit_lines([line(span(f"{at}  ", "dim"), span(one.text, one.style)) for one in found], shown=shown)


def _on_terminal(looks: Iterator[Snapshot], shown: Look, options: WatchOptions) -> int:
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color=not shown.colour, highlight=False, markup=False, emoji=False)
    code, last = exit_codes.OK, None
    with Live(
        console=console, screen=options.alt_screen, auto_refresh=False, transient=options.alt_screen
    ) as live:
        for snapshot in looks:
            last = snapshot
            live.update(_text(status_lines(snapshot, shown.glyphs)), refresh=True)
            if code := _verdict(snapshot, options):
                break
    if last is not None and options.alt_screen:
        emit_lines(status_lines(last, shown.glyphs), shown=shown)
    if code:
        note(f"--fail-on {options.fail_on}: met")
    return code


def _text(lines: tuple[Line, ...]) -> Text:
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis", end="")
    for one in lines:
        for part in one:
            text.append(part.text, style=_RICH[part.style])
        text.append("\n")
    return text
