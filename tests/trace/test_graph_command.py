"""`supervisor graph` of traces and of a live run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.scene import Scene, lock_wait
from unknot.supervisor.store.redis_store import RedisStore

TRACE = Path(__file__).resolve().parents[2] / "examples" / "traces" / "f06_two_rows_in_two_orders.jsonl"
Supervisor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("form", "begins"), [("text", "* agent/a —"), ("dot", "digraph"), ("mermaid", "flowchart LR"), ("svg", "<svg ")]
)
def test_a_trace_is_drawn_in_each_form(supervisor: Supervisor, form: str, begins: str) -> None:
    done = supervisor("graph", "--trace", TRACE, "--format", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(begins)


def test_json_keeps_the_contract(supervisor: Supervisor) -> None:
    told = json.loads(supervisor("graph", "--trace", TRACE, "--json").stdout)
    assert (told["schema"], told["partial"]) == ("supervisor.graph/1", False)
    assert {item["item"] for item in told["items"]} == {"node", "edge"}


def test_a_picture_that_leaves_somebody_out_says_that_it_is_partial(supervisor: Supervisor) -> None:
    told = json.loads(supervisor("graph", "--trace", TRACE, "--json", "--limit", 1).stdout)
    assert (told["partial"], told["problems"]) == (True, ["1 participants are left out; see --limit"])


def test_until_draws_a_trace_as_it_was(supervisor: Supervisor) -> None:
    done = supervisor("graph", "--trace", TRACE, "--until", 8)
    assert "*" not in done.stdout
    assert supervisor("graph", "--until", 8).returncode == 2


def test_letters_stand_for_signs_where_they_are_asked_for(supervisor: Supervisor) -> None:
    assert supervisor("graph", "--trace", TRACE, "--ascii").stdout.isascii()


def test_a_live_run_is_drawn_by_the_last_word_of_its_processes(
    supervisor: Supervisor, store: RedisStore, redis_url: str
) -> None:
    at = ("--redis", redis_url, "--run", store.run)
    assert supervisor("graph", *at).returncode == 2
    scene = Scene(store)
    for one, (mine, other) in {"agent/a": ("lock:x/1", "lock:y/2"), "agent/b": ("lock:y/2", "lock:x/1")}.items():
        scene.member(one)
        scene.record(f"{one}#1", *lock_wait(f"{one}#1", mine=mine, other=other, at=scene.now - 42))
    done = supervisor("graph", *at, "--color", "never")
    assert (done.returncode, done.stderr) == (0, "")
    assert "* agent/a —42 s (agents.py:31)→ lock:y/2 → agent/b" in done.stdout
