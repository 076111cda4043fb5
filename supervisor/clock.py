"""The run's clock: wall-clock seconds, brought to Redis' time."""

from __future__ import annotations

import time
from collections.abc import Callable


class RunClock:
    """Seconds since the epoch as Redis counts them, from the local clock and one measured offset."""

    def __init__(self, local: Callable[[], float] = time.time) -> None:
        self._local = local
        self.offset_s = 0.0

    def __call__(self) -> float:
        """Now."""
        return self._local() + self.offset_s

    def align(self, ask: Callable[[], float]) -> None:
        """Measure the offset: `ask` returns Redis' time; half the round trip is taken off."""
        before = self._local()
        theirs = ask()
        after = self._local()
        self.offset_s = theirs - (before + after) / 2
