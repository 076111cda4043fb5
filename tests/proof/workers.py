"""Real worker processes and a real monitor over a real Redis, as a test holds them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped,unused-ignore]

from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.config import Config
from unknot.supervisor.incidents import Incident
from unknot.supervisor.monitor.core import MonitorCore
from unknot.supervisor.monitor.shell import Monitor
from unknot.supervisor.process import WORKER_ENV, WorkerSettings
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

ROOT = Path(__file__).parents[2]
LIMIT_S = 30.0
QUICK: dict[str, Any] = {
    "publish_every_s": 0.02, "publish_after_s": 0.02, "heartbeat_s": 0.2, "lease_s": 5.0, "answer_limit_s": 2.0,
    "confirm_hold_s": 0.5, "on_deadlock": "alert",
}  # fmt: skip


def until(condition: Callable[[], object], what: str = "", limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not so within {limit_s} s: {what}"
        time.sleep(0.005)


class Call:
    """One command that was given; done once the worker said what came of it."""

    def __init__(self, worker: Worker, number: int) -> None:
        self._worker = worker
        self._number = number

    @property
    def done(self) -> bool:
        return self._number in self._worker.said

    def answer(self) -> dict[str, Any]:
        until(lambda: self.done or self._worker.process.poll() is not None, f"answer of {self._worker.member}")
        assert self.done, f"{self._worker.member} ended with {self._worker.process.returncode}"
        return self._worker.said[self._number]

    def result(self) -> Any:
        answer = self.answer()
        assert "error" not in answer, answer
        return answer["value"]

    def error(self) -> str:
        return str(self.answer().get("error", ""))


class Worker:
    """A worker process; `begin` gives it a command, `call` waits for its end."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.member = settings.member
        self.said: dict[int, dict[str, Any]] = {}
        env = {**os.environ, WORKER_ENV: settings.to_environment(), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
        )  # fmt: skip
        self._numbers = iter(range(1, 10_000))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def source(self) -> str:
        """`role/name#incarnation`, once it has joined."""
        return str(Call(self, 0).result())

    def begin(self, do: str, *args: Any, thread: str = "main") -> Call:
        number = next(self._numbers)
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "do": do, "args": args, "thread": thread}) + "\n")
        return Call(self, number)

    def call(self, do: str, *args: Any, thread: str = "main") -> Any:
        return self.begin(do, *args, thread=thread).result()

    def stop(self) -> None:
        """SIGSTOP; returns once the process stands still."""
        os.kill(self.process.pid, signal.SIGSTOP)
        until(lambda: psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def end(self) -> None:
        if self.process.poll() is None:
            self.go_on()
            self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            answer = json.loads(line)
            self.said[answer["id"]] = answer


class Watching:
    """A real monitor on a thread of the test."""

    def __init__(self, url: str, run: str, config: Config) -> None:
        self._store = RedisStore.connect(url, run, limits=StoreLimits(retry_s=config.store_limit_s))
        self.monitor = Monitor(self._store, config)
        self._stop = threading.Event()
        self.errors: list[str] = []
        self.away = 0
        self._thread = threading.Thread(target=self._loop, name="monitor", daemon=True)
        self._thread.start()

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self.monitor.run_once()
                if self.monitor._core is not None:
                    self.monitor._core.validate()
            except StoreUnavailable:
                self.away += 1
            except Exception as error:  # noqa: BLE001 - told at the end of the test
                self.errors.append(repr(error))

    @property
    def leads(self) -> bool:
        return self.monitor._core is not None

    @property
    def core(self) -> MonitorCore:
        until(lambda: self.leads, "the monitor leads")
        assert self.monitor._core is not None
        return self.monitor._core

    def vanish(self) -> None:
        """Stop without giving the lead back, as if killed."""
        self._stop.set()
        self._thread.join(20)

    def end(self) -> None:
        self.vanish()
        self.monitor.stop()
        self._store.close()


class Scene:
    """One run with its workers and its monitor. Ends all that it started."""

    def __init__(self, store: RedisStore, url: str) -> None:
        self.store, self.url = store, url
        self._workers: list[Worker] = []
        self._watching: list[Watching] = []

    def workers(self, *members: str, through: dict[str, str] | None = None, **config: Any) -> list[Worker]:
        """Start members, and wait until all have joined. `through`: another address of Redis for some."""
        settled = Config(redis=self.url, **{**QUICK, **config})
        made = []
        for member in members:
            settings = WorkerSettings(
                run=self.store.run, redis=(through or {}).get(member, self.url), member=member,
                role=member.partition("/")[0], config=settled,
            )  # fmt: skip
            made.append(Worker(settings))
        self._workers += made
        assert all(worker.source for worker in made)
        return made

    def watch(self, **config: Any) -> Watching:
        settled = Config(redis=self.url, **{**QUICK, **config})
        self._watching.append(Watching(self.url, self.store.run, settled))
        return self._watching[-1]

    def incidents(self, *causes: str) -> list[Incident]:
        """All incidents of these causes that ever were (of any, without), oldest first."""
        return [one for one in IncidentStore(self.store).list() if not causes or one.cause in causes]

    def incident(self, cause: str, *, state: str = "") -> Incident:
        """The one incident of a cause, as soon as there is one (in this state)."""

        def found() -> list[Incident]:
            return [one for one in self.incidents(cause) if state in ("", one.state)]

        until(found, f"an incident {cause} {state}; there are {[(i.cause, i.state) for i in self.incidents()]}")
        (one,) = found()
        return one

    def end(self) -> None:
        for worker in self._workers:
            worker.end()
        for watching in self._watching:
            watching.end()
        assert [error for watching in self._watching for error in watching.errors] == []
