"""The incidents of a run that has ended, as a file in its directory: `incidents.json`.

A private Redis ends with its run, and the morning after is when people ask. So the driver leaves the incidents behind, whole, with
stacks and what was done.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from unknot.supervisor.incidents import Incident
from unknot.supervisor.store.location import run_directory, runs_directory

FILE = "incidents.json"


class KeptIncidents(msgspec.Struct, frozen=True, kw_only=True):
    """What was left of a run: incidents oldest first, and when it was written, in seconds since the epoch."""

    schema: str = "supervisor.incidents/1"
    run: str
    at: float
    items: tuple[Incident, ...]


def keep_incidents(directory: Path, *, run: str, incidents: Sequence[Incident], at: float) -> Path:
    """Write them, whole or not at all, for this user alone; the file's path. OSError when it cannot be written."""
    path = directory / FILE
    half = directory / f"{FILE}.new"
    body = msgspec.json.format(msgspec.json.encode(KeptIncidents(run=run, at=at, items=tuple(incidents))))
    half.touch(mode=0o600)
    half.write_bytes(body)
    half.replace(path)
    return path


def kept_incidents(run: str | None, environ: Mapping[str, str] = os.environ) -> KeptIncidents | None:
    """What is left of `run`, or of the run that ended last; None if nothing is, or it cannot be read."""
    if run is not None:
        return _read(run_directory(run, environ) / FILE)
    return next(iter(every_kept(environ)), None)


def every_kept(environ: Mapping[str, str] = os.environ) -> tuple[KeptIncidents, ...]:
    """What is left of each run that has ended, of the one that ended last first; without what cannot be read."""
    found = [kept for path in runs_directory(environ).glob(f"*/{FILE}") if (kept := _read(path)) is not None]
    return tuple(sorted(found, key=lambda kept: kept.at, reverse=True))


def _read(path: Path) -> KeptIncidents | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptIncidents)
    except (OSError, msgspec.DecodeError):
        return None
