"""The smallest example, as a user starts it: it hangs alone, is explained and freed, and its healthy twin is left alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "crossed_wait" / "main.py"
pytestmark = [pytest.mark.ray, pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(240)]


def run(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "SUPERVISOR_RUN_DIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, str(PROGRAM), *options], env=environ, capture_output=True, text=True, timeout=220, check=False
    )


def test_without_a_supervisor_it_hangs_until_its_own_limit(tmp_path: Path) -> None:
    done = run(tmp_path, "--no-supervisor", "--limit-s", "15")
    assert done.returncode == 1, done.stderr
    assert "hangs: " in done.stdout
    assert "DEADLOCK" not in done.stdout


def test_it_is_explained_with_members_lock_group_number_and_both_sites_then_freed_and_finished(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert text.startswith("DEADLOCK in run ")
    assert "trainer/0#1 waits" in text
    assert "trainer/1#1 waits" in text
    assert "for lock weights (crossed_wait/main.py:" in text
    assert re.search(r"in all_reduce #\d+ of group policy \(crossed_wait/main\.py:\d+\)", text)
    assert re.search(r"confirmed \d+\.\d\d s after the closing wait; freed by break of group policy", text)
    assert "3 steps finished, 1 incident(s)" in text


def test_its_healthy_twin_is_slow_and_gives_no_incident(tmp_path: Path) -> None:
    done = run(tmp_path, "--healthy", "--busy-s", "8")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "3 steps finished, 0 incident(s)"
