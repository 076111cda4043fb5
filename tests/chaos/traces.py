"""What a run may leave behind on this machine and in its Redis, looked for while it goes and after it has ended."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import psutil

from unknot.recovery.run import run_state
from unknot.supervisor.store.redis_store import RedisStore

MARK = "UNKNOT_CHAOS_RUN"
LIMIT_S = 20.0
LOOK_EVERY_S = 3.0
# What is told of deaths and recoveries; nothing of it waits for anybody.
OF_RECOVERIES = frozenset({"marks", "incident", "incidents"})


class Traces:
    """The processes whose environment holds one mark, and the ports that they have listened on."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._began = time.time()
        self._ports: set[int] = set()
        self._known: dict[tuple[int, float], bool] = {}
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            for pid, port in _listening():
                if pid is not None and self._is_of_run(pid):
                    self._ports.add(port)

    def _is_of_run(self, pid: int) -> bool:
        try:
            process = psutil.Process(pid)
            key = (pid, process.create_time())
            if key not in self._known:
                self._known[key] = pid != os.getpid() and process.environ().get(MARK) == self._mark
            return self._known[key]
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            return False

    def left(self) -> tuple[str, ...]:
        """What is still there once the run has ended, after a moment to end in."""
        self._ended.set()
        self._looking.join()
        ended = time.time()
        deadline = time.monotonic() + LIMIT_S
        while left := (*self._processes(), *self._listeners(ended)):
            if time.monotonic() > deadline:
                return left
            time.sleep(0.2)
        return () if self._ports else ("no port of the run was ever seen: the look for them is blind",)

    def _processes(self) -> tuple[str, ...]:
        return tuple(f"process {_shown(pid)}" for pid in psutil.pids() if self._is_of_run(pid))

    def _listeners(self, ended: float) -> tuple[str, ...]:
        """Of its ports those that somebody listens on who may be of the run; who came later is not."""
        return tuple(
            f"port {port} of {_shown(pid)}" for pid, port in _listening() if port in self._ports and _was_there(pid, ended)
        )  # fmt: skip


def _listening() -> list[tuple[int | None, int]]:
    return [
        (one.pid, one.laddr.port) for one in psutil.net_connections("inet") if one.status == psutil.CONN_LISTEN and one.laddr
    ]  # fmt: skip


def _was_there(pid: int | None, at: float) -> bool:
    try:
        return pid is None or psutil.Process(pid).create_time() <= at
    except psutil.NoSuchProcess:
        return False


def _shown(pid: int | None) -> str:
    try:
        return f"{pid} {' '.join(psutil.Process(pid).cmdline()[:3])}"
    except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return f"{pid}"


def kinds_of_keys(url: str, run: str) -> frozenset[str]:
    """The kinds of the keys that stay of a run that was closed: those that do not expire."""
    with RedisStore.connect(url, run) as store:
        prefix = store.key()
        keys = store.command("KEYS", prefix.replace("{", "\\{").replace("}", "\\}") + "*")
        stay = [key.decode().removeprefix(prefix) for key in keys if store.command("TTL", key) == -1]
        return frozenset(key.partition(":")[0] for key in stay)


def left_in_redis(url: str, run: str, kept: frozenset[str]) -> tuple[str, ...]:
    """Kinds of keys of the run beyond those that an undisturbed one keeps."""
    with RedisStore.connect(url, run) as store:
        state = run_state(store)
    beyond = kinds_of_keys(url, run) - kept - OF_RECOVERIES
    return (*(f"keys of kind {kind}" for kind in sorted(beyond)), *([] if state == "closed" else [f"the run, {state}"]))


def left_in_directory(runs: Path) -> tuple[str, ...]:
    """Of a run with a Redis of its own: the file by which the server is found, or a file that is half written."""
    return tuple(f"file {path.relative_to(runs)}" for path in runs.rglob("*") if path.name == "redis.json" or path.suffix == ".tmp")
