"""A driver that is interrupted at the keyboard takes everything with it that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.ray
DRIVER = """
import time

import ray
import unknot


@ray.remote
@unknot.agent
class Waiting:
    def run(self):
        unknot.Mailbox("there").send("waiting")
        unknot.Mailbox("never").receive()


@ray.remote
@unknot.agent
class Busy:
    def run(self):
        unknot.Mailbox("there").send("busy")
        while True:
            time.sleep(0.1)


with unknot.init("interrupted") as run:
    there = run.mailbox("there")
    run.mailbox("never")
    run.spawn(Waiting, name="w")
    run.spawn(Busy, name="b")
    there.receive()
    there.receive()
    print("ready", flush=True)
    run.wait()
"""


@contextmanager
def driver(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A driver in a process group of its own, as a shell starts one; what it says is in the file."""
    script, said = tmp_path / "driver.py", tmp_path / "said"
    script.write_text(DRIVER)
    with said.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(script)], stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "SUPERVISOR_RUN_DIR": str(tmp_path / "runs")},
        )  # fmt: skip
    try:
        yield process, said
    finally:
        process.kill()
        process.wait()


def is_ready(process: subprocess.Popen[bytes], said: Path) -> bool:
    assert process.poll() is None, said.read_text()
    return "ready\n" in said.read_text()


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("whole_group", [False, True], ids=["the driver alone", "its whole process group"])
def test_an_interrupted_driver_leaves_no_process_and_ends_by_the_signal(
    tmp_path: Path, eventually: Callable[..., None], whole_group: bool
) -> None:
    with driver(tmp_path) as (process, said):
        eventually(lambda: is_ready(process, said), 120.0)
        started = psutil.Process(process.pid).children(recursive=True)
        commands = " ".join(" ".join(one.cmdline()) for one in started)
        assert all(name in commands for name in ("redis-server", "raylet", "unknot.supervisor.monitor", "ray::"))
        if whole_group:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        assert process.wait(120.0) == -signal.SIGINT
        text = said.read_text()
        assert text.rstrip().endswith("KeyboardInterrupt"), text
        eventually(lambda: not [one for one in started if lives(one)], 60.0)
    assert not (tmp_path / "runs" / "interrupted" / "redis.json").exists()
