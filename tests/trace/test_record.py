"""A live run of real processes recorded, and replayed to the same verdict."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.proof.workers import ROOT, Scene, until
from unknot.graph.replay import Replay, Report
from unknot.graph.trace import read
from unknot.supervisor.store.redis_store import RedisStore
from unknot.supervisor.tape import Tape

A, B = "agent/a#1", "agent/b#1"
Supervisor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def scene(store: RedisStore, redis_url: str) -> Iterator[Scene]:
    one = Scene(store, redis_url)
    yield one
    one.end()


@contextmanager
def taping(scene: Scene) -> Iterator[list[bytes]]:
    """A tape that runs on a thread; the lines of it, whole at the end."""
    pieces: list[bytes] = []
    stop = threading.Event()
    tape = Tape(RedisStore.connect(scene.url, scene.store.run), pieces.append)
    tape.start()

    def run() -> None:
        while tape.turn() and not stop.is_set():
            pass

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield pieces
    finally:
        stop.set()
        thread.join(30)
        tape._store.close()


def replayed(pieces: list[bytes]) -> Report:
    header, events = read(b"".join(list(pieces)).splitlines(keepends=True))
    play = Replay(header)
    for event in events:
        play.feed(event)
        play.graph.validate()
    return play.report()


def count(pieces: list[bytes], kind: str) -> int:
    return b"".join(list(pieces)).count(f'"ev":"{kind}"'.encode())


def crossing(scene: Scene) -> None:
    a, b = scene.workers("agent/a", "agent/b")
    a.call("lock", "left")
    b.call("lock", "right")
    b.begin("lock", "left")
    a.begin("lock", "right")


def test_a_recorded_deadlock_is_confirmed_when_it_is_replayed_though_no_monitor_watched(scene: Scene) -> None:
    with taping(scene) as pieces:
        crossing(scene)
        until(lambda: replayed(pieces).incidents)
    (found,) = replayed(pieces).incidents
    assert (found.kind, found.core) == ("cycle", (A, B))
    assert "lock left" in found.text


def test_what_stood_before_the_recording_began_is_in_it(scene: Scene) -> None:
    watching = scene.watch()
    crossing(scene)
    scene.incident("deadlock")
    with taping(scene) as pieces:
        until(lambda: replayed(pieces).incidents)
    assert watching.errors == []


def test_a_deadlock_that_was_broken_is_resolved_in_the_recording(scene: Scene) -> None:
    with taping(scene) as pieces:
        crossing(scene)
        until(lambda: replayed(pieces).incidents)
        scene.watch(on_deadlock="break")
        scene.incident("deadlock", state="resolved")
        until(lambda: replayed(pieces).incidents[0].resolved_line is not None)


def test_a_run_of_waits_that_end_has_no_incident_however_its_items_and_locks_move(scene: Scene) -> None:
    with taping(scene) as pieces:
        a, b = scene.workers("agent/a", "agent/b")
        a.call("declare", "raw", ["agent/a"], ["agent/b"])
        for number in range(1, 5):
            taken = b.begin("receive", "raw")
            until(lambda: count(pieces, "wait") >= number)  # noqa: B023 - awaited at once
            a.call("lock", "left")
            a.call("send", "raw", number)
            assert taken.result() == number
            a.call("unlock", "left")
            until(lambda: count(pieces, "wake") >= number)  # noqa: B023 - awaited at once
    assert replayed(pieces).incidents == ()
    kinds = [json.loads(line)["ev"] for line in b"".join(pieces).splitlines()[1:]]
    assert {"start", "wait", "wake", "resource"} <= set(kinds)


def test_the_command_writes_a_file_until_it_is_told_to_stop_and_refuses_one_that_exists(
    scene: Scene, store: RedisStore, tmp_path: Path, supervisor: Supervisor
) -> None:
    store.command("HSET", store.key("run"), "state", "live")
    path = tmp_path / "run.jsonl"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SUPERVISOR_REDIS": scene.url, "SUPERVISOR_RUN": store.run}
    code = "from unknot.supervisor.cli.main import main; main()"
    command = [sys.executable, "-c", code, "record", str(path)]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    try:
        crossing(scene)
        until(lambda: path.exists() and path.read_bytes().count(b'"beat"') >= 4, limit_s=60)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, "events of run" in told) == (0, True), told
    assert supervisor("replay", path).returncode == 1
    refused = supervisor("record", path, "--redis", scene.url, "--run", store.run)
    assert (refused.returncode, "exists" in refused.stderr) == (2, True)


def test_a_recording_ends_with_the_run_or_its_time(
    scene: Scene, store: RedisStore, tmp_path: Path, supervisor: Supervisor
) -> None:
    at = ("--redis", scene.url, "--run", store.run)
    assert supervisor("record", tmp_path / "none.jsonl", *at).returncode == 2
    store.command("HSET", store.key("run"), "state", "live")
    assert supervisor("record", tmp_path / "timed.jsonl", *at, "--for", "200ms").returncode == 0
    store.command("HSET", store.key("run"), "state", "closed")
    assert supervisor("record", tmp_path / "ended.jsonl", *at).returncode == 0
    assert (tmp_path / "ended.jsonl").read_bytes().count(b"\n") == 1
