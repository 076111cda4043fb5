"""Generations of a real Gloo group over two real processes: formed, broken from outside, formed again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from unknot.graph.verdict import evaluate
from unknot.integrations.ray.host import worker_environment
from unknot.recovery.group import break_group, group_status
from unknot.supervisor.config import Config
from unknot.supervisor.monitor.core import MonitorCore
from unknot.supervisor.monitor.shell import Monitor
from unknot.supervisor.process import WorkerSettings
from unknot.supervisor.recorder import commands
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.redis_store import RedisStore

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
PROGRAM = Path(__file__).with_name("ranks.py")


class Rank:
    """One process and the story it has told so far."""

    def __init__(self, store: RedisStore, url: str, what: str, rank: int) -> None:
        settings = WorkerSettings(
            run=store.run, redis=url, member=f"trainer/{rank}", role="trainer", config=Config(), group="policy",
            rank=rank, size=2,
        )  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), what, str(rank)], env={**os.environ, **worker_environment(settings)},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.story: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.story.append(json.loads(line))

    def told(self, what: str) -> dict[str, Any] | None:
        """The first line of that kind."""
        return next((line for line in list(self.story) if line["what"] == what), None)

    def end(self) -> int:
        """Its exit status, killed if it does not end."""
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self._reader.join(5)
            assert self.process.stdout is not None
            self.process.stdout.close()


@pytest.fixture
def ranks(store: RedisStore, redis_url: str) -> Iterator[Callable[[str], list[Rank]]]:
    """`ranks(what)` starts two ranks that do it."""
    started: list[Rank] = []

    def start(what: str) -> list[Rank]:
        started.extend(Rank(store, redis_url, what, rank) for rank in range(2))
        return started

    yield start
    for rank in started:
        if rank.process.poll() is None:
            rank.process.kill()
        rank.end()


@pytest.fixture
def monitor(store: RedisStore) -> Iterator[Callable[..., MonitorCore]]:
    """`monitor(**config)` runs a real monitor on a thread until the test ends."""
    stop = threading.Event()
    threads: list[threading.Thread] = []

    def start(**config: Any) -> MonitorCore:
        watching = Monitor(store, Config(**config))
        watching.start()
        watching.run_once()

        def loop() -> None:
            while not stop.is_set():
                watching.run_once()
            watching.stop()

        threads.append(threading.Thread(target=loop))
        threads[-1].start()
        assert watching._core is not None
        return watching._core

    yield start
    stop.set()
    for thread in threads:
        thread.join()


def test_each_rank_finds_exactly_the_sockets_between_the_ranks(ranks: Any, store: RedisStore, eventually: Any) -> None:
    pair = ranks("stand")
    eventually(lambda: all(rank.told("formed") for rank in pair), limit_s=60.0)
    assert [rank.told("formed")["links"] for rank in pair] == [1, 1]


def test_a_broken_group_frees_the_rank_in_a_collective_and_forms_again_in_the_same_processes(
    ranks: Any, store: RedisStore, eventually: Any
) -> None:
    pair = ranks("stand")
    eventually(lambda: pair[0].told("standing") and pair[1].told("absent"), limit_s=60.0)
    break_group(store, "policy", 1, reason="a test breaks it")
    for rank in range(2):
        command = commands.Command(
            key=f"break-{rank}", token=1, source=f"trainer/{rank}#1", do="break", incident="inc_1", group="policy",
            generation=1, reason="a test breaks it",
        )  # fmt: skip
        store.publish("cmd", commands.encode(command))
    eventually(lambda: all(rank.told("reformed") for rank in pair), limit_s=60.0)
    assert [(r.told("reformed")["generation"], r.told("reformed")["total"]) for r in pair] == [(2, 2.0), (2, 2.0)]
    assert pair[0].told("reformed")["failed"] == "RuntimeError"
    assert [rank.end() for rank in pair] == [0, 0]
    # The other rank may have seen the mark first and be leaving: then one, both or none of the two links are left to shut.
    outcome = store.command("HGET", store.key("acks"), "break-0").decode()
    assert re.fullmatch(r"broke [012] links|gone", outcome)


def test_a_rank_that_is_absent_but_runs_is_no_deadlock_and_the_standing_collective_is_known_with_its_site(
    ranks: Any, monitor: Any, store: RedisStore, eventually: Any
) -> None:
    core = monitor()
    ranks("stand")
    queue = "trainer/0#1/queue:policy"
    eventually(lambda: core.graph.ticket(queue) is not None, limit_s=60.0)
    one = core.graph.participants[queue]
    assert one.wait is not None
    assert (one.wait.label, one.wait.site) == ("all_reduce", one.wait.site)
    assert str(one.wait.site).startswith("torch/ranks.py:")
    assert core.graph.ticket("trainer/0#1") is not None
    assert evaluate(core.graph, 0.0).stuck == ()
    assert IncidentStore(store).list() == ()


def test_ranks_go_back_to_the_newest_step_that_all_have(ranks: Any, store: RedisStore, eventually: Any) -> None:
    pair = ranks("roll_back")
    eventually(lambda: all(rank.told("entered") for rank in pair), limit_s=60.0)
    for rank in pair:
        told = rank.told("entered")
        assert (told["seq"], told["attempt"], told["weight"]) == (2, 1, [2.0] * 4)
    assert [rank.end() for rank in pair] == [0, 0]
    assert group_status(store, "policy").generation == 2


def test_a_step_that_is_broken_off_again_and_again_is_given_up(ranks: Any, eventually: Any) -> None:
    pair = ranks("repeat")
    eventually(lambda: all(rank.told("aborted") for rank in pair), limit_s=60.0)
    for rank in pair:
        told = rank.told("aborted")
        assert (told["seq"], told["attempts"], told["generations"]) == (0, 3, 4)
        assert "broken off 3 times, the last time since a test ends it" in told["text"]
    assert [rank.end() for rank in pair] == [0, 0]


def test_a_loop_that_does_not_use_its_steps_as_it_should_is_told_and_never_goes_on_with_half_a_step(ranks: Any, eventually: Any) -> None:
    pair = ranks("misuse")
    eventually(lambda: all(rank.told("misused") for rank in pair), limit_s=60.0)
    for rank in pair:
        assert rank.told("misused")["told"] == {
            "not_entered": "ConfigError: <Step 0 of group policy, attempt 0, new> was not entered; "
            "for step in unknot.steps(): with step: ...",
            "entered_twice": "ConfigError: <Step 0 of group policy, attempt 0, committed> was used already; "
            "let the loop over unknot.steps() give the next one",
            "used_afterwards": "ConfigError: <Step 0 of group policy, attempt 0, committed> is not open; "
            "use the step inside of its block: with step: ...",
            "swallowed": "ZeroDivisionError: no gradient",
        }
    assert [rank.end() for rank in pair] == [0, 0]
