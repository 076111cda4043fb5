"""Mistakes in what the command is given: one line on stderr, an exit code, and nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import Run, only_line
from tests.cli.scene import Scene
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.store.redis_store import RedisStore


def test_a_redis_that_is_not_there_is_3_in_one_line_without_the_password(bare: Run) -> None:
    done = bare("status", "--redis", "redis://:geheim@127.0.0.1:1", "--run", "x", "--timeout", "500ms")
    assert (done.returncode, done.stdout) == (exit_codes.UNREACHABLE, "")
    assert "127.0.0.1:1" in only_line(done.stderr)
    assert "geheim" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("tail", "said"),
    [("/0?bogus=1", "option 'bogus'"), ("/0?db=x", "db="), ("/abc", "no number of a database"), ("/0#x", "%23")],
)
def test_an_address_with_a_part_that_cannot_be_is_2_in_one_line_without_the_password(quick: Run, tail: str, said: str) -> None:
    done = quick("status", "--redis", f"redis://:geheim@127.0.0.1:1{tail}", "--run", "x")
    assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
    assert said in only_line(done.stderr)
    assert "geheim" not in done.stderr


def test_with_v_there_is_a_traceback(quick: Run) -> None:
    done = quick("status", "-v", "--redis", "redis://127.0.0.1:1", "--run", "x", "--timeout", "500ms")
    assert done.returncode == exit_codes.UNREACHABLE
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")


def test_no_address_and_no_run_on_this_machine_is_3_and_says_what_to_give(bare: Run) -> None:
    done = bare("status")
    assert done.returncode == exit_codes.UNREACHABLE
    assert "--redis URL" in only_line(done.stderr)


def test_an_unknown_run_is_2_and_the_live_ones_are_named(quickly: Run, store: RedisStore) -> None:
    Scene(store)
    done = quickly("status", "--run", "nowhere")
    assert done.returncode == exit_codes.USAGE
    assert store.run in only_line(done.stderr) or "more" in done.stderr


def test_more_than_one_live_run_is_2_and_they_are_named(
    quickly: Run, redis_url: str, store: RedisStore
) -> None:
    Scene(store)
    with RedisStore.connect(redis_url, f"{store.run}-b") as other:
        Scene(other)
        done = quickly("status", env={"SUPERVISOR_RUN": ""})
        other.command("HSET", other.key("run"), "state", "closed")
    assert done.returncode == exit_codes.USAGE
    assert "more than one run is live" in only_line(done.stderr)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("status", "--bad"), "--bad"),
        (("nothing",), "nothing"),
        (("watch", "--interval", "100ms"), "too short"),
        (("watch", "--interval", "1"), "has no unit"),
        (("status", "--timeout", "soon"), "is not a duration"),
        (("status", "--config", "nowhere.toml"), "nowhere.toml"),
        (("status", "--run", "a b"), "a-b"),
        (("status", "--run=-x"), "'-x' cannot name a run"),
        (("status", "--run="), "'' cannot name a run"),
        (("watch", "-r", "--once"), "'--once' cannot name a run"),
        (("statsu",), "no such command 'statsu' (did you mean status?); see 'supervisor --help'"),
        (("alerts", "tset"), "(did you mean test?); see 'supervisor alerts --help'"),
        (("status", "--rdis", "x"), "supervisor status: no such option: --rdis (did you mean --redis?); see 'supervisor status"),
        (("status", "extra"), "unexpected extra argument"),
        (("status", "--run"), "'--run' requires an argument"),
        (("status", "--json=3"), "'--json' does not take a value"),
        (("explain",), "supervisor explain: missing argument 'ID'; see 'supervisor explain --help'"),
        (("watch", "--fail-on", "deadlok"), "(did you mean deadlock?)"),
        (("graph", "--format", "svgg"), "(did you mean svg?)"),
        (("graph", "--json", "--format", "svg"), "--json and --format svg ask for two formats; give one of them"),
        (("graph", "--json", "-o", "text"), "--json and --format text ask for two formats"),
        (("graph", "--limit", "x"), "invalid value for '--limit': give a whole number"),
        (("replay", "-", "--until", "0"), "invalid value for '--until': give at least 1"),
        (("diagnose", ".", "--world-size", "2000000"), "'--world-size': give at most 1000000"),
        (("completion", "zhs"), "(did you mean zsh?)"),
        (("config", "--config", "."), "is a directory"),
    ],
)
def test_a_mistake_in_the_arguments_is_2_with_nothing_on_stdout(
    quickly: Run, args: tuple[str, ...], said: str
) -> None:
    done = quickly(*args)
    assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
    assert said in only_line(done.stderr)
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize("group", [(), ("alerts",), ("checkpoints",), ("help",)])
def test_a_command_without_what_it_needs_to_go_on_shows_its_help(quick: Run, group: tuple[str, ...]) -> None:
    done = quick(*group)
    assert done.returncode == exit_codes.USAGE
    assert "Usage: " in done.stdout + done.stderr


def test_a_variable_that_names_no_run_is_2_and_named(quick: Run) -> None:
    done = quick("status", env={"SUPERVISOR_RUN": "my run"})
    assert done.returncode == exit_codes.USAGE
    assert "SUPERVISOR_RUN: 'my run' cannot name a run" in only_line(done.stderr)


def test_the_options_that_commands_share_are_the_same_in_each(quick: Run) -> None:
    of_run = ("--redis URL", "--run NAME", "--timeout DURATION", "--config FILE", "--verbose")
    of_text = ("--color", "--ascii")
    for command in ("status", "watch", "explain", "graph", "checkpoints list", "checkpoints show", "checkpoints verify"):
        text = quick(*command.split(), "--help").stdout
        assert not [option for option in (*of_run, *of_text) if option not in text], command
    for command in ("record", "daemon"):
        text = quick(command, "--help").stdout
        assert not [option for option in of_run if option not in text], command


@pytest.mark.parametrize(
    "command",
    [("watch",), ("status",), ("graph",), ("record", "trace.jsonl"), ("explain", "latest"), ("checkpoints", "list"), ("daemon",)],
)
def test_a_command_that_finds_no_run_makes_no_file_and_no_directory(
    quick: Run, bare: Run, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    run = bare if command == ("daemon",) else quick  # it takes the signals of its process
    for more in (("--run", "none"), ("--run", "none", "--redis", "redis://127.0.0.1:1", "--timeout", "300ms")):
        assert run(*command, *more).returncode == exit_codes.UNREACHABLE
    assert sorted(tmp_path.rglob("*")) == before


def test_a_misspelt_variable_is_a_warning_on_stderr(supervisor: Run, store: RedisStore) -> None:
    Scene(store)
    done = supervisor("status", "--json", env={"SUPERVISOR_LEESE_S": "3"})
    assert done.returncode == exit_codes.OK
    assert "did you mean SUPERVISOR_LEASE_S?" in only_line(done.stderr)
    json.loads(only_line(done.stdout))
