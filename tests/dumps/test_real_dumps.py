"""Dumps that real Gloo ranks wrote are diagnosed: pickled with the places in the code, as JSON without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("rank.py")
Supervisor = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.torch


def dumps(scene: str, size: int, folder: Path) -> Path:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, str(SCRIPT), scene, str(rank), str(size), str(folder)], env=env)
        for rank in range(size)
    ]
    try:
        assert [rank.wait(150) for rank in ranks] == [0] * size
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return folder


def test_two_groups_crossed_are_one_ring_with_both_places(tmp_path: Path, supervisor: Supervisor) -> None:
    folder = dumps("crossed", 2, tmp_path)
    done = supervisor("diagnose", folder, "--json")
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["items"]
    assert (found["cause"], found["kind"], found["culprits"]) == ("deadlock", "cycle", [0, 1])
    assert "all_reduce #2 of group default_pg (dumps/rank.py:" in found["text"]
    assert "broadcast #2 of group" in found["text"]
    told = json.loads(supervisor("diagnose", folder / "json", "--json").stdout)
    assert told["items"][0]["kind"] == "cycle"
    assert "site unknown" in told["items"][0]["text"]
    assert (told["partial"], "no frames" in told["problems"][0]) == (True, True)


def test_a_rank_that_does_not_come_is_called_and_its_last_operation_named(tmp_path: Path, supervisor: Supervisor) -> None:
    folder = dumps("left_out", 3, tmp_path)
    done = supervisor("diagnose", folder)
    assert done.returncode == 1
    assert "ABSENT: rank 2 in group default_pg" in done.stdout
    assert "all_reduce #2 of group default_pg" in done.stdout
    assert "2 of 3 ranks arrived" in done.stdout
    assert "rank 2 is missing: its last operation" in done.stdout
    assert "completed" in done.stdout
    (folder / "trace_2").unlink()
    without = supervisor("diagnose", folder, "--world-size", 3)
    assert "rank 2 is missing: it left no dump" in without.stdout
    assert "warning: incomplete: no dump of rank 2: it may be the one that failed" in without.stderr
