"""Ways to run the command: in a process of its own or in this one, for the run of a test or without any."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import COMMAND, LIMIT_S, ROOT, Done, Run
from unknot.supervisor.cli.main import main
from unknot.supervisor.store.redis_store import RedisStore


@pytest.fixture
def base_env(tmp_path: Path) -> dict[str, str]:
    """An environment without settings of whoever runs the tests, and with no run on this machine."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SUPERVISOR_", "UNKNOT_"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "SUPERVISOR_RUN_DIR": str(tmp_path / "runs"),
        "XDG_STATE_HOME": str(tmp_path),
    }


@pytest.fixture
def bare(base_env: dict[str, str], tmp_path: Path) -> Run:
    """Runs the command in a process of its own, without any address."""

    def run(*args: str, env: Mapping[str, str] | None = None) -> Done:
        return subprocess.run(
            [*COMMAND, *args],
            env={**base_env, **(env or {})},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return run


@pytest.fixture
def quick(
    base_env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """As `bare`, but in this process: where a process of its own proves nothing more."""

    def run(*args: str, env: Mapping[str, str] | None = None) -> Done:
        with monkeypatch.context() as patch:
            for name in set(os.environ) - set(base_env):
                patch.delenv(name)
            for name, value in {**base_env, **(env or {})}.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["supervisor", *args])
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(args, ended.value.code, out, err)

    return run


def at_run(run: Run, redis_url: str, name: str) -> Run:
    """The same for one run."""

    def at(*args: str, env: Mapping[str, str] | None = None) -> Done:
        return run(*args, env={"SUPERVISOR_REDIS": redis_url, "SUPERVISOR_RUN": name, **(env or {})})

    return at


@pytest.fixture
def supervisor(bare: Run, redis_url: str, store: RedisStore) -> Run:
    """Runs the command in a process of its own, for the run of this test."""
    return at_run(bare, redis_url, store.run)


@pytest.fixture
def quickly(quick: Run, redis_url: str, store: RedisStore) -> Run:
    """Runs the command in this process, for the run of this test."""
    return at_run(quick, redis_url, store.run)


@pytest.fixture
def spawn(
    base_env: dict[str, str], redis_url: str, store: RedisStore
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command and leaves it running."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str, **more: Any) -> subprocess.Popen[str]:
        env = {**base_env, "SUPERVISOR_REDIS": redis_url, "SUPERVISOR_RUN": store.run}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        # Whoever runs the tests in the background of a shell has the interrupt ignored, and children inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            started.append(subprocess.Popen([*COMMAND, *args], env=env, text=True, **streams))
        finally:
            signal.signal(signal.SIGINT, before)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
