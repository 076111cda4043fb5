"""`supervisor status`: one look at a run."""

from __future__ import annotations

from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.connect import Target, connect, effective, no_such_run, target_of
from unknot.supervisor.cli.json_output import status_document
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note, warn
from unknot.supervisor.cli.render_status import status_lines
from unknot.supervisor.cli.snapshot import Snapshot, read_snapshot
from unknot.supervisor.cli.wanted import Wanted


def status(wanted: Wanted, shown: Look, *, as_json: bool) -> int:
    """Show the run once; the exit code. Raises ConfigError, StoreUnavailable."""
    target = find(wanted)
    snapshot = look_once(target, limit_s=wanted.limit_s)
    show(snapshot, shown, as_json=as_json)
    return code_of(snapshot)


def find(wanted: Wanted) -> Target:
    """The run that is meant; warnings about settings go to stderr. Raises ConfigError, StoreUnavailable."""
    settings = effective(wanted)
    warn(settings.warnings)
    return target_of(wanted, settings)


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
