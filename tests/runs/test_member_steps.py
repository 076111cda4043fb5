"""`unknot.steps` in a process of a run: each member gets its own kind, and an agent loads no torch for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import unknot
from unknot.recovery.step_buffer import seed_of
from unknot.recovery.steps import committed_steps
from unknot.supervisor.config import Config
from unknot.supervisor.process import WORKER_ENV, WorkerSettings
from unknot.supervisor.store.redis_store import RedisStore

AGENT = """
import sys, unknot
for step in unknot.steps(until=2):
    with step:
        step.write("seed", step.seed)
        with unknot.Lock("x"):
            print(step.seq, step.seed, isinstance(step, unknot.Step), step.locks_taken())
print("torch" in sys.modules, "ray" in sys.modules)
"""


def run(store: RedisStore, url: str, member: str, code: str, **more: object) -> subprocess.CompletedProcess[str]:
    settings = WorkerSettings(run=store.run, redis=url, member=member, role=member.split("/")[0], config=Config(seed=7), **more)  # type: ignore[arg-type]
    environment = {**os.environ, WORKER_ENV: settings.to_environment()}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_an_agents_steps_are_transactions_seeded_by_the_run_and_load_no_torch(store: RedisStore, redis_url: str) -> None:
    done = run(store, redis_url, "agent/a", AGENT)
    seeds = [seed_of(7, "agent/a", seq) for seq in range(2)]
    lines = [f"{seq} {seeds[seq]} True {{'x': {seq + 1}}}" for seq in range(2)]
    assert (done.stderr, done.stdout.splitlines()) == ("", [*lines, "False False"])
    assert committed_steps(store, "agent/a") == 2


def test_an_option_for_trainers_is_refused_elsewhere(store: RedisStore, redis_url: str) -> None:
    done = run(store, redis_url, "agent/a", "import unknot; unknot.steps(manifest_every=3)")
    assert "TypeError: the steps of agent/a take no manifest_every: that is for trainers" in done.stderr


def test_a_misspelt_option_is_refused_with_a_suggestion_whatever_the_process_is() -> None:
    told = r"unknot\.steps has no option 'untill' \(did you mean until\?\); it takes until, attempts, manifest_every"
    with pytest.raises(TypeError, match=told):
        unknot.steps(untill=3)


def test_a_trainers_steps_are_its_groups(store: RedisStore, redis_url: str) -> None:
    code = "import unknot; next(unknot.steps())"
    done = run(store, redis_url, "trainer/0", code, group="policy", rank=0, size=1)
    assert "NotAMember" in done.stderr, "only inside of run"


def test_steps_outside_of_a_run_are_refused() -> None:
    with pytest.raises(unknot.NotAMember, match=r"unknot\.steps needs a run"):
        unknot.steps()
