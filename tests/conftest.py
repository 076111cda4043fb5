"""One real Redis for all tests, and a run of its own for each test that asks for one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore

_runs = itertools.count(1)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an embedded server that ends with the session. Without a server the tests fail, they never skip."""
    with start_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def store(redis_url: str) -> Iterator[RedisStore]:
    """A store whose run no other test has."""
    with RedisStore.connect(redis_url, f"test-{os.getpid()}-{next(_runs)}") as connected:
        yield connected
