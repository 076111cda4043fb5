"""What `unknot.init` starts, each with the way it is stopped."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import ray
import structlog

from unknot.graph.errors import UnknotError
from unknot.recovery.errors import ConfigError
from unknot.recovery.run import RunClaim
from unknot.supervisor import process as processes
from unknot.supervisor.alerts.webhook import endpoint_of
from unknot.supervisor.children import KeptChild
from unknot.supervisor.config import Config, load_config
from unknot.supervisor.process import Process, WorkerSettings
from unknot.supervisor.store.embedded import attach_or_start, make_directory, remove_directory
from unknot.supervisor.store.location import no_directory, run_directory
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

_CLAIM_EVERY_S = 1.0
_RAY_ENDS_S = 10.0
_log = structlog.get_logger("unknot.run")


class FreshDirectory:
    """The directory of a run that is being started: if this start made it, and is refused after all, it goes again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stays = False

    def keep(self) -> None:
        """The run stands: what it leaves in its directory stays."""
        self._stays = True

    def goes_with(self, stack: contextlib.ExitStack) -> None:
        """Remove it when the stack unwinds, unless it is kept by then."""
        stack.callback(lambda: None if self._stays else remove_directory(self.path))


class Driver(NamedTuple):
    """What a driver has of its run: its process, its claim, the run's directory, the settings of the monitor."""

    process: Process
    claim: RunClaim
    fresh: FreshDirectory
    config: Config

    @property
    def directory(self) -> Path:
        """The run's directory."""
        return self.fresh.path


def driver_process(stack: contextlib.ExitStack, run: str, explicit: dict[str, Any]) -> Driver:
    """The driver's own membership: settings read, Redis there, the run claimed, registered."""
    disabled = processes.observation_off(os.environ)
    effective = load_config(explicit, os.environ, Path.cwd())
    _warn(effective.warnings)
    config = effective.config
    if config.webhook_url is not None:
        endpoint_of(config)  # a secret that cannot be used is told here, not in the monitor's log
    directory = run_directory(run, {**os.environ, **({"SUPERVISOR_RUN_DIR": config.run_dir} if config.run_dir else {})})
    fresh = FreshDirectory(directory)
    if config.redis is None:
        server = attach_or_start(directory)
        if server.fresh:
            fresh.goes_with(stack)
        stack.enter_context(server)
        config = msgspec.structs.replace(config, redis=server.url)
    assert config.redis is not None
    limits = StoreLimits(retry_s=config.store_limit_s)
    store = RedisStore.connect(config.redis, run, limits=limits)
    stack.callback(store.end)
    _warn(store.warnings)
    claim = RunClaim.take(store, lease_s=config.lease_s)
    stack.callback(_release, claim)
    _make(fresh, stack)
    settings = WorkerSettings(
        run=run, redis=config.redis, member="driver/main", role="driver", config=config.for_workers(),
        checkpoints=str(directory / "checkpoints"), disabled=disabled,
    )  # fmt: skip
    stack.callback(processes.leave)
    process = processes.join(settings, store=store)
    _keep_renewing(stack, claim, run)  # ended before the process leaves and closes the store under it
    return Driver(process, claim, fresh, config)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"unknot: {warning}", file=sys.stderr)  # noqa: T201 - a person starts drivers


def _make(fresh: FreshDirectory, stack: contextlib.ExitStack) -> None:
    """Have it there, and know that it can be written: the run's monitor keeps its log there."""
    try:
        if make_directory(fresh.path):
            fresh.goes_with(stack)  # unwound before the claim is given back: nobody else is in it
        with tempfile.TemporaryFile(dir=fresh.path):
            pass
    except OSError as error:
        raise no_directory(fresh.path, "made or written", error) from error


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
    before = {process.pid for process in _of_ray()}
    try:
        ray.init(include_dashboard=False, log_to_driver=True, num_cpus=max(os.cpu_count() or 1, 4))
    except BaseException as error:
        _end_ray(before)
        if not isinstance(error, Exception):
            raise
        todo = "see what it printed, free what it lacks, or connect with ray.init(...) first: unknot.init() uses a Ray that is connected"
        raise ConfigError(what=f"Ray cannot be started ({_first_line(error)})", todo=todo) from error
    stack.callback(ray.shutdown)


def _of_ray() -> list[psutil.Process]:
    """The processes of Ray below this one: each is started from Ray's own folder."""
    folder = str(Path(ray.__file__).parent)
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(folder in word for word in process.cmdline()):
                found.append(process)
    return found


def _end_ray(before: Collection[int]) -> None:
    """Ray ends what it started when its driver ends, not when it could not start the rest."""
    with contextlib.suppress(Exception):
        ray.shutdown()
    left = [process for process in _of_ray() if process.pid not in before]
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=_RAY_ENDS_S)


def _first_line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}"[:300] if said else type(error).__name__


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
