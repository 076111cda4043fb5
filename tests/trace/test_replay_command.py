"""`supervisor replay` as users and scripts meet it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trace.lines import crossed, encoded, one

ROOT = Path(__file__).resolve().parents[2]
Supervisor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "ring.jsonl"
    path.write_bytes(b"".join(encoded(*crossed())))
    return path


def test_incidents_are_told_in_sentences_and_the_exit_code_says_found(supervisor: Supervisor, ring: Path) -> None:
    done = supervisor("replay", ring, "--color", "never")
    assert done.returncode == 1
    assert "DEADLOCK in run r: a → lock:2 → b → lock:1 → a" in done.stdout
    assert "cycle; opened at line 10, open at the end" in done.stdout
    assert done.stderr == ""


def test_json_is_the_documented_answer(supervisor: Supervisor, ring: Path) -> None:
    done = supervisor("replay", ring, "--json")
    told = json.loads(done.stdout)
    assert (told["schema"], told["events"], told["hazards"]) == ("unknot.replay/1", 9, [])
    assert told["final"] == {"stuck": ["a#1", "b#1"], "core": ["a#1", "b#1"], "running": ["c#1"]}
    incident = told["incidents"][0]
    assert set(incident) == {
        "id", "cause", "kind", "core", "stuck", "opened_line", "resolved_line", "deadline_in_s", "text",
    }  # fmt: skip


def test_until_stops_after_a_line(supervisor: Supervisor, ring: Path) -> None:
    done = supervisor("replay", ring, "--json", "--until", 9)
    assert (done.returncode, json.loads(done.stdout)["events"]) == (0, 8)


def test_bad_input_is_one_line_and_exit_code_2(supervisor: Supervisor, ring: Path) -> None:
    ring.write_bytes(ring.read_bytes() + b'{"ev":"wake","p":"a#1","ticket":7}\n')
    done = supervisor("replay", ring)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: line 11: a#1 wakes from ticket 7; expected its ticket 1\n"


def test_lenient_counts_and_skips(supervisor: Supervisor, ring: Path) -> None:
    ring.write_bytes(ring.read_bytes() + b'{"ev":"wake","p":"a#1","ticket":7}\nnonsense\n')
    done = supervisor("replay", ring, "--lenient", "--json")
    assert (done.returncode, json.loads(done.stdout)["skipped"]) == (1, 2)
    assert done.stderr.count("warning: skipped: line 1") == 2


def test_a_healthy_trace_ends_with_exit_code_0(supervisor: Supervisor, ring: Path) -> None:
    ring.write_bytes(b"".join(encoded(*crossed()[:-1], one("release", "b#1", r="lock:2"))))
    assert supervisor("replay", ring).returncode == 0


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_named(supervisor: Supervisor, tmp_path: Path, name: str) -> None:
    done = supervisor("replay", tmp_path / name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path / name} cannot be read: ")


def test_a_trace_comes_from_stdin_too_and_no_heavy_module_is_loaded(ring: Path) -> None:
    code = (
        "import sys; from unknot.supervisor.cli.main import main\n"
        "sys.argv = ['supervisor', 'replay', '-', '--json']\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "heavy = {'redis', 'ray', 'torch', 'networkx', 'rich', 'structlog', 'numpy'} & set(sys.modules)\n"
        "sys.stderr.write(f'{code} {sorted(heavy)}')\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], input=ring.read_bytes(), capture_output=True, check=True, timeout=60, env=env
    )
    assert done.stderr.decode() == "1 []"
    assert json.loads(done.stdout)["events"] == 9
