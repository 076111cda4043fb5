"""One real Redis for all tests, and a run of its own for each test that asks for one."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator

import pytest
from pytest_httpserver import HTTPServer

from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.recorder.bystanders import user_threads
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore

_runs = itertools.count(1)


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test() -> Iterator[None]:
    """A thread of another test could help a driver of this one, so no ring through that driver would be proved."""
    before = set(user_threads())
    yield
    _eventually(lambda: set(user_threads()) <= before)


@pytest.fixture
def httpserver() -> Iterator[HTTPServer]:
    """A receiver on loopback that ends with the test; the plugin's own one lives on until the session ends."""
    with HTTPServer(host="127.0.0.1") as server:
        yield server


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


def _eventually(condition: Callable[[], object], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {limit_s} s"
        time.sleep(0.002)


@pytest.fixture
def eventually() -> Callable[..., None]:
    """`eventually(condition, limit_s=10.0)` returns once `condition()` is true, and fails when it never is."""
    return _eventually


@pytest.fixture
def join(store: RedisStore) -> Callable[..., NullRecorder]:
    """`join("agent/a")` registers the member's next incarnation and gives the recorder of its process."""

    def register_member(member: str) -> NullRecorder:
        role = member.partition("/")[0]
        registered = register(store, member, role=role, pid=os.getpid(), host="here", boot=new_boot())
        return NullRecorder(member, registered.incarnation)

    return register_member
