"""What `instrument("threading")` costs per uncontended `with lock: pass`, as a ratio to the standard library's lock.

A block is one loop of 20,000 rounds in a function of its own, so that both variants run the same byte code on a local name. The
empty loop is timed too and taken off both: else the loop's own cost would flatter the ratio. With observation off nothing is
wrapped, so the lock is the standard one itself; that is checked, not measured.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from contextlib import AbstractContextManager
from typing import Any

from measuring import alternate, ratio_of, show_machine, show_target

from unknot.integrations.instrument import instrument
from unknot.integrations.threads import TracedLock
from unknot.supervisor import process as processes
from unknot.supervisor.recorder.table import WaitTable

PAIRS = 201
ROUNDS = 20_000
TARGET = 2.5


def main() -> int:
    show_machine()
    table = WaitTable(member="bench/locks", incarnation=1, role="bench", clock=time.time)
    traced: AbstractContextManager[object] = TracedLock(table, "bench")
    raw: AbstractContextManager[object] = threading.Lock()
    empty = statistics.median(empty_block() for _ in range(PAIRS))
    pairs = [
        (one - empty, other - empty)
        for one, other in alternate(lambda: block(traced), lambda: block(raw), pairs=PAIRS)
    ]
    wrapped_ns, raw_ns = (1e9 * statistics.median(of) / ROUNDS for of in zip(*pairs, strict=True))
    ratio = ratio_of(pairs)
    print(f"with lock: pass, uncontended: {raw_ns:.0f} ns raw, {wrapped_ns:.0f} ns wrapped; ratio {ratio}")
    show_target("a wrapped lock to a raw one", ratio.value, TARGET)
    print(f"observation off: threading.Lock() is {'the raw lock' if is_raw_when_off() else 'WRAPPED'}")
    return 0


def block(lock: AbstractContextManager[object]) -> float:
    """Seconds of one loop."""
    began = time.perf_counter()
    for _ in range(ROUNDS):
        with lock:
            pass
    return time.perf_counter() - began


def empty_block() -> float:
    began = time.perf_counter()
    for _ in range(ROUNDS):
        pass
    return time.perf_counter() - began


def is_raw_when_off() -> bool:
    """Whether `instrument("threading")` in a process without a wait table leaves `threading.Lock` alone."""
    before: Any = threading.Lock
    off = type("Off", (), {"table": None})()
    processes._current = off
    try:
        with instrument("threading"):
            return threading.Lock is before
    finally:
        processes._current = None


if __name__ == "__main__":
    sys.exit(main())
