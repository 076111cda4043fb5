"""Standard streams that are closed, full, or read by nobody: what the command says, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.cli.running import COMMAND, LIMIT_S, Done, Run, only_line
from tests.cli.scene import Scene, lock_wait
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.text import clean_json
from unknot.supervisor.store.redis_store import RedisStore

HOSTILE = "a\x1b[2J\x7f\x9b31m\u202eb\U000e0001"
TERMINALS_WORDS = ("\x1b", "\x7f", "\x9b", "\u202e", "\U000e0001")


@pytest.fixture
def shell(base_env: dict[str, str], tmp_path: Path) -> Callable[[str], Done]:
    """Runs one line of shell in which `$S` is the command, for its ways to close and to fill streams."""

    def run(line: str) -> Done:
        return subprocess.run(
            ["bash", "-c", f'S="{" ".join(COMMAND)}"; {line}'],
            env=base_env, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip

    return run


@pytest.mark.parametrize("what", ["config", "config --json", "--help", "completion bash", "--version"])
@pytest.mark.parametrize(("where", "why"), [("> /dev/full", "No space left on device"), (">&-", "Bad file descriptor")])
def test_an_output_that_cannot_be_written_is_5_and_one_line(
    shell: Callable[[str], Done], what: str, where: str, why: str
) -> None:
    done = shell(f"$S {what} {where}")
    assert done.returncode == exit_codes.FAILED
    assert only_line(done.stderr) == f"error: cannot write the output: {why}; give it a place that takes it"


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("config", exit_codes.OK),
        ("config --bad", exit_codes.USAGE),
        ("status --run x", exit_codes.UNREACHABLE),
        ("config > /dev/full", exit_codes.FAILED),
        ("replay - <&-", exit_codes.USAGE),
    ],
)
def test_a_stderr_that_cannot_be_written_changes_no_exit_code(
    shell: Callable[[str], Done], what: str, code: int, where: str
) -> None:
    done = shell(f"export SUPERVISOR_LEESE_S=3; $S {what} {where}")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_closed_stdin_is_named(shell: Callable[[str], Done]) -> None:
    done = shell("$S replay - <&-")
    assert done.returncode == exit_codes.USAGE
    assert "- cannot be read: Bad file descriptor" in only_line(done.stderr)


@pytest.mark.parametrize("what", ["config", "--help", "completion bash"])
def test_a_reader_that_has_left_ends_the_command_silently(
    base_env: dict[str, str], tmp_path: Path, what: str
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *what.split()], env=base_env, cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (exit_codes.OK, b"")


def test_watch_ends_when_its_reader_leaves_though_nothing_changes(
    spawn: Callable[..., subprocess.Popen[str]], store: RedisStore
) -> None:
    Scene(store).member("trainer/0")
    process = spawn("watch", "--interval", "10m")
    assert process.stdout is not None
    for _ in range(3):
        process.stdout.readline()
    process.stdout.close()
    process.wait(LIMIT_S)
    assert process.stderr is not None
    assert (process.returncode, process.stderr.read()) == (exit_codes.OK, "")


@pytest.mark.parametrize("command", ["status", "watch -1", "graph --all", "status -v --json", "graph --json --all"])
def test_names_of_a_run_reach_no_terminal_raw(quickly: Run, store: RedisStore, command: str) -> None:
    scene = Scene(store)
    scene.member(f"agent/{HOSTILE}", error=HOSTILE, host=HOSTILE)
    who = f"agent/{HOSTILE}#1"
    scene.record(who, *lock_wait(who, mine=f"lock:{HOSTILE}", other=f"lock:{HOSTILE}2", at=scene.now - 42))
    done = quickly(*command.split())
    assert done.returncode in (exit_codes.OK, exit_codes.FOUND)
    assert not [sign for sign in TERMINALS_WORDS if sign in done.stdout + done.stderr]


def test_a_version_of_the_server_reaches_no_terminal_raw_even_with_a_traceback(
    quick: Run, hostile_server: str
) -> None:
    done = quick("status", "-v", "--redis", hostile_server, "--run", "x")
    assert done.returncode == exit_codes.UNREACHABLE
    assert "Traceback" in done.stderr
    assert "\\x1b[2J" in done.stderr
    assert not [sign for sign in TERMINALS_WORDS if sign in done.stderr]


@pytest.fixture
def hostile_server(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a real server whose version is told with control characters, which none does by itself."""
    told = {"redis_version": f"5.0{HOSTILE}"}
    monkeypatch.setattr(redis.Redis, "info", lambda *_, **__: told)
    return redis_url


def test_json_written_for_a_terminal_reads_as_the_same_value() -> None:
    text = json.dumps({"name": HOSTILE, "other": "Zürich → 日本"}, ensure_ascii=False)
    assert json.loads(clean_json(text)) == json.loads(text)
    assert not [sign for sign in TERMINALS_WORDS if sign in clean_json(text)]
