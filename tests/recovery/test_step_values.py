"""Numbers and times that no loop of steps and no call of a step can have are refused by their names."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.recovery.stepping import A, Join, steps_of
from unknot.recovery.errors import ConfigError
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.step import Step
from unknot.recovery.steps import MemberSteps
from unknot.supervisor.store.redis_store import RedisStore


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"until": -1}, "until=-1 is too small; give at least 0"),
        ({"until": "3"}, "until='3' is not a whole number"),
        ({"until": 2.0}, "until=2.0 is not a whole number"),
        ({"until": True}, "until=True is not a whole number"),
        ({"until": math.inf}, "until=inf is not a whole number"),
        ({"until": 2**70}, "until=1180591620717411303424 is too large"),
        ({"attempts": 0}, "attempts=0 is too small; give at least 1"),
        ({"attempts": None}, "attempts=None is not a whole number"),
        ({"attempts": 1.5}, "attempts=1.5 is not a whole number"),
        ({"attempts": True}, "attempts=True is not a whole number"),
    ],
)
def test_a_number_that_no_loop_can_have_is_refused_by_the_call_itself(options: dict[str, Any], told: str) -> None:
    class NoStore:
        run = "r"

    steps = MemberSteps(NoStore(), NullRecorder(A, 1))  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as caught:
        steps.run(**options)
    assert str(caught.value).startswith(told)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda step: step.receive("raw", timeout=5), r"timeout=5 is no timedelta; give datetime\.timedelta\(seconds=5\) or the like"),
        (lambda step: step.receive("raw", timeout="5s"), "timeout='5s' is no timedelta"),
        (lambda step: step.receive("raw", timeout=timedelta(seconds=-1)), "is below zero; give timedelta"),
        (lambda step: step.latest("w", timeout=5), "timeout=5 is no timedelta"),
        (lambda step: step.latest("w", max_lag=-1), "max_lag=-1 is too small; give at least 0"),
        (lambda step: step.latest("w", max_lag="1"), "max_lag='1' is not a whole number"),
        (lambda step: step.latest("w", exact=1.0), "exact=1.0 is not a whole number"),
        (lambda step: step.latest("w", exact=-3), "exact=-3 is too small; give at least 0"),
    ],
)
def test_a_time_or_number_that_a_step_cannot_wait_for_is_refused(
    store: RedisStore, join: Join, boxes: dict[str, Mailbox], call: Callable[[Step], object], told: str
) -> None:
    for step in steps_of(store, join(A)).run(until=1):
        with step, pytest.raises(ConfigError, match=told):
            call(step)
