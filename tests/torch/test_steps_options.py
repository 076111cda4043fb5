"""What the steps of a trainer refuse when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from unknot.integrations.torch.steps import Ledger, steps, use
from unknot.recovery.errors import ConfigError


class Trainer:
    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Nothing to take."""


@pytest.fixture(autouse=True)
def ledger() -> Iterator[None]:
    use(Ledger(None, Trainer()))  # type: ignore[arg-type]
    yield
    use(None)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"manifest_every": 0}, "manifest_every=0 is too small; give at least 1"),
        ({"manifest_every": -3}, "manifest_every=-3 is too small; give at least 1"),
        ({"manifest_every": 2.5}, "manifest_every=2.5 is not a whole number"),
        ({"manifest_every": True}, "manifest_every=True is not a whole number"),
        ({"manifest_every": "10"}, "manifest_every='10' is not a whole number"),
        ({"until": "3"}, "until='3' is not a whole number"),
        ({"until": -1}, "until=-1 is too small; give at least 0"),
        ({"attempts": 0}, "attempts=0 is too small; give at least 1"),
    ],
)
def test_a_number_that_cannot_be_is_refused_by_the_call_itself(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        steps(**options)
    assert str(caught.value).startswith(told)
