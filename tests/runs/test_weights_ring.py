"""Agents wait for weights that nobody can come to publish."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
import ray

import unknot
from unknot.supervisor.incidents import Incident

NewRun = Callable[..., AbstractContextManager[unknot.Run]]


@ray.remote
@unknot.agent
class Follower:
    """Acts with the newest weights only."""

    def run(self) -> None:
        for step in unknot.steps():
            with step:
                step.latest("policy")
                step.send("raw", step.seq)


@ray.remote
@unknot.trainer
class Starter:
    """Publishes only after it has seen an item."""

    def setup(self, group: Any) -> None:
        self.group = group

    def run(self) -> None:
        for step in unknot.steps(until=1):
            with step:
                step.take("raw", 1)
                step.publish("policy", [1.0])


@pytest.mark.ray
def test_agents_that_wait_for_the_first_weights_of_a_trainer_that_waits_for_them_are_a_deadlock(
    new_run: NewRun,
) -> None:
    with new_run() as run:
        run.mailbox("raw", senders="agent/*", receivers="trainer/*", ack="manifest")
        run.group(Starter, size=1)
        run.spawn(Follower, name="a")
        found = deadlock_of(run)
        assert found is not None
        assert {"agent/a#1", "trainer/0#1"} <= set(found.core)
        assert any("weights" in line.text for line in found.lines)


def deadlock_of(run: unknot.Run) -> Incident | None:
    """While the driver runs it might start somebody who helps, so it waits in between, as a driver does."""
    for _ in range(40):
        with pytest.raises(TimeoutError):
            run.wait(timeout=timedelta(seconds=3))
        found = [i for i in run.incidents(open_only=False) if i.cause == "deadlock"]
        if found:
            return found[0]
    return None
