"""A server that always sends something and never a whole answer: each command ends by its --timeout."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.drip import dripping
from tests.cli.running import LIMIT_S, Run, only_line
from tests.cli.scene import Scene
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.store.redis_store import RedisStore

COMMANDS = [
    "status --run x",
    "status",
    "watch --run x",
    "explain latest --run x",
    "graph --run x",
    "record trace.jsonl --run x",
    "checkpoints list --run x",
    "daemon",
    "daemon --run x",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_server_that_drips_is_3_by_the_timeout(bare: Run, command: str) -> None:
    with dripping() as server:
        done = bare(*command.split(), "--redis", server.url, "--timeout", "1s")
    assert (done.returncode, done.stdout) == (exit_codes.UNREACHABLE, "")
    assert f"127.0.0.1:{server.port}/0: it has not answered in full within 1 s" in only_line(done.stderr)


def test_a_watched_server_that_begins_to_drip_is_3(
    spawn: Callable[..., subprocess.Popen[str]], redis_url: str, store: RedisStore
) -> None:
    Scene(store).member("trainer/0")
    with dripping(redis_url) as server:
        process = spawn("watch", "--interval", "250ms", "--timeout", "2s", "--redis", server.url)
        assert process.stdout is not None
        assert "is live" in process.stdout.readline()
        server.drip()
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == exit_codes.UNREACHABLE
    assert "it has not answered in full within 2 s" in only_line(stderr)


def test_a_recorded_server_that_begins_to_drip_is_3(
    spawn: Callable[..., subprocess.Popen[str]], redis_url: str, store: RedisStore, tmp_path: Path
) -> None:
    Scene(store).member("trainer/0")
    trace = tmp_path / "trace.jsonl"
    with dripping(redis_url) as server:
        process = spawn("record", str(trace), "--timeout", "2s", "--redis", server.url)
        while not trace.exists() or not trace.stat().st_size:
            assert process.poll() is None
            store.time()
        server.drip()
        _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == exit_codes.UNREACHABLE
    assert "it has not answered in full" in only_line(stderr)


def test_a_receiver_of_alerts_that_drips_is_5_by_the_timeout(bare: Run) -> None:
    env = {"SUPERVISOR_WEBHOOK_SECRET": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwqpPbS1/3EBc="}
    with dripping() as server:
        done = bare("alerts", "test", f"http://127.0.0.1:{server.port}/hook", "--timeout", "1s", env=env)
    assert done.returncode == exit_codes.FAILED
    assert "did not take the test alert" in only_line(done.stderr)
