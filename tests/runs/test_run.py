"""A real run on a real Ray: members come, work, fail, and leave."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
import ray

import unknot

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=60)
pytestmark = pytest.mark.ray


@ray.remote
@unknot.agent
class Counter:
    """Sends numbers."""

    def __init__(self, until: int) -> None:
        self.until = until

    def run(self) -> None:
        box = unknot.Mailbox("numbers")
        for number in range(self.until):
            with unknot.Lock("turn"):
                box.send(number)


@ray.remote
@unknot.judge
class Adder:
    """Adds numbers up, for ever."""

    def run(self) -> None:
        numbers, sums = unknot.Mailbox("numbers"), unknot.Mailbox("sums")
        total = 0
        while True:
            item = numbers.receive()
            total += item.value
            sums.send(total)
            numbers.ack(item)


@ray.remote
@unknot.agent
class Failing:
    """Fails in its run."""

    def run(self) -> None:
        raise ValueError("the tool returned nonsense")


@ray.remote
@unknot.agent
class Waiting:
    """Waits for what never comes, until the run ends."""

    def run(self) -> None:
        unknot.Mailbox("numbers").receive()


@ray.remote
@unknot.environment
class Threads:
    """Tells which threads its process has."""

    def names(self) -> tuple[list[str], str, bool]:
        return [t.name for t in threading.enumerate()], threading.Lock.__module__, hasattr(ray.get, "__self__")


def test_members_pass_items_through_a_mailbox_and_a_waiting_member_ends_cleanly_with_the_run(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("numbers", capacity=2, senders="agent/*", receivers="judge/*")
        sums = run.mailbox("sums", senders="judge/*", receivers="driver/*")
        run.spawn(Counter, 5, name="a")
        run.spawn(Counter, 5, name="b")
        run.spawn(Adder, name="j")
        totals = [sums.receive(timeout_s=60.0).value for _ in range(10)]
    assert totals[-1] == 2 * (0 + 1 + 2 + 3 + 4)


def test_the_first_error_of_a_member_ends_the_run_and_is_an_incident(new_run: NewRun, eventually: Any) -> None:
    with new_run() as run:
        run.mailbox("numbers")
        run.spawn(Waiting, name="w")
        run.spawn(Failing, name="f")
        with pytest.raises(unknot.RunFailed, match="agent/f ended first with ValueError: the tool returned nonsense"):
            run.wait(timeout=LIMIT)
        eventually(lambda: [i.cause for i in run.incidents()] == ["dead"])


def test_a_driver_that_does_not_wait_is_told_of_an_incident_once_and_nobody_tells_after_the_end(
    new_run: NewRun, eventually: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    def lines() -> list[str]:
        told.extend(capsys.readouterr().err.splitlines())
        return [line for line in told if line.startswith("unknot: ")]

    with new_run() as run:
        run.spawn(Failing, name="f")
        eventually(lines, 60.0)
        assert [t.name for t in threading.enumerate() if t.name == "unknot-news"]
        with pytest.raises(unknot.RunFailed):
            run.wait(timeout=LIMIT)
        (incident,) = run.incidents(open_only=False)
    assert [line for line in lines() if "supervisor explain" in line] == [
        f"unknot: {' '.join(incident.headline.split())} (supervisor explain {incident.id})"
    ]
    assert len(lines()) == len(set(lines()))
    assert not [t.name for t in threading.enumerate() if t.name == "unknot-news"]


def test_a_killed_member_never_looks_like_success(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("numbers")
        handle = run.spawn(Waiting, name="w")
        with pytest.raises(TimeoutError):
            run.wait(timeout=timedelta(seconds=0.2))
        ray.kill(handle.actor)
        with pytest.raises(unknot.RunFailed, match="agent/w"):
            run.wait(timeout=LIMIT)


def test_two_members_of_one_name_are_refused(new_run: NewRun) -> None:
    with new_run() as run:
        run.mailbox("numbers")
        run.spawn(Waiting, name="w")
        with pytest.raises(unknot.NameTaken, match="already has a member agent/w"):
            run.spawn(Waiting, name="w")


def test_what_is_no_member_class_is_refused_with_the_line_to_add(new_run: NewRun) -> None:
    class Plain:
        pass

    @unknot.trainer
    class Rank:
        def setup(self, group: unknot.Group) -> None: ...

        def run(self) -> None: ...

    with new_run() as run:
        with pytest.raises(unknot.ConfigError, match="no role"):
            run.spawn(ray.remote(Plain), name="p")
        with pytest.raises(unknot.ConfigError, match=r"put @ray\.remote above"):
            run.group(Rank, size=2)
        with pytest.raises(unknot.ConfigError, match=r"use run\.group"):
            run.spawn(ray.remote(Rank), name="p")
        with pytest.raises(unknot.ConfigError, match=r"use run\.spawn"):
            run.group(Waiting, size=2)
        with pytest.raises(unknot.ConfigError, match=r"run\.group: size=0 is too small; give at least 1"):
            run.group(ray.remote(Rank), size=0)


def test_with_observation_off_a_worker_has_no_thread_hook_or_wrapper_of_ours_and_works(
    new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERVISOR_DISABLED", "1")
    with new_run() as run:
        names, lock_module, wrapped = ray.get(run.spawn(Threads, name="e").actor.names.remote())
        assert not [name for name in names if name.startswith("unknot-")]
        assert (lock_module, wrapped) == ("_thread", False)
        ours = ("unknot-publisher", "unknot-listener", "unknot-news")
        assert not [t.name for t in threading.enumerate() if t.name in ours]
        assert not hasattr(ray.get, "__self__")
        assert run.incidents() == []


def test_with_observation_on_a_worker_has_them(new_run: NewRun) -> None:
    with new_run() as run:
        names, lock_module, wrapped = ray.get(run.spawn(Threads, name="e").actor.names.remote())
    assert {"unknot-publisher", "unknot-listener"} <= set(names)
    assert lock_module.startswith("unknot.")
    assert wrapped


def test_the_end_of_a_run_leaves_no_monitor_and_no_actor(new_run: NewRun, eventually: Any) -> None:
    import psutil

    before = {p.pid for p in psutil.Process(os.getpid()).children()}
    with new_run() as run:
        run.mailbox("numbers")
        handle = run.spawn(Waiting, name="w")
        started = [p for p in psutil.Process(os.getpid()).children() if p.pid not in before]
        assert any("unknot.supervisor.monitor" in " ".join(p.cmdline()) for p in started)
    assert not [p for p in started if p.is_running() and p.status() != psutil.STATUS_ZOMBIE and "monitor" in str(p)]
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(handle.actor.unknot_main.remote(), timeout=30)
