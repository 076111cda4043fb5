"""Real processes of a run without Ray: the monitor, and members that do not outlive the benchmark."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import msgspec

from unknot.supervisor.config import Config
from unknot.supervisor.process import MONITOR_ENV, WORKER_ENV, MonitorSettings, WorkerSettings


def monitor_process(run: str, config: Config, log: IO[str]) -> subprocess.Popen[str]:
    """The run's monitor, as a driver starts it."""
    told = msgspec.json.encode(MonitorSettings(run=run, config=config)).decode()
    command = [sys.executable, "-m", "unknot.supervisor.monitor"]
    return subprocess.Popen(command, env={**os.environ, MONITOR_ENV: told}, stdout=log, stderr=log, text=True)


def member_process(settings: WorkerSettings, script: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    """A member's process that runs `script`; what it prints can be read."""
    told = {**os.environ, WORKER_ENV: settings.to_environment(), **environ}
    return subprocess.Popen([sys.executable, script, *arguments], env=told, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process does not outlive the block."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
