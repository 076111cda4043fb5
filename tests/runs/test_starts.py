"""While members start, nobody is stuck: what is not known to run yet is not known to be gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
import ray

import unknot

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
pytestmark = pytest.mark.ray


@ray.remote
@unknot.agent
class LateSender:
    """Starts late, and holds the interpreter lock while it does, as a large import would."""

    def __init__(self) -> None:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            sum(range(2_000_000))

    def run(self) -> None:
        unknot.Mailbox("raw").send("item")


@ray.remote
@unknot.judge
class Relay:
    """Waits from its first moment."""

    def run(self) -> None:
        unknot.Mailbox("scored").send(unknot.Mailbox("raw").receive().value)


def test_a_judge_and_a_driver_that_wait_for_agents_which_still_start_are_no_deadlock(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("raw", senders="agent/*", receivers="judge/*")
        scored = run.mailbox("scored", senders="judge/*", receivers="driver/*")
        run.spawn(Relay, name="j")
        run.spawn(LateSender, name="a")
        assert scored.receive(timeout_s=60.0).value == "item"
        run.wait(timeout=timedelta(seconds=60))
        assert [i.headline for i in run.incidents(open_only=False)] == []


def test_a_driver_that_waits_for_members_that_end_at_once_is_no_deadlock(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("raw", senders="agent/*")
        for number in range(3):
            run.spawn(LateSender, name=f"a{number}")
        report = run.wait(timeout=timedelta(seconds=60))
    assert report.outcomes == {f"agent/a{number}": "done" for number in range(3)}
    assert report.incidents == ()
