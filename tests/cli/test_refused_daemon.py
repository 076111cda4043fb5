"""What `supervisor daemon` does with a Redis that refuses: it ends where waiting helps nobody, and waits where it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import redis

from tests.cli.running import LIMIT_S, ROOT, Run
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.config import Config
from unknot.supervisor.process import MONITOR_ENV, MonitorSettings
from unknot.supervisor.store.embedded import start_redis

PASSWORD = "hunter2-secret"


@pytest.fixture
def own_url(tmp_path: Path) -> Iterator[str]:
    """A server whose settings and users a test may change."""
    with start_redis(tmp_path / "own") as server:
        yield server.url


@pytest.fixture
def admin(own_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_url) as client:
        yield client


def set_user(admin: redis.Redis, own_url: str, rules: str) -> str:
    admin.execute_command("ACL", "SETUSER", "trainer", "reset", "on", f">{PASSWORD}", *rules.split())  # type: ignore[no-untyped-call]
    return f"redis://trainer:{PASSWORD}@{own_url.rpartition('@')[2]}"


@pytest.mark.parametrize("rules", ["~* &* +@all -@scripting", "~other:* &* +@all"])
def test_a_user_without_the_permissions_ends_it_with_one_line(bare: Run, admin: redis.Redis, own_url: str, rules: str) -> None:
    done = bare("daemon", "--redis", set_user(admin, own_url, rules), "--run", "ppo-17")
    assert (done.returncode, done.stdout) == (exit_codes.UNREACHABLE, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: cannot use Redis at 127.0.0.1:")
    assert "its user has no permission (NOPERM) for the " in line
    assert PASSWORD not in line


def test_the_monitor_that_a_driver_starts_says_the_same_in_one_line_of_its_log(admin: redis.Redis, own_url: str) -> None:
    config = Config(redis=set_user(admin, own_url, "~* &* +@all -@scripting"))
    told = msgspec.json.encode(MonitorSettings(run="ppo-17", config=config)).decode()
    done = subprocess.run(
        [sys.executable, "-m", "unknot.supervisor.monitor"], env={**os.environ, "PYTHONPATH": str(ROOT), MONITOR_ENV: told},
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == exit_codes.UNREACHABLE
    (line,) = done.stderr.splitlines()
    assert "its user has no permission (NOPERM) for the command EVALSHA" in json.loads(line)["error"]
    assert PASSWORD not in line


def test_a_permission_that_is_taken_away_while_it_leads_ends_it_without_a_traceback(
    spawn: Callable[..., subprocess.Popen[str]], admin: redis.Redis, own_url: str, eventually: Callable[..., None]
) -> None:
    process = spawn("daemon", "--redis", set_user(admin, own_url, "~* &* +@all"), "--run", "ppo-17")
    eventually(lambda: admin.hget("unknot:{ppo-17}:leader", "holder"), LIMIT_S)
    set_user(admin, own_url, "~* &* +@all -@scripting")
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == exit_codes.UNREACHABLE
    assert "Traceback" not in said
    assert [line for line in said.splitlines() if line.startswith("error: ")] == said.splitlines()[-1:]


def test_a_redis_without_memory_is_waited_for_with_one_line_for_each_try(
    spawn: Callable[..., subprocess.Popen[str]], admin: redis.Redis, own_url: str, eventually: Callable[..., None], tmp_path: Path
) -> None:
    told = tmp_path / "told"

    def tries() -> list[float]:
        lines = [json.loads(line) for line in told.read_text().splitlines() if line.endswith("}")]
        return [line["again_in_s"] for line in lines if line["event"] == "monitor.store.away"]

    with told.open("w") as out:
        process = spawn("daemon", "--redis", own_url, "--run", "ppo-17", stderr=out)
    eventually(lambda: admin.hget("unknot:{ppo-17}:leader", "holder"), LIMIT_S)
    admin.config_set("maxmemory", 1)
    eventually(lambda: len(tries()) >= 2, LIMIT_S)
    assert tries()[:2] == [1.0, 2.0]
    admin.delete("unknot:{ppo-17}:leader")
    admin.config_set("maxmemory", 0)
    eventually(lambda: admin.hget("unknot:{ppo-17}:leader", "holder"), LIMIT_S)
    process.terminate()
    assert process.wait(LIMIT_S) == exit_codes.OK
    assert "raceback" not in told.read_text()
