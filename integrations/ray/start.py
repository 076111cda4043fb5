"""What `unknot.init` starts, each with the way it is stopped."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import ray
import structlog

from unknot.graph.errors import UnknotError
from unknot.recovery.errors import ConfigError
from unknot.recovery.run import RunClaim
from unknot.supervisor import process as processes
from unknot.supervisor.alerts.webhook import endpoint_of
from unknot.supervisor.children import KeptChild
from unknot.supervisor.config import Config, load_config
from unknot.supervisor.process import DISABLED_ENV, Process, WorkerSettings
from unknot.supervisor.store.embedded import attach_or_start
from unknot.supervisor.store.location import run_directory
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

_CLAIM_EVERY_S = 1.0
_log = structlog.get_logger("unknot.run")


class Driver(NamedTuple):
    """What a driver has of its run: its process, its claim, the run's directory, the settings of the monitor."""

    process: Process
    claim: RunClaim
    directory: Path
    config: Config


def driver_process(stack: contextlib.ExitStack, run: str, explicit: dict[str, Any]) -> Driver:
    """The driver's own membership: settings read, Redis there, the run claimed, registered."""
    effective = load_config(explicit, os.environ, Path.cwd())
    _warn(effective.warnings)
    config = effective.config
    if config.webhook_url is not None:
        endpoint_of(config)  # a secret that cannot be used is told here, not in the monitor's log
    directory = run_directory(run, {**os.environ, **({"SUPERVISOR_RUN_DIR": config.run_dir} if config.run_dir else {})})
    if config.redis is None:
        server = stack.enter_context(attach_or_start(directory))
        config = msgspec.structs.replace(config, redis=server.url)
    assert config.redis is not None
    limits = StoreLimits(retry_s=config.store_limit_s)
    store = RedisStore.connect(config.redis, run, limits=limits)
    stack.callback(store.end)
    _warn(store.warnings)
    claim = RunClaim.take(store, lease_s=config.lease_s)
    stack.callback(_release, claim)
    _make(directory)
    settings = WorkerSettings(
        run=run, redis=config.redis, member="driver/main", role="driver", config=config.for_workers(),
        checkpoints=str(directory / "checkpoints"), disabled=os.environ.get(DISABLED_ENV, "") not in ("", "0"),
    )  # fmt: skip
    stack.callback(processes.leave)
    process = processes.join(settings, store=store)
    _keep_renewing(stack, claim, run)  # ended before the process leaves and closes the store under it
    return Driver(process, claim, directory, config)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"unknot: {warning}", file=sys.stderr)  # noqa: T201 - a person starts drivers


def _make(directory: Path) -> None:
    """After all that may be refused for what was given: a start that is refused leaves no directory."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            what=f"the run's directory {directory} cannot be made ({error.strerror})",
            todo="set SUPERVISOR_RUN_DIR to a directory that you may write",
        ) from error


def _keep_renewing(stack: contextlib.ExitStack, claim: RunClaim, run: str) -> None:
    """A thread renews the claim until the stack unwinds."""
    stop = threading.Event()

    def renew() -> None:
        while not stop.wait(_CLAIM_EVERY_S):
            try:
                claim.renew()
            except UnknotError as error:
                _log.warning("run.claim.not_renewed", run=run, error=str(error))

    thread = threading.Thread(target=renew, name="unknot-claim", daemon=True)
    thread.start()
    stack.callback(thread.join, 5)
    stack.callback(stop.set)


def _release(claim: RunClaim) -> None:
    try:
        claim.close()
    except UnknotError as error:
        _log.warning("run.claim.not_closed", claim=str(claim), error=str(error))


def ray_cluster(stack: contextlib.ExitStack) -> None:
    """Use the Ray that is connected, else start a local one and stop it with the run."""
    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(include_dashboard=False, log_to_driver=True, num_cpus=max(os.cpu_count() or 1, 4))
    stack.callback(ray.shutdown)


def monitor(stack: contextlib.ExitStack, driver: Driver) -> None:
    """Start the run's monitor as a process of its own; it ends with the driver."""
    environ = dict(os.environ)
    settings = processes.MonitorSettings(run=driver.process.settings.run, config=driver.config)
    environ[processes.MONITOR_ENV] = msgspec.json.encode(settings).decode()
    child = KeptChild(
        [sys.executable, "-m", "unknot.supervisor.monitor"], environ=environ, log=driver.directory / "monitor.log"
    )
    child.launch()
    stack.callback(child.stop)


raw_wait = ray.wait
raw_get = ray.get


def whole_message(error: BaseException) -> str:
    """A member's error in one line: the cause that Ray wrapped, not the wrapping."""
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {text[-1] if text else ''}"[:2000]
