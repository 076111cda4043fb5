"""A run of real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proof.workers import Scene
from unknot.supervisor.store.redis_store import RedisStore


@pytest.fixture
def scene(store: RedisStore, redis_url: str) -> Iterator[Scene]:
    one = Scene(store, redis_url)
    yield one
    one.end()
