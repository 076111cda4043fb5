"""`supervisor status`: one look at a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.connect import Target, connect, effective, no_such_run, target_of
from unknot.supervisor.cli.ended import RunHasEnded, left_by
from unknot.supervisor.cli.in_time import answered
from unknot.supervisor.cli.json_output import status_document
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note, warn
from unknot.supervisor.cli.render_status import status_lines
from unknot.supervisor.cli.snapshot import Snapshot, read_snapshot
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.config import EffectiveConfig
from unknot.supervisor.store.address import shown_address

T = TypeVar("T")


def status(wanted: Wanted, shown: Look, *, as_json: bool) -> int:
    """Show the run once; the exit code. Raises ConfigError, StoreUnavailable."""
    snapshot = ask(wanted, lambda target: look_once(target, limit_s=wanted.limit_s))
    show(snapshot, shown, as_json=as_json)
    return code_of(snapshot)


def ask(wanted: Wanted, work: Callable[[Target], T]) -> T:
    """What `work` finds about the run that is meant; warnings about settings go to stderr.

    Raises ConfigError; StoreUnavailable, also when finding the run and the work take longer than --timeout together; RunHasEnded.
    """
    settings = effective(wanted)
    warn(settings.warnings)
    return answered(lambda: _asked(wanted, settings, work), limit_s=wanted.limit_s, where=place_of(settings))


def _asked(wanted: Wanted, settings: EffectiveConfig, work: Callable[[Target], T]) -> T:
    target = target_of(wanted, settings)
    try:
        return work(target)
    except StoreUnavailable as error:
        if (kept := left_by(target)) is not None:
            raise RunHasEnded(where=error.where, kept=kept) from error
        raise


def place_of(settings: EffectiveConfig) -> str:
    """Where Redis is asked, as it may be shown."""
    url = settings.config.redis
    return "the private server of the run" if url is None else shown_address(url)


def look_once(target: Target, *, limit_s: float) -> Snapshot:
    """One snapshot over a connection of its own. Raises ConfigError for a run that never was."""
    with connect(target, limit_s=limit_s) as store:
        snapshot = read_snapshot(store)
    if not snapshot.exists:
        raise no_such_run(target, limit_s=limit_s)
    return snapshot


def show(snapshot: Snapshot, shown: Look, *, as_json: bool, thing: str = "status") -> None:
    """Write the snapshot to stdout; what is missing in it is named on stderr too."""
    if as_json:
        emit_json(status_document(snapshot, thing=thing))
        for problem in snapshot.problems:
            note(f"warning: incomplete: {problem}")
    else:
        emit_lines(status_lines(snapshot, shown.glyphs), shown=shown)


def code_of(snapshot: Snapshot) -> int:
    """What is found goes before what is missing."""
    if not snapshot.healthy:
        return exit_codes.FOUND
    return exit_codes.INCOMPLETE if snapshot.problems else exit_codes.OK
