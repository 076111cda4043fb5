"""`supervisor explain`: one incident in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from unknot.recovery.errors import ConfigError
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.command_status import find
from unknot.supervisor.cli.connect import connect, no_such_run
from unknot.supervisor.cli.json_output import document, incident_item
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, warn
from unknot.supervisor.cli.render_incident import explain_lines
from unknot.supervisor.cli.snapshot import read_snapshot
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.incidents import Incident

LATEST = "latest"
INCIDENTS_SEARCHED = 2000
_IDS_SHOWN = 5


def explain(name: str, wanted: Wanted, shown: Look, *, as_json: bool) -> int:
    """Show the incident `name`.

    An id, the beginning of one, or `latest`. Raises ConfigError, StoreUnavailable.
    """
    target = find(wanted)
    with connect(target, limit_s=wanted.limit_s) as store:
        snapshot = read_snapshot(store, incidents=INCIDENTS_SEARCHED)
    if not snapshot.exists:
        raise no_such_run(target, limit_s=wanted.limit_s)
    warn(snapshot.problems)
    incident = choose(name, snapshot.incidents, run=target.run)
    if as_json:
        emit_json(document("explain", [incident_item(incident)], at=snapshot.at))
    else:
        emit_lines(explain_lines(incident, shown.glyphs, now=snapshot.at), shown=shown)
    return exit_codes.OK


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
