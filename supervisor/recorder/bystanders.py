"""Threads of the process that never used anything of ours: they exist, they run, and they might help.

A thread that is about to send the awaited message for the first time has no slot yet. Whoever has a right, has it for all its
threads; so unless such threads are told too, a proof would forget somebody who can act. They are told as running, which can hide a
standstill of a process with busy helpers and never invents one. Left out are the threads of libraries that never run the user's
code (Ray's collector, ours, those of pools and progress bars that only serve their own library).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from unknot.graph.events import Event
from unknot.supervisor.recorder.slots import Waiting
from unknot.supervisor.recorder.table import WaitTable

_LIBRARIES = frozenset({"unknot", "ray", "redis", "torch", "tqdm", "grpc", "pytest_timeout", "debugpy", "pydevd"})


class Bystanders:
    """Adds a running participant for each of them to every snapshot."""

    def __init__(self, table: WaitTable) -> None:
        self._table = table

    def collect(self, standing: dict[str, Waiting]) -> Sequence[Event]:  # noqa: ARG002 - a Source is asked so
        """The starts of threads that have no slot."""
        known = self._table.known_idents()
        others = [thread for thread in user_threads() if thread.ident not in known]
        return [
            self._table.start_of(f"{self._table.source}/{thread.name.replace('/', '.')}.{thread.native_id}") for thread in others
        ]


def user_threads() -> list[threading.Thread]:
    """The live threads that run the user's code, as far as that can be told."""
    return [thread for thread in threading.enumerate() if not _is_librarys(thread) and _runs(thread)]


def _runs(thread: threading.Thread) -> bool:
    """Python keeps a stand-in for each thread of a C library that once asked for its name, also when that has ended."""
    if isinstance(thread, threading._DummyThread):
        return os.path.exists(f"/proc/self/task/{thread.native_id}")
    return thread.is_alive()


def _is_librarys(thread: threading.Thread) -> bool:
    runs = (getattr(thread, "_target", None), getattr(thread, "function", None))
    modules = (type(thread).__module__, *(getattr(one, "__module__", None) or "" for one in runs))
    return any(module.partition(".")[0] in _LIBRARIES for module in modules)
