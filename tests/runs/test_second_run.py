"""A second run of one name on a server that stays: the one before is history."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ray

import unknot
from unknot.recovery.registration import members
from unknot.supervisor.store.redis_store import RedisStore

LIMIT = timedelta(seconds=120)
pytestmark = pytest.mark.ray

_DRIVER = """
import os, sys, time
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import end_other, new_boot, register
from unknot.recovery.run import RunClaim
from unknot.supervisor.store.redis_store import RedisStore
with RedisStore.connect(*sys.argv[1:]) as store:
    RunClaim.take(store, lease_s=600)
    for member in ("agent/a", "agent/old", "agent/failed"):
        place = register(store, member, role="agent", pid=os.getpid(), host="here", boot=new_boot())
        recorder = NullRecorder(member, place.incarnation)
    end_other(store, "agent/failed", state="dead", error="ValueError: the first time")
    box = Mailbox("work", store, NullRecorder("agent/old", 1)).declare()
    box.send("in hand")
    box.receive()
    print("there", flush=True)
    time.sleep(600)
"""


@ray.remote
@unknot.agent
class Failing:
    """Raises at once."""

    def run(self) -> None:
        raise ValueError("on purpose")


@ray.remote
@unknot.agent
class Taking:
    """Takes one item."""

    def run(self) -> None:
        box = unknot.Mailbox("work")
        box.ack(box.receive())


@pytest.fixture
def init(
    ray_cluster: None, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], unknot.Run]:
    """`init(name)` starts a run of that name on the server that stays."""
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", str(tmp_path))
    return lambda name: unknot.init(name, redis=redis_url)


def told_members(run: unknot.Run) -> list[str]:
    with RedisStore.connect(run.redis_url, run.name) as store:
        return [one.member for one in members(store)]


def supervisor(run: unknot.Run, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "unknot.supervisor.cli.main", *arguments, "--run", run.name, "--redis", run.redis_url]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_after_a_run_that_failed_the_next_one_of_its_name_has_neither_its_members_nor_its_incidents(
    init: Callable[[str], unknot.Run], eventually: Any
) -> None:
    name = f"second-{os.getpid()}"
    with init(name) as run:
        run.spawn(Failing, name="f")
        with pytest.raises(unknot.RunFailed):
            run.wait(timeout=LIMIT)
        eventually(lambda: [i.kind for i in run.incidents()] == ["member"], limit_s=30.0)
        (old,) = run.incidents()
    news = io.StringIO()
    with redirect_stderr(news), init(name) as run:
        assert told_members(run) == ["driver/main"]
        run.mailbox("work").send("new")
        run.spawn(Taking, name="a")
        report = run.wait(timeout=LIMIT)
        assert told_members(run) == ["agent/a", "driver/main"]
        status = supervisor(run, "status")
        explained = supervisor(run, "explain", old.id)
    assert report.incidents == ()
    assert old.id not in news.getvalue()
    assert status.returncode == 0, status.stdout
    assert "agent/f" not in status.stdout
    assert "it was open when that start of the run ended" in explained.stdout


def test_after_a_driver_that_was_killed_the_next_one_goes_on_at_once_without_its_members(
    init: Callable[[str], unknot.Run], redis_url: str
) -> None:
    name = f"killed-{os.getpid()}"
    command = [sys.executable, "-c", _DRIVER, redis_url, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
        try:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "there\n"
        finally:
            driver.kill()
    with init(name) as run:
        assert told_members(run) == ["driver/main"]
        run.spawn(Taking, name="a")
        report = run.wait(timeout=LIMIT)
        assert told_members(run) == ["agent/a", "driver/main"]
    assert report.outcomes == {"agent/a": "done"}, "it had what a lost member had in hand"
    assert report.incidents == ()
