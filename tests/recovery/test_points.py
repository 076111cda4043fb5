"""A named point acts once, on the member and at the passage that were asked for, and leaves word before it acts."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from unknot.recovery.errors import ConfigError
from unknot.recovery.points import FAULTS_ENV, LOG_ENV, FaultInjected, fired, parse_faults

_PASSES_TWICE = "from unknot.recovery.points import reached; reached('a.b', 'x/1'); reached('a.b', 'x/1'); print('through')"


def _run(faults: str, log: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, FAULTS_ENV: faults, LOG_ENV: str(log)}
    return subprocess.run(
        [sys.executable, "-c", _PASSES_TWICE], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_armed_point_kills_at_the_passage_asked_for_and_never_again(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert _run("a.b#2@x/1=kill", log).returncode == -signal.SIGKILL
    assert fired(str(log)) == ["a.b#2@x/1=kill"]
    assert _run("a.b#2@x/1=kill", log).stdout == "through\n"


def test_a_point_of_another_name_or_member_or_a_passage_that_does_not_come_does_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert _run("a.c=kill a.b@x/2=kill a.b#3=kill", log).stdout == "through\n"
    assert fired(str(log)) == []


def test_a_point_may_raise_instead(tmp_path: Path) -> None:
    outcome = _run("a.b=raise", tmp_path / "log")
    assert outcome.returncode == 1
    assert "a fault was injected at a.b" in outcome.stderr


def test_a_fault_that_is_none_is_refused_with_the_form_it_should_have() -> None:
    with pytest.raises(ConfigError, match="POINT"):
        parse_faults("a.b=explode")


def test_an_injected_fault_crosses_processes() -> None:
    assert pickle.loads(pickle.dumps(FaultInjected(point="a.b"))).point == "a.b"
