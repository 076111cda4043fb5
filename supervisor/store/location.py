"""Where a run's files lie, and which embedded servers are alive there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped,unused-ignore]

from unknot.recovery.errors import ConfigError
from unknot.recovery.values import shown
from unknot.supervisor.config_values import read_path

RUN_NAME_LIMIT = 64
RUN_DIR_ENV = "SUPERVISOR_RUN_DIR"
REDIS_FILE = "redis.json"
_RUN_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,63}")
_NOT_IN_RUN_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class RedisFile(msgspec.Struct, frozen=True, kw_only=True):
    """What `redis.json` says of an embedded server. `url` holds its password; times are seconds since the epoch.

    `owner_*` tell the process that started the server and with which it ends.
    """

    url: str
    pid: int
    create_time: float
    owner_pid: int
    owner_create_time: float

    def __repr__(self) -> str:
        return f"<RedisFile pid {self.pid} at {self.url.rpartition('@')[2]}>"


class FoundServer(msgspec.Struct, frozen=True, kw_only=True):
    """A live embedded server: the run's name, its directory, and how to reach it."""

    run: str
    directory: Path
    redis: RedisFile

    @property
    def url(self) -> str:
        """The URL with its password: for connecting, not for showing."""
        return self.redis.url


def validate_run_name(name: str) -> str:
    """`name` if it can name a run, else ConfigError with a name that could.

    A run's name is a directory, part of every Redis key, and typed by people: letters, digits, `.`, `_`, `-`, at
    most 64 of them, not only dots, and no `-` first, which would read as an option.
    """
    if _RUN_NAME.fullmatch(name) and name.strip("."):
        return name
    proposal = _NOT_IN_RUN_NAME.sub("-", name).strip("-.")[:RUN_NAME_LIMIT] or "run"
    raise ConfigError(
        what=f"{shown(name)} cannot name a run: letters, digits, '.', '_' and '-' can, up to {RUN_NAME_LIMIT}, the first no '-'",
        todo=f"use for example {proposal!r}",
    )


def runs_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of all runs: SUPERVISOR_RUN_DIR, else below XDG_STATE_HOME, else below ~/.local/state.

    ConfigError when that is no path, with the name of the variable.
    """
    if chosen := environ.get(RUN_DIR_ENV):
        return read_path(chosen, name=RUN_DIR_ENV)
    if state := environ.get("XDG_STATE_HOME"):
        return read_path(state, name="XDG_STATE_HOME") / "unknot" / "runs"
    return read_path("~/.local/state", name=f"{RUN_DIR_ENV}, by default") / "unknot" / "runs"


def no_directory(path: Path, what: str, error: OSError) -> ConfigError:
    """The error for a directory of runs that cannot be used: `what` could not be done with it."""
    why = error.strerror or type(error).__name__
    todo = f"set {RUN_DIR_ENV} to a directory that you may write"
    return ConfigError(what=f"the directory {shown(str(path))} cannot be {what} ({why})", todo=todo)


def run_directory(run: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of one run; it need not exist. ConfigError when `run` cannot name one."""
    return runs_directory(environ) / validate_run_name(run)


def checkpoints_directory(run: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the checkpoints of one run lie unless it was given another directory. ConfigError as run_directory."""
    return run_directory(run, environ) / "checkpoints"


def read_redis_file(directory: Path) -> RedisFile | None:
    """What `redis.json` of a run directory says, None when there is none or it is not whole."""
    try:
        return msgspec.json.decode((directory / REDIS_FILE).read_bytes(), type=RedisFile)
    except (OSError, msgspec.DecodeError):
        return None


def same_process(pid: int, create_time: float) -> bool:
    """Whether the process `pid` lives and is the one that was created at `create_time`, not a later one."""
    try:
        process = psutil.Process(pid)
        same = abs(process.create_time() - create_time) < 1.0
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def discover(run: str | None = None, environ: Mapping[str, str] = os.environ) -> tuple[FoundServer, ...]:
    """The live embedded servers of this machine's run directory, of `run` or of all runs, newest first.

    ConfigError when that directory cannot be read.
    """
    base = runs_directory(environ)
    try:
        everywhere = sorted(base.iterdir())
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise no_directory(base, "read", error) from None
    directories = everywhere if run is None else [base / validate_run_name(run)]
    found = [
        FoundServer(run=directory.name, directory=directory, redis=file)
        for directory in directories
        if (file := read_redis_file(directory)) and same_process(file.pid, file.create_time)
    ]
    return tuple(sorted(found, key=lambda server: server.redis.create_time, reverse=True))
