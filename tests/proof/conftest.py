"""A run of real processes, and networks between them and Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.proof.proxy import Proxy
from tests.proof.workers import Scene
from unknot.supervisor.store.redis_store import RedisStore


@pytest.fixture
def scene(store: RedisStore, redis_url: str) -> Iterator[Scene]:
    one = Scene(store, redis_url)
    yield one
    one.end()


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Callable[[], Proxy]]:
    """`proxy()` is a network of its own between whoever uses it and Redis."""
    made: list[Proxy] = []

    def make() -> Proxy:
        made.append(Proxy(redis_url))
        return made[-1]

    yield make
    for one in made:
        one.close()
