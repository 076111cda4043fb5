"""The shell over a real Redis with real members: the lead, its change of hands, Redis gone and back, what cannot be read."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import redis

from tests.proof.workers import QUICK, ROOT, Scene, Worker, until
from unknot.graph.events import Record, Wait
from unknot.supervisor.config import Config
from unknot.supervisor.monitor.process import run_monitor
from unknot.supervisor.process import MONITOR_ENV, MonitorSettings
from unknot.supervisor.store.redis_store import RedisStore
from unknot.supervisor.store.server_binary import find_server

A, B = "agent/a#1", "agent/b#1"


def crossing(scene: Scene, url: str = "") -> tuple[Worker, Worker]:
    """Two members, each of which holds the lock that the other one wants."""
    through = {"agent/a": url, "agent/b": url} if url else None
    a, b = scene.workers("agent/a", "agent/b", through=through, store_limit_s=20.0)
    a.call("lock", "left")
    b.call("lock", "right")
    b.begin("lock", "left")
    a.begin("lock", "right")
    return a, b


def test_of_two_monitors_one_leads_and_the_other_one_takes_over_the_incident_when_it_vanishes(scene: Scene) -> None:
    first = scene.watch(leader_lease_s=0.8)
    until(lambda: first.leads)
    second = scene.watch(leader_lease_s=0.8, on_deadlock="break")
    crossing(scene)
    found = scene.incident("deadlock")
    assert (first.leads, second.leads) == (True, False)
    first.vanish()
    begun = time.monotonic()
    until(lambda: second.leads)
    assert time.monotonic() - begun < 0.8 + 2.0
    ended = scene.incident("deadlock", state="resolved")
    assert (ended.id, ended.opened_at) == (found.id, found.opened_at), "one incident, from its opening to its end"
    assert [action.remedy for action in ended.actions] == ["interrupt"]
    assert len(scene.incidents()) == 1


def test_a_monitor_that_stops_gives_the_lead_back_at_once(scene: Scene) -> None:
    first = scene.watch(leader_lease_s=60.0)
    until(lambda: first.leads)
    second = scene.watch(leader_lease_s=60.0)
    first.vanish()
    assert not second.leads
    first.monitor.stop()
    until(lambda: second.leads, limit_s=10.0)


def test_a_leader_that_was_replaced_while_it_stood_still_writes_nothing_more(scene: Scene, store: RedisStore) -> None:
    first = scene.watch(leader_lease_s=0.5)
    until(lambda: first.leads)
    before = first.monitor._token
    store.command("HSET", store.key("leader"), "holder", "somebody", "token", before + 1, "until", time.time() + 3)
    crossing(scene)
    until(lambda: not first.leads)
    assert scene.incidents() == []
    assert scene.incident("deadlock").core == (A, B), "once that lease has passed it leads again"
    assert first.monitor._token == before + 2


def test_a_monitor_process_that_is_killed_loses_nothing(scene: Scene, store: RedisStore, redis_url: str) -> None:
    config = Config(redis=redis_url, **{**QUICK, "leader_lease_s": 0.8, "log_level": "error"})
    env = {
        **os.environ, "PYTHONPATH": str(ROOT),
        MONITOR_ENV: msgspec.json.encode(MonitorSettings(run=store.run, config=config)).decode(),
    }  # fmt: skip
    child = subprocess.Popen([sys.executable, "-m", "unknot.supervisor.monitor"], env=env)
    try:
        crossing(scene)
        found = scene.incident("deadlock")
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)
    scene.watch(leader_lease_s=0.8, on_deadlock="break")
    assert scene.incident("deadlock", state="resolved").id == found.id
    assert len(scene.incidents()) == 1


def test_a_monitor_process_ends_when_it_is_told_to(store: RedisStore, redis_url: str) -> None:
    config = Config(redis=redis_url, log_level="error", leader_lease_s=60.0)
    env = {
        **os.environ, "PYTHONPATH": str(ROOT),
        MONITOR_ENV: msgspec.json.encode(MonitorSettings(run=store.run, config=config)).decode(),
    }  # fmt: skip
    child = subprocess.Popen([sys.executable, "-m", "unknot.supervisor.monitor"], env=env)
    leader = store.key("leader")
    until(lambda: store.command("HGET", leader, "holder"))
    child.send_signal(signal.SIGTERM)
    assert child.wait(20) == 0
    assert store.command("HGET", leader, "holder") == b"", "the lead was given back"


def test_an_entry_that_cannot_be_read_is_counted_and_the_rest_is_read(scene: Scene, store: RedisStore) -> None:
    watching = scene.watch()
    until(lambda: watching.leads)
    events = store.key("events")
    store.command("XADD", events, "*", "r", b"\xc1 not msgpack")
    store.command("XADD", events, "*", "other", b"not ours")
    store.command("XADD", events, "*", "r", msgspec.msgpack.encode({"src": "agent/z#1", "n": "one", "t": 0.0}))
    store.command("XADD", events, "*", "r", msgspec.msgpack.encode(Record(src="agent/z#1", n=4, t=0.0, full=True)))
    until(lambda: watching.monitor.bad_records == 3)
    until(lambda: watching.core.graph.absorbed("agent/z#1") == 4)
    crossing(scene)
    assert scene.incident("deadlock").core == (A, B)


def test_a_last_record_that_cannot_be_read_does_not_keep_a_monitor_from_taking_the_lead(
    scene: Scene, store: RedisStore
) -> None:
    a, _ = crossing(scene)
    until(lambda: _tells_a_wait(store.command("HGET", store.key("proc", A), "full")))
    store.command("HSET", store.key("proc", A), "full", b"\xc1")
    watching = scene.watch()
    until(lambda: watching.monitor.bad_records == 1)
    assert scene.incident("deadlock").core == (A, B), "its heartbeat tells of a record that was not read"
    assert a.process.poll() is None


def _tells_a_wait(full: bytes | None) -> bool:
    return full is not None and any(isinstance(event, Wait) for event in msgspec.msgpack.decode(full, type=Record).events)


def test_a_turn_that_fails_in_an_unknown_way_is_told_and_the_monitor_starts_anew(
    scene: Scene, store: RedisStore, redis_url: str
) -> None:
    store.command("SET", store.key("leader"), "somebody else's")
    stop = threading.Event()
    config = Config(**{**QUICK, "log_level": "error"})
    thread = threading.Thread(target=lambda: run_monitor(redis_url, store.run, config, stop=stop))
    thread.start()
    try:
        crossing(scene)
        assert scene.incidents() == []
        store.command("DEL", store.key("leader"))
        assert scene.incident("deadlock").core == (A, B)
    finally:
        stop.set()
        thread.join(20)


def test_a_member_that_is_stopped_is_not_believed_to_be_alive_and_is_believed_again_when_it_goes_on(
    scene: Scene,
) -> None:
    watching = scene.watch()
    _, b = scene.workers("agent/a", "agent/b", lease_s=0.6, heartbeat_s=0.1)
    until(lambda: watching.core.graph.absorbed(B))
    before = watching.core.graph.absorbed(B)
    b.stop()
    until(lambda: watching.core.graph.is_unknown(B), "after one lease")
    silent = scene.incident("unresponsive")
    assert (silent.culprits, silent.state) == ((B,), "open")
    assert "has not been heard of for" in silent.headline
    b.go_on()
    assert scene.incident("unresponsive", state="resolved").id == silent.id
    assert not watching.core.graph.is_unknown(B)
    assert watching.core.graph.absorbed(B) > before, "it has told everything anew"
    assert not watching.core.graph.is_unknown(A)


# --- Redis goes and comes ---


class OwnRedis:
    """A server on a port of its own that can be killed and started again over the same data."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [str(find_server()), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
             "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--loglevel", "warning"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        until(self._answers)

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnRedis]:
    server = OwnRedis(tmp_path)
    yield server
    server.kill()


@pytest.fixture
def own_scene(own: OwnRedis) -> Iterator[Scene]:
    with RedisStore.connect(own.url, "restart") as store:
        one = Scene(store, own.url)
        yield one
        one.end()


def test_a_redis_that_is_killed_and_comes_back_costs_no_incident_and_makes_no_false_one(
    own: OwnRedis, own_scene: Scene
) -> None:
    first = own_scene.watch(leader_lease_s=0.8, store_limit_s=0.5)
    a, b = crossing(own_scene)
    found = own_scene.incident("deadlock")
    core = first.core
    own.kill()
    until(lambda: first.away and not first.leads, "the monitor notices")
    own.start()
    until(lambda: first.leads and first.core is not core, "it takes over anew")
    until(lambda: first.core.graph.absorbed(A) and first.core.graph.absorbed(B))
    until(lambda: found.id in first.core.cases)
    a.call("go", "x", thread="hand")
    assert [one.id for one in own_scene.incidents()] == [found.id]
    assert b.process.poll() is None


def test_a_redis_that_stands_still_for_a_while_is_held_against_nobody(own: OwnRedis, own_scene: Scene) -> None:
    watching = own_scene.watch(answer_limit_s=0.6, lease_s=1.0)
    a, b = own_scene.workers("agent/a", "agent/b", lease_s=1.0)
    a.call("lock", "left")
    b.call("lock", "right")
    b.begin("lock", "left")
    until(lambda: watching.core.graph.ticket(B) is not None)
    own.process.send_signal(signal.SIGSTOP)
    waiting = a.begin("lock", "right")
    begun = time.monotonic()
    until(lambda: time.monotonic() - begun > 3.0, "three leases pass")
    own.process.send_signal(signal.SIGCONT)
    assert own_scene.incident("deadlock").core == (A, B)
    assert [one.cause for one in own_scene.incidents()] == ["deadlock"]
    assert not waiting.done
