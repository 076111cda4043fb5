"""Whether a member that has ended is started again, and how fast."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta

import pytest

from unknot.recovery.errors import ConfigError
from unknot.recovery.restart import Ending, RestartPolicy, decide, pause_s, permanent, temporary, transient


@pytest.mark.parametrize(
    ("policy", "ending", "again"),
    [
        (permanent(), "returned", True),
        (permanent(), "raised", True),
        (permanent(), "crashed", True),
        (transient(), "returned", False),
        (transient(), "raised", False),
        (transient(), "crashed", True),
        (temporary(), "returned", False),
        (temporary(), "raised", False),
        (temporary(), "crashed", False),
    ],
)
def test_each_policy_restarts_after_its_own_endings(policy: RestartPolicy, ending: Ending, again: bool) -> None:
    assert decide(policy, ending, restarts=[], now=0.0).again is again


def test_more_restarts_than_the_intensity_within_the_window_end_it_and_old_ones_do_not_count() -> None:
    policy = transient(intensity=2, within=timedelta(seconds=60))
    assert decide(policy, "crashed", restarts=[0.0, 100.0], now=130.0).again
    given_up = decide(policy, "crashed", restarts=[0.0, 100.0, 110.0], now=130.0)
    assert (given_up.again, given_up.why) == (
        False, "it was started again 2 times in 60 s already, and that is the limit",
    )  # fmt: skip


def test_the_first_restart_is_at_once_and_the_next_ones_wait_twice_as_long_each_up_to_a_limit() -> None:
    policy = RestartPolicy(backoff_s=0.5, backoff_max_s=3.0)
    assert [pause_s(policy, step) for step in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"kind": "permanet"}, "kind='permanet' is unknown (did you mean permanent?); use one of permanent, transient, temporary"),
        ({"kind": None}, "kind=None is unknown; use one of"),
        ({"intensity": -1}, "intensity=-1 is too small; give at least 0"),
        ({"intensity": 2.5}, "intensity=2.5 is not a whole number"),
        ({"intensity": True}, "intensity=True is not a whole number"),
        ({"intensity": "3"}, "intensity='3' is not a whole number"),
        ({"within_s": 0}, "within_s=0 cannot be used; give more than 0, and a finite number"),
        ({"within_s": math.nan}, "within_s=nan cannot be used"),
        ({"within_s": math.inf}, "within_s=inf cannot be used"),
        ({"within_s": 1e12}, "within_s=1000000000000.0 is too large"),
        ({"backoff_s": -0.5}, "backoff_s=-0.5 cannot be used; give 0 or more, and a finite number"),
        ({"backoff_s": "1"}, "backoff_s='1' is not a number of seconds; give 0 or more"),
        ({"backoff_max_s": math.nan}, "backoff_max_s=nan cannot be used"),
        ({"backoff_s": 60}, "backoff_s=60 is above backoff_max_s=30; raise backoff_max_s, or lower backoff_s"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_by_the_name_of_its_field(fields: dict[str, object], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RestartPolicy(**fields)  # type: ignore[arg-type]
    assert str(caught.value).startswith(f"a restart policy: {told}")


@pytest.mark.parametrize("make", [permanent, transient])
def test_the_ways_to_make_a_policy_refuse_the_same(make: Callable[..., RestartPolicy]) -> None:
    for given, told in {5: "within=5 is no timedelta", timedelta(0): "within_s=0.0 cannot be used"}.items():
        with pytest.raises(ConfigError, match=told):
            make(within=given)
    with pytest.raises(ConfigError, match="intensity=-1 is too small"):
        make(intensity=-1)
