"""Finds the run that is meant: by address and name, or the one that lives on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.config import EffectiveConfig, load_config
from unknot.supervisor.store.kept_incidents import kept_incidents
from unknot.supervisor.store.location import FoundServer, discover, validate_run_name
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

RUN_ENV = "SUPERVISOR_RUN"
RUN_DIR_ENV = "SUPERVISOR_RUN_DIR"
_NAMES_SHOWN = 8
# How long it may take to find out what answers instead, where nothing answers as Redis does.
_PROBE_S = 1.5
# A private server is on this machine: it answers, or it is gone.
_PRIVATE_RETRY_S = 0.5


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Which run: the address of its Redis (for connecting, never for showing) and its name. `server`: its private one, if it was found."""

    url: str
    run: str
    server: FoundServer | None = None


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
    here = run_environment(config, env)
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


def run_environment(config: EffectiveConfig, env: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The environment with the directory of runs that the settings choose."""
    run_dir = config.config.run_dir
    return env if run_dir is None else {**env, RUN_DIR_ENV: run_dir}


def _of_server(server: FoundServer) -> Target:
    return Target(url=server.url, run=server.run, server=server)


def _nothing_found(run: str | None, env: Mapping[str, str]) -> StoreUnavailable:
    others = sorted({server.run for server in discover(None, env)})
    if run is None:
        why = "no run lives on this machine, and no --redis was given"
    elif kept_incidents(run, env) is not None:
        todo = f"see `supervisor explain latest --run {run}` for what it left behind"
        return StoreUnavailable(where="any address", why=f"run {run!r} has ended", todo=todo)
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
    """A store for the run, to look at it. Within `limit_s` it is found too what is wrong. Raises StoreUnavailable."""
    each_s = max(limit_s - _PROBE_S, limit_s / 2)
    again_s = each_s if target.server is None else min(each_s, _PRIVATE_RETRY_S)
    limits = StoreLimits(connect_s=each_s, answer_s=each_s, retry_s=again_s)
    return RedisStore.connect(target.url, target.run, limits=limits, writes=False)


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
