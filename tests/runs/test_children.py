"""The monitor's process is kept running, and ends with its driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil

from unknot.supervisor.children import KeptChild

SLEEPER = [sys.executable, "-c", "import signal; signal.pause()"]


def test_a_child_that_ends_by_itself_is_started_again(tmp_path: Path, eventually: Callable[..., None]) -> None:
    child = KeptChild(SLEEPER, environ=dict(os.environ), log=tmp_path / "child.log")
    child.launch()
    try:
        first = child.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        eventually(lambda: child.pid not in (None, first))
        assert child.restarts == 1
    finally:
        child.stop()
    assert not child.is_alive()
    assert child.pid is not None
    assert not psutil.pid_exists(child.pid)


def test_a_child_that_cannot_be_started_is_tried_again_until_stopped(tmp_path: Path, eventually: Callable[..., None]) -> None:
    child = KeptChild(["/nowhere/at-all"], environ=dict(os.environ), log=tmp_path / "child.log")
    child.launch()
    eventually(lambda: child.restarts >= 1)
    child.stop()
    assert not child.is_alive()


PARENT = """
import os, pathlib, signal, sys
from unknot.supervisor.children import KeptChild
child = KeptChild([sys.executable, "-c", "import signal; signal.pause()"], environ=dict(os.environ), log=pathlib.Path(sys.argv[1]))
child.launch()
print(child.pid, flush=True)
signal.pause()
"""


def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path, eventually: Callable[..., None]) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "child.log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
