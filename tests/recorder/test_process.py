"""Who a process is: members, their forked and started children, and members whose publisher is cut off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.recorder.members import Member
from unknot.recovery.errors import NotAMember
from unknot.recovery.registration import one_member
from unknot.supervisor import process as processes
from unknot.supervisor.config import Config
from unknot.supervisor.process import WORKER_ENV, WorkerSettings
from unknot.supervisor.store.redis_store import RedisStore

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def family(redis_url: str) -> dict[str, dict[str, object]]:
    """What the parent and its children said, by who they are."""
    settings = WorkerSettings(
        run=f"family-{os.getpid()}", redis=redis_url, member="trainer/0", role="trainer", config=Config(redis=redis_url)
    )
    env = {**os.environ, WORKER_ENV: settings.to_environment(), "PYTHONPATH": str(ROOT)}
    script = Path(__file__).parent / "forking.py"
    ended = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return {one["who"]: one for one in map(json.loads, ended.stdout.splitlines())}


def test_a_forked_child_is_no_member_and_has_no_recorder(family: dict[str, dict[str, object]]) -> None:
    child = family["forked"]
    assert child["is_member"] is False
    assert "unknot.Lock, used in a forked child, needs a run" in str(child["current"])
    assert "unknot.join needs a run" in str(child["join"])
    assert "forked child" in str(child["participant"])
    assert child["threads"] == ["MainThread"]


def test_locks_work_in_a_forked_child_as_those_of_the_standard_library_do(family: dict[str, dict[str, object]]) -> None:
    child = family["forked"]
    assert (child["free_lock"], child["timed_out"], child["still_taken"]) == (True, True, True)
    assert family["parent"]["free"] is True


def test_no_child_replaces_its_parent(family: dict[str, dict[str, object]]) -> None:
    assert family["started"]["is_member"] is False
    assert family["parent"]["source"] == family["parent"]["newest"] == "trainer/0#1"


def test_outside_of_a_run_a_call_says_where_it_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WORKER_ENV, raising=False)
    assert not processes.is_member()
    with pytest.raises(NotAMember, match=r"unknot\.Lock needs a run"):
        processes.current("unknot.Lock")


def test_a_process_joins_once_and_leaves_once(
    redis_url: str, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = WorkerSettings(run=store.run, redis=redis_url, member="agent/a", role="agent", config=Config())
    monkeypatch.setenv(WORKER_ENV, settings.to_environment())
    try:
        joined = processes.current("unknot.Lock")
        assert processes.join() is joined is processes.current("unknot.Mailbox")
        assert WORKER_ENV not in os.environ, "no child process finds the place of its parent"
        assert (one_member(store, "agent/a").state, joined.source) == ("alive", "agent/a#1")
    finally:
        processes.leave(how="dead", error="ValueError: x")
    processes.leave()
    known = one_member(store, "agent/a")
    assert (known.state, known.error, known.incarnation) == ("dead", "ValueError: x", 1)
    with pytest.raises(NotAMember):
        processes.current("unknot.Lock")


def test_the_stacks_of_a_process_name_its_threads_and_not_ours(member: Callable[..., Member]) -> None:
    stacks = member("agent/a").process.stacks()
    (mine,) = (text for text in stacks if text.startswith("MainThread: "))
    assert "recorder/test_process.py" in mine
    assert not any(text.startswith("unknot-") for text in stacks)
