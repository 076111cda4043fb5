"""Real members of a real run, in the process of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.recorder.members import Member
from unknot.supervisor.store.redis_store import RedisStore


@pytest.fixture
def member(store: RedisStore, redis_url: str) -> Iterator[Callable[..., Member]]:
    """`member("agent/a", **config)` registers, observes, and ends with the test."""
    made: list[Member] = []

    def make(name: str, **config: Any) -> Member:
        made.append(Member(redis_url, store.run, name, **config))
        return made[-1]

    yield make
    for one in made:
        one.close()
