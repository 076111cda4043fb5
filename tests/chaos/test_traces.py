"""What a run left behind is found: a process, a port, a kind of key, a run that is not closed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.chaos import traces
from unknot.recovery.run import RunClaim
from unknot.supervisor.store.redis_store import RedisStore

_LISTENS = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def test_a_process_and_its_port_are_left_as_long_as_it_lives(monkeypatch: Any, eventually: Any) -> None:
    monkeypatch.setattr(traces, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(traces, "LIMIT_S", 0.0)
    mark = f"test-{os.getpid()}"
    looking = traces.Traces(mark)
    started = subprocess.Popen(
        [sys.executable, "-c", _LISTENS], env={**os.environ, traces.MARK: mark}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with started:
        assert started.stdout is not None
        port = int(started.stdout.readline())
        eventually(lambda: port in looking._ports)
        left = looking.left()
        assert [one.split()[0:2] for one in left] == [["process", str(started.pid)], ["port", str(port)]]
    assert looking.left() == ()


def test_a_look_that_saw_no_port_says_that_it_is_blind() -> None:
    assert traces.Traces("of no process").left() == ("no port of the run was ever seen: the look for them is blind",)


def test_kinds_of_keys_beyond_those_of_an_undisturbed_run_are_left_unless_they_expire(store: RedisStore, redis_url: str) -> None:
    claim = RunClaim.take(store)
    kept = traces.kinds_of_keys(redis_url, store.run)
    assert traces.left_in_redis(redis_url, store.run, kept) == ("the run, live",)
    claim.close()
    store.command("HSET", store.key("waits", "agent/a"), "agent/a#1|1", "lock|x|")
    store.command("SET", store.key("wake", "agent/a#1|1"), 1, "EX", 60)
    assert traces.left_in_redis(redis_url, store.run, kept) == ("keys of kind waits",)
