"""`supervisor explain`: one incident in sentences."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.command_status import ask
from unknot.supervisor.cli.connect import RUN_ENV, Target, connect, effective, no_such_run, run_environment
from unknot.supervisor.cli.ended import RunHasEnded
from unknot.supervisor.cli.json_output import document, incident_item
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note, warn
from unknot.supervisor.cli.render_incident import explain_lines
from unknot.supervisor.cli.snapshot import read_snapshot
from unknot.supervisor.cli.text import line
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.incidents import Incident
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.kept_incidents import KeptIncidents, every_kept, kept_incidents

LATEST = "latest"
INCIDENTS_SEARCHED = 2000
_IDS_SHOWN = 5


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """A run's incidents, newest first, and when they were read, in seconds since the epoch."""

    run: str
    incidents: Sequence[Incident]
    at: float
    ended: bool = False


def explain(name: str, wanted: Wanted, shown: Look, *, as_json: bool) -> int:
    """Show the incident `name`.

    An id, the beginning of one, or `latest`. Raises ConfigError, StoreUnavailable, OutputFailed.
    """
    searched, incident = choose(name, _searched(wanted, name))
    if searched.ended:
        note(f"run {searched.run} has ended; this is what it left behind")
    items = [] if incident is None else [incident_item(incident)]
    if as_json:
        emit_json(document("explain", items, at=searched.at))
    elif incident is None:
        emit_lines([line(f"no incident in run {searched.run}")], shown=shown)
    else:
        emit_lines(explain_lines(incident, shown.glyphs, now=searched.at), shown=shown)
    return exit_codes.OK


def _searched(wanted: Wanted, name: str) -> Sequence[Searched]:
    """The run that is meant, read from Redis; else what ended runs left behind, of the one that ended last first."""
    try:
        return [ask(wanted, lambda target: _read(target, name, limit_s=wanted.limit_s))]
    except StoreUnavailable as error:
        left = [error.kept] if isinstance(error, RunHasEnded) else _left_behind(wanted)
        if not left:
            raise
        return [Searched(run=one.run, incidents=one.items[::-1], at=one.at, ended=True) for one in left]


def _read(target: Target, name: str, *, limit_s: float) -> Searched:
    """With those of earlier starts of the run, last, where `name` means none of the present one."""
    with connect(target, limit_s=limit_s) as store:
        snapshot = read_snapshot(store, incidents=INCIDENTS_SEARCHED)
        present = name == LATEST or any(one.id.startswith(name) for one in snapshot.incidents)
        earlier = () if present else IncidentStore(store).earlier()
    if not snapshot.exists:
        raise no_such_run(target, limit_s=limit_s)
    warn(snapshot.problems)
    return Searched(run=target.run, incidents=(*snapshot.incidents, *earlier), at=snapshot.at)


def _left_behind(wanted: Wanted) -> Sequence[KeptIncidents]:
    if wanted.redis is not None:
        return ()
    env = run_environment(effective(wanted))
    run = wanted.run or os.environ.get(RUN_ENV) or None
    if run is None:
        return every_kept(env)
    kept = kept_incidents(run, env)
    return () if kept is None else (kept,)


def choose(name: str, among: Sequence[Searched]) -> tuple[Searched, Incident | None]:
    """The one incident that `name` means, and whose it is; none where `latest` of a run without any is meant. Raises ConfigError."""
    if name == LATEST:
        newest = among[0]
        return newest, next(iter(newest.incidents), None)
    every = [(one, incident) for one in among for incident in one.incidents]
    exact = [pair for pair in every if pair[1].id == name]
    found = exact or [pair for pair in every if pair[1].id.startswith(name)]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(incident.id for _, incident in (found or every)[:_IDS_SHOWN])
    if found:
        raise ConfigError(what=f"{name!r} is the beginning of {len(found)} incidents: {ids}", todo="write more of it")
    raise _not_found(name, among, ids)


def _not_found(name: str, among: Sequence[Searched], ids: str) -> ConfigError:
    several = f"none of the {len(among)} runs that have ended here has an"
    nowhere = f"run {among[0].run} has no" if len(among) == 1 else several
    if not ids:
        return ConfigError(what=f"{nowhere} incident", todo="see `supervisor status`, or give --run NAME of another run")
    todo = "give one of these, or latest, or --run NAME of another run"
    return ConfigError(what=f"{nowhere} incident {name!r}; newest: {ids}", todo=todo)
