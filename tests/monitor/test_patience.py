"""A ring that its own time-outs cut soon is polling, not an incident."""

from __future__ import annotations

import pytest

from unknot.graph.finding import Finding
from unknot.supervisor.monitor.telling import is_worth_telling


def ring(deadline: float | None) -> Finding:
    return Finding(
        cause="deadlock", kind="cycle" if deadline is None else "timed", core=("a", "b"), stuck=(), closure=("a", "b"),
        culprits=("a", "b"), victims=(), edges=(), tickets={"a": 1, "b": 1}, closing_wait_at=0.0, deadline=deadline,
    )  # fmt: skip


@pytest.mark.parametrize(("deadline", "told"), [(None, True), (11.0, False), (100.0, True)])
def test_only_a_ring_that_stands_for_long_is_told(deadline: float | None, told: bool) -> None:
    assert is_worth_telling(ring(deadline), 10.0, 30.0) is told
