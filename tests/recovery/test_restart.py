"""Whether a member that has ended is started again, and how fast."""

from __future__ import annotations

from datetime import timedelta

import pytest

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


def test_a_policy_with_negative_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        transient(intensity=-1)
