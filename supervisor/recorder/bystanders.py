"""Threads of the process that never used anything of ours: they exist, they run, and they might help.

A thread that is about to send the awaited message for the first time has no slot yet. Whoever has a right, has it for all its
threads; so unless such threads are told too, a proof would forget somebody who can act. They are told as running, which can hide a
standstill of a process with busy helpers and never invents one. Left out are the threads of libraries that never run the user's
code (Ray's collector, ours, those of progress bars, trackers and metrics servers, which only serve their own library), and the idle
workers of a thread pool: what they do next has to be submitted by somebody who runs. A program that once called `asyncio.to_thread`
keeps such workers for ever, and would otherwise never be proved to stand still.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import thread as pools
from types import FrameType

from unknot.graph.events import Event
from unknot.supervisor.recorder.frames import current_frames
from unknot.supervisor.recorder.slots import Waiting
from unknot.supervisor.recorder.table import WaitTable

_LIBRARIES = frozenset({
    "unknot", "ray", "redis", "torch", "tqdm", "grpc", "pytest_timeout", "debugpy", "pydevd", "wandb", "mlflow", "comet_ml", "neptune",
    "tensorboard", "tensorboardX", "prometheus_client", "opentelemetry", "sentry_sdk", "ddtrace",
})  # fmt: skip
_POOL_WORKER = getattr(pools, "_worker", None)


class Bystanders:
    """Adds a running participant for each of them to every snapshot."""

    def __init__(self, table: WaitTable) -> None:
        self._table = table

    def collect(self, standing: dict[str, Waiting]) -> Sequence[Event]:  # noqa: ARG002 - a Source is asked so
        """The starts of threads that have no slot."""
        known = self._table.known_idents()
        others = [thread for thread in user_threads() if thread.ident not in known]
        return [
            self._table.start_of(f"{self._table.source}/{thread.name.replace('/', '.')}.{thread.native_id}")
            for thread in others
        ]


def user_threads() -> list[threading.Thread]:
    """The live threads that run the user's code, as far as that can be told."""
    threads = [thread for thread in threading.enumerate() if not _is_librarys(thread) and _runs(thread)]
    if not any(_is_pools(thread) for thread in threads):
        return threads
    frames = current_frames()
    return [thread for thread in threads if not (_is_pools(thread) and _is_idle(thread, frames))]


def _runs(thread: threading.Thread) -> bool:
    """Python keeps a stand-in for each thread of a C library that once asked for its name, also when that has ended."""
    if isinstance(thread, threading._DummyThread):
        return os.path.exists(f"/proc/self/task/{thread.native_id}")
    return thread.is_alive()


def _is_librarys(thread: threading.Thread) -> bool:
    runs = [run for run in (getattr(thread, "_target", None), getattr(thread, "function", None)) if run is not None]
    owners = [type(thread), *runs, *(type(run.__self__) for run in runs if hasattr(run, "__self__"))]
    return any((getattr(one, "__module__", None) or "").partition(".")[0] in _LIBRARIES for one in owners)


def _is_pools(thread: threading.Thread) -> bool:
    return _POOL_WORKER is not None and getattr(thread, "_target", None) is _POOL_WORKER


def _is_idle(thread: threading.Thread, frames: Mapping[int, FrameType]) -> bool:
    """Whether a pool's worker stands before its queue, and nothing is in it."""
    frame = frames.get(thread.ident or 0)
    if frame is None or frame.f_code is not getattr(_POOL_WORKER, "__code__", None):
        return False
    mine = frame.f_locals
    queue = mine.get("work_queue")
    return queue is not None and mine.get("work_item") is None and bool(queue.empty())
