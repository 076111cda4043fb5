"""Where settings come from: a file searched upward, and the environment. Read here, judged in `config`."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.recovery.values import suggestion

PREFIX = "SUPERVISOR_"
RESERVED = frozenset(
    {
        "SUPERVISOR_DISABLED",
        "SUPERVISOR_FAULTS",
        "SUPERVISOR_FAULTS_LOG",
        "SUPERVISOR_WORKER",
        "SUPERVISOR_RUN",
        "SUPERVISOR_RUN_DIR",
        "SUPERVISOR_REDIS_SERVER",
    }
)
OWN_FILE = "supervisor.toml"
SHARED_FILE = "pyproject.toml"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one place. `names`: how the user wrote each key there. `where`: the origin as shown."""

    where: str
    values: dict[str, Any]
    names: dict[str, str]
    folder: Path | None = None


def find_file(cwd: Path) -> Source | None:
    """The nearest file with settings, from `cwd` upward: supervisor.toml, else pyproject.toml that has ours.

    Raises ConfigError for a file of ours that cannot be read.
    """
    for folder in (cwd, *cwd.parents):
        if (own := folder / OWN_FILE).is_file():
            return read_file(own)
        shared = folder / SHARED_FILE
        if shared.is_file() and _speaks_of_us(shared):
            found = read_file(shared)
            if found is not None:
                return found
    return None


def read_file(path: Path) -> Source | None:
    """The settings of this file; None for a pyproject.toml that has none. Raises ConfigError."""
    table = _parse(path)
    if path.name == SHARED_FILE:
        tool = table.get("tool", {})
        if not isinstance(tool, dict):
            raise ConfigError(what=f"tool in {path} is not a table", todo="write [tool.supervisor] for settings of ours")
        if "supervisor" not in tool:
            return None
        table = tool["supervisor"]
    if not isinstance(table, dict):
        raise ConfigError(what=f"tool.supervisor in {path} is not a table", todo="write [tool.supervisor]")
    return Source(where=str(path), values=table, names={key: key for key in table}, folder=path.parent)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            what=f"{path} cannot be read: {error}", todo="name another file or mend this one"
        ) from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(what=f"{path} is not TOML: {error}", todo="mend the line it names") from error


def _speaks_of_us(path: Path) -> bool:
    """Somebody else's pyproject.toml, broken or unreadable, is not our matter."""
    try:
        return b"supervisor" in path.read_bytes()
    except OSError:
        return False


def read_env(env: Mapping[str, str], known: Collection[str]) -> tuple[Source, tuple[str, ...]]:
    """Settings from `SUPERVISOR_*`, and a warning for each unknown name. An empty value counts as not set."""
    names = {f"{PREFIX}{key.upper()}": key for key in known}
    ours = {name: value for name, value in env.items() if name.startswith(PREFIX) and value.strip()}
    values = {names[name]: value for name, value in ours.items() if name in names}
    unknown = sorted(name for name in ours if name not in names and name not in RESERVED)
    warnings = tuple(f"unknown variable {name} is ignored{suggestion(name, names)}" for name in unknown)
    written = {key: name for name, key in names.items() if key in values}
    return Source(where="environment", values=values, names=written), warnings
