from __future__ import annotations

import os
from pathlib import Path

import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest

from unknot.recovery.errors import ConfigError
from unknot.supervisor.store.location import (
    discover,
    read_redis_file,
    run_directory,
    runs_directory,
    same_process,
    validate_run_name,
)


@pytest.mark.parametrize("name", ["ppo-17", "a", "A.b_c-1", "x" * 64])
def test_letters_digits_dots_underscores_and_dashes_name_a_run(name: str) -> None:
    assert validate_run_name(name) == name


@pytest.mark.parametrize(
    ("name", "proposal"),
    [
        ("my run", "my-run"),
        ("", "run"),
        ("..", "run"),
        ("-", "run"),
        ("-x", "x"),
        ("--run", "run"),
        ("../etc", "etc"),
        ("päron/1", "p-ron-1"),
        ("x" * 65, "x" * 64),
        ("{a}", "a"),
        ("run\n", "run"),
    ],
)
def test_another_name_is_refused_with_one_that_would_do(name: str, proposal: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a run") as caught:
        validate_run_name(name)
    assert caught.value.todo == f"use for example {proposal!r}"
    assert validate_run_name(proposal) == proposal


def test_runs_lie_where_the_environment_says() -> None:
    assert runs_directory({"SUPERVISOR_RUN_DIR": "/data/runs", "XDG_STATE_HOME": "/state"}) == Path("/data/runs")
    assert runs_directory({"XDG_STATE_HOME": "/state"}) == Path("/state/unknot/runs")
    assert runs_directory({}) == Path("~/.local/state/unknot/runs").expanduser()
    assert run_directory("ppo-17", {"SUPERVISOR_RUN_DIR": "/data"}) == Path("/data/ppo-17")


@pytest.mark.parametrize("value", ["~nobody-of-that-name/x", "  ", "a\nb", "a\0b", "a\x1bb"])
def test_a_directory_of_runs_that_is_no_path_is_refused_with_the_name_of_the_variable(value: str) -> None:
    for name in ("SUPERVISOR_RUN_DIR", "XDG_STATE_HOME"):
        with pytest.raises(ConfigError, match=f"^{name} = ") as caught:
            discover(None, {name: value})
        assert "\n" not in str(caught.value)


def test_a_directory_of_runs_that_cannot_be_read_is_one_error_that_names_the_variable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in (("x" * 300, "File name too long"), ("file", "Not a directory"), ("file/x", "Not a directory")):
        for run in (None, "ppo-17"):
            with pytest.raises(ConfigError, match=rf"cannot be read \({why}\); set SUPERVISOR_RUN_DIR"):
                discover(run, {"SUPERVISOR_RUN_DIR": str(tmp_path / path)})


def test_a_discovery_file_that_is_not_whole_is_no_file(tmp_path: Path) -> None:
    assert read_redis_file(tmp_path) is None
    (tmp_path / "redis.json").write_text('{"url": "redis://')
    assert read_redis_file(tmp_path) is None


def test_a_process_is_known_by_its_time_of_creation_too() -> None:
    created = psutil.Process().create_time()
    assert same_process(os.getpid(), created)
    assert not same_process(os.getpid(), created - 100)
    assert not same_process(2**22 + 1, created)
