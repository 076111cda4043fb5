"""Finds the run that is meant: by address and name, or the one that lives on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.config import EffectiveConfig, load_config
from unknot.supervisor.store.location import FoundServer, discover, validate_run_name
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

RUN_ENV = "SUPERVISOR_RUN"
RUN_DIR_ENV = "SUPERVISOR_RUN_DIR"
_NAMES_SHOWN = 8


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which run: the address of its Redis (for connecting, never for showing) and its name."""

    url: str
    run: str


def effective(wanted: Wanted, env: Mapping[str, str] = os.environ) -> EffectiveConfig:
    """The settings of this command. Raises ConfigError."""
    return load_config({"redis": wanted.redis}, env, Path.cwd(), file=wanted.config_file)


def target_of(wanted: Wanted, config: EffectiveConfig, env: Mapping[str, str] = os.environ) -> Target:
    """The run that is meant.

    Raises ConfigError if none or more than one could be, StoreUnavailable if no Redis is known or reached.
    """
    run = wanted.run or _run_of_environment(env)
    url = config.config.redis
    if url is not None:
        return Target(url=url, run=run or _only(live_runs(url, limit_s=wanted.limit_s)))
    here = _with_run_dir(env, config)
    servers = discover(run, here)
    if not servers:
        raise _nothing_found(run, here)
    chosen = run or _only([server.run for server in servers])
    return _of_server(next(server for server in servers if server.run == chosen))


def _run_of_environment(env: Mapping[str, str]) -> str | None:
    run = env.get(RUN_ENV) or None
    try:
        return None if run is None else validate_run_name(run)
    except ConfigError as error:
        raise ConfigError(what=f"{RUN_ENV}: {error.what}", todo=error.todo) from None


def _with_run_dir(env: Mapping[str, str], config: EffectiveConfig) -> Mapping[str, str]:
    run_dir = config.config.run_dir
    return env if run_dir is None else {**env, RUN_DIR_ENV: run_dir}


def _of_server(server: FoundServer) -> Target:
    return Target(url=server.url, run=server.run)


def _nothing_found(run: str | None, env: Mapping[str, str]) -> StoreUnavailable:
    others = sorted({server.run for server in discover(None, env)})
    if run is None:
        why = "no run lives on this machine, and no --redis was given"
    else:
        named = f" (live: {_listed(others)})" if others else ""
        why = f"no run {run!r} lives on this machine{named}, and no --redis was given"
    todo = "start the run first, or give --redis URL (or SUPERVISOR_REDIS)"
    return StoreUnavailable(where="any address", why=why, todo=todo)


def _only(runs: Sequence[str]) -> str:
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise ConfigError(what="this Redis holds no live run", todo="give --run NAME, or start the run")
    raise ConfigError(what=f"more than one run is live: {_listed(runs)}", todo="give --run NAME")


def _listed(runs: Sequence[str]) -> str:
    shown = ", ".join(sorted(runs)[:_NAMES_SHOWN])
    left = len(runs) - _NAMES_SHOWN
    return f"{shown} and {left} more" if left > 0 else shown


def connect(target: Target, *, limit_s: float) -> RedisStore:
    """A store for the run. Raises StoreUnavailable."""
    limits = StoreLimits(connect_s=limit_s, answer_s=limit_s, retry_s=limit_s)
    return RedisStore.connect(target.url, target.run, limits=limits)


def live_runs(url: str, *, limit_s: float) -> list[str]:
    """The names of the runs in this Redis that have not ended. Raises StoreUnavailable."""
    with connect(Target(url=url, run="any"), limit_s=limit_s) as store:
        found: set[str] = set()
        cursor = b"0"
        while True:
            cursor, keys = store.command("SCAN", cursor, "MATCH", "unknot:{*}:run", "COUNT", 1000)
            found.update(key.decode() for key in keys)
            if int(cursor) == 0:
                break
        names = {key: key.removeprefix("unknot:{").removesuffix("}:run") for key in found}
        return sorted(name for key, name in names.items() if store.command("HGET", key, "state") != b"closed")


def no_such_run(target: Target, *, limit_s: float) -> ConfigError:
    """The error for a run that this Redis does not know, with those that it knows."""
    others = live_runs(target.url, limit_s=limit_s)
    known = f"; live there: {_listed(others)}" if others else ""
    return ConfigError(what=f"this Redis knows no run {target.run!r}{known}", todo="give --run NAME")
