"""Lock orders that have not struck yet, in the report of a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
import ray

import unknot

NewRun = Callable[..., AbstractContextManager[unknot.Run]]


@ray.remote
@unknot.agent
class Nested:
    """Takes its locks one inside the other, when it has been asked to."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def run(self) -> None:
        unknot.Mailbox(f"turn-{self.names[0]}").receive(timeout_s=60)
        with unknot.Lock(self.names[0]), unknot.Lock(self.names[1]):
            pass
        unknot.Mailbox("done").send(self.names[0])


@pytest.mark.ray
def test_members_that_took_two_locks_in_two_orders_one_after_the_other_are_in_the_report(
    new_run: NewRun, capfd: pytest.CaptureFixture[str]
) -> None:
    with new_run() as run:
        for name in ("turn-left", "turn-right", "done"):
            run.mailbox(name, capacity=4)
        run.spawn(Nested, "left", "right", name="a")
        run.spawn(Nested, "right", "left", name="b")
        for name in ("left", "right"):
            unknot.Mailbox(f"turn-{name}").send(1)
            unknot.Mailbox("done").receive(timeout_s=60)
        report = run.wait(timeout=timedelta(seconds=60))
    assert [one.locks for one in report.hazards] == [("lock:left", "lock:right")]
    assert all("runs/test_hazards.py:" in site for pair in report.hazards[0].sites for site in pair)
    assert report.incidents == ()
    assert "unknot: hazard, nothing stands yet: lock left and lock right can deadlock: agent/a took lock left" in capfd.readouterr().err
