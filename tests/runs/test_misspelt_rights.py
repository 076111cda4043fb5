"""A list of senders that matches no member is told: in the driver once all have started, and in the incident of who waits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
import ray

import unknot

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
pytestmark = pytest.mark.ray
SAID = "no member matches senders 'agnt/*' (did you mean agent/*?)"


@ray.remote
@unknot.agent
class Waiting:
    """Waits for what nobody may send."""

    def run(self) -> None:
        unknot.progress("begun")
        unknot.Mailbox("policy").receive()


def test_senders_that_match_no_member_are_told_once_by_the_driver_and_to_whoever_asks_why_it_stands(
    new_run: NewRun, eventually: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with new_run(slow_after_s=0.5) as run:
        run.mailbox("policy", senders="agnt/*", receivers="agent/*")
        run.mailbox("fine", senders=["judge/*", "agent/*"])
        run.spawn(Waiting, name="w")
        eventually(lambda: [i for i in run.incidents() if i.cause == "slow"], limit_s=60.0)
        lines = [line.text for i in run.incidents() for line in i.lines]
        assert f"mailbox policy: {SAID}." in lines
        for _ in range(2):
            with pytest.raises(TimeoutError):
                run.wait(timeout=timedelta(seconds=1))
    told = [line for line in capsys.readouterr().out.splitlines() if "mailbox.rights.unmatched" in line]
    assert len(told) == 1
    assert SAID in told[0]
    assert "mailbox=policy" in told[0]
