"""`supervisor explain`: one incident in sentences."""

from __future__ import annotations

import os
from collections.abc import Sequence

from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.command_status import find
from unknot.supervisor.cli.connect import RUN_ENV, connect, no_such_run
from unknot.supervisor.cli.json_output import document, incident_item
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note, warn
from unknot.supervisor.cli.render_incident import explain_lines
from unknot.supervisor.cli.snapshot import read_snapshot
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.incidents import Incident
from unknot.supervisor.store.kept_incidents import kept_incidents

LATEST = "latest"
INCIDENTS_SEARCHED = 2000
_IDS_SHOWN = 5


def explain(name: str, wanted: Wanted, shown: Look, *, as_json: bool) -> int:
    """Show the incident `name`.

    An id, the beginning of one, or `latest`. Raises ConfigError, StoreUnavailable.
    """
    run, incidents, at = _incidents(wanted)
    incident = choose(name, incidents, run=run)
    if as_json:
        emit_json(document("explain", [incident_item(incident)], at=at))
    else:
        emit_lines(explain_lines(incident, shown.glyphs, now=at), shown=shown)
    return exit_codes.OK


def _incidents(wanted: Wanted) -> tuple[str, Sequence[Incident], float]:
    """The run, its incidents newest first, and when they were read: from Redis, else what an ended run left behind."""
    try:
        target = find(wanted)
        with connect(target, limit_s=wanted.limit_s) as store:
            snapshot = read_snapshot(store, incidents=INCIDENTS_SEARCHED)
    except StoreUnavailable:
        kept = kept_incidents(wanted.run or os.environ.get(RUN_ENV) or None) if wanted.redis is None else None
        if kept is None:
            raise
        note(f"run {kept.run} has ended; this is what it left behind")
        return kept.run, kept.items[::-1], kept.at
    if not snapshot.exists:
        raise no_such_run(target, limit_s=wanted.limit_s)
    warn(snapshot.problems)
    return target.run, snapshot.incidents, snapshot.at


def choose(name: str, incidents: Sequence[Incident], *, run: str) -> Incident:
    """The one incident that `name` means; `incidents` newest first. Raises ConfigError."""
    if not incidents:
        raise ConfigError(what=f"run {run} has no incident", todo="see `supervisor status`")
    if name == LATEST:
        return incidents[0]
    exact = [incident for incident in incidents if incident.id == name]
    found = exact or [incident for incident in incidents if incident.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(incident.id for incident in (found or incidents)[:_IDS_SHOWN])
    if found:
        raise ConfigError(
            what=f"{name!r} is the beginning of {len(found)} incidents: {ids}", todo="write more of it"
        )
    raise ConfigError(
        what=f"run {run} has no incident {name!r}; newest: {ids}", todo="give one of these, or latest"
    )
