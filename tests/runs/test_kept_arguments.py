"""What a member was constructed with is there again for the process that takes its place, and Ray has nothing to warn of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

import unknot
from unknot.integrations.ray import arguments
from unknot.integrations.ray.arguments import kept_arguments

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=120)
pytestmark = pytest.mark.ray

# Ray warns once in a process: this one is a driver of its own.
_DRIVER = """
import datetime, os, signal, sys
import ray, unknot

@ray.remote
@unknot.environment
class Counter:
    def __init__(self):
        self.n = 0

    def next(self):
        self.n += 1
        return self.n

@ray.remote
@unknot.agent
class Asking:
    def __init__(self, counter, actor, *, weights):
        self.counter, self.actor, self.weights = counter, actor, weights

    def run(self):
        counted = self.counter.call("next"), ray.get(self.actor.next.remote())
        unknot.Mailbox("told").send((*counted, len(self.weights), os.getpid()))
        if not ray.get_runtime_context().was_current_actor_reconstructed:
            unknot.Mailbox("never").receive()

ray.init(address=sys.argv[1], log_to_driver=False)
with unknot.init("kept-arguments", redis=sys.argv[2]) as run:
    told = run.mailbox("told", senders="agent/*", receivers="driver/*")
    run.mailbox("never")
    counter = run.spawn(Counter, name="c")
    run.spawn(Asking, counter, counter.actor, weights=b"w" * int(sys.argv[3]), name="a")
    *first, pid = told.receive(timeout_s=120.0).value
    os.kill(pid, signal.SIGKILL)
    *second, _ = told.receive(timeout_s=120.0).value
    run.wait(timeout=datetime.timedelta(seconds=120))
print(first, second)
"""


@ray.remote
@unknot.agent
class Given:
    """Tells the value of a reference that Ray has resolved."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def run(self) -> None:
        unknot.Mailbox("told").send(self.value)


@pytest.mark.parametrize("size", [1, 3_000_000])
def test_a_member_that_is_started_again_has_its_arguments_again_and_ray_warns_of_nothing(
    ray_cluster: None, redis_url: str, tmp_path: Path, size: int
) -> None:
    address = ray.get_runtime_context().gcs_address
    environ = {**os.environ, "SUPERVISOR_RUN_DIR": str(tmp_path)}
    command = [sys.executable, "-c", _DRIVER, address, redis_url, str(size)]
    driver = subprocess.run(command, capture_output=True, text=True, check=False, env=environ, timeout=240)
    assert driver.returncode == 0, driver.stderr
    assert driver.stdout.splitlines()[-1] == f"[1, 2, {size}] [3, 4, {size}]"
    assert "restart will fail" not in driver.stderr


def test_a_reference_that_the_user_gives_is_resolved_by_ray_as_ever(new_run: NewRun) -> None:
    with new_run() as run:
        told = run.mailbox("told", senders="agent/*", receivers="driver/*")
        run.spawn(Given, ray.put("a value"), name="a")
        assert told.receive(timeout_s=120.0).value == "a value"
        run.wait(timeout=LIMIT)


def test_what_holds_a_reference_or_does_not_pickle_is_left_to_ray(ray_cluster: None) -> None:
    unpicklable = (number for number in (1, 2))
    inside = {"model": [ray.put(1)]}
    args, kwargs = kept_arguments((inside, unpicklable), {"plain": 5})
    assert args[0] is inside
    assert args[1] is unpicklable
    assert ray.get(ray.put(kwargs["plain"])) == 5


def test_a_large_argument_that_ray_cannot_keep_goes_as_it_is_and_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> None:
        raise ray.exceptions.ObjectStoreFullError

    told: list[str] = []
    monkeypatch.setattr(ray, "put", full)
    monkeypatch.setattr(arguments, "_log", SimpleNamespace(warning=lambda event, **_: told.append(event)))
    value = b"w" * 1_000_000
    assert kept_arguments((value,), {}) == ((value,), {})
    assert told == ["member.argument.not_kept"]
