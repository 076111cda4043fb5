"""What the benchmarks share: ratios with an interval, the machine, and how a target is told.

Two variants are timed in short blocks, one after the other, in an order that changes from pair to pair, so that whatever
else the machine does falls on both alike. The statistic is the median of the ratios of the pairs; its interval is the
percentile bootstrap over pairs (Efron, 1979). Means and minima were rejected: one pause of the machine moves a mean, and a
minimum says what can happen, not what does.
"""

from __future__ import annotations

import datetime
import os
import platform
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

RESAMPLES = 2000
QUIET_LOAD = 1.0


class Ratio(NamedTuple):
    """A median of ratios with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} (95 % interval {self.low:.4f} to {self.high:.4f})"


def ratio_of(pairs: Sequence[tuple[float, float]], *, seed: int = 0) -> Ratio:
    """How many times as long the first of each pair took as the second.

    Raises:
        ValueError: no pairs.
    """
    if not pairs:
        raise ValueError("nothing was measured")
    ratios = [first / second for first, second in pairs]
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return Ratio(statistics.median(ratios), medians[int(RESAMPLES * 0.025)], medians[int(RESAMPLES * 0.975)])


def alternate(
    first: Callable[[], float], second: Callable[[], float], *, pairs: int
) -> list[tuple[float, float]]:
    """Time both in turn, `pairs` times; the one that begins changes each time."""
    found = []
    for number in range(pairs):
        if number % 2 == 0:
            one = first()
            found.append((one, second()))
        else:
            other = second()
            found.append((first(), other))
    return found


def show_machine() -> None:
    """The machine, the date, and whether it was busy when the measurement began."""
    load = os.getloadavg()[0]
    state = "quiet" if load < QUIET_LOAD else "other work was running"
    print(f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}, {processor()}, {os.cpu_count()} cores, {platform.system()}, "
          f"Python {platform.python_version()}; load at start {load:.1f} ({state})")  # fmt: skip


def processor() -> str:
    """The processor's name as the system tells it."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def show_target(what: str, value: float, target: float, unit: str = "") -> None:
    """One line that says whether the target was met."""
    verdict = "met" if value <= target else "NOT met"
    print(f"{what}: {value:.4g}{unit}, target {target:g}{unit}: {verdict}")
    sys.stdout.flush()
