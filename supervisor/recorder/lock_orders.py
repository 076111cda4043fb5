"""In which order the threads of this process take locks of the run: what `graph/hazards.py` finds rings in, across processes.

Noted where a lock of the run is taken while another one is held: beside the round trip to Redis that this takes, the walk to the
call site is nothing. Each way (who, both locks, both places, what else was held) is kept and told once, so a run that goes on as it
began costs nothing more. Locks of `threading` are left out: taking one writes one attribute, and a list of what is held would double that.
"""

from __future__ import annotations

from collections.abc import Sequence

from unknot.graph.hazards import Order, Taken, order_of

KEPT = 1000
AT_ONCE = 200


class LockOrders:
    """Written by any thread, read by the publisher. `dropped` counts ways that are not told, after the first `KEPT`."""

    def __init__(self) -> None:
        self.dropped = 0
        self._seen: set[Order] = set()
        self._untold: list[Order] = []

    def note(self, participant: str, held: Sequence[Taken], taken: Taken) -> None:
        """`participant` has `taken` a lock while it held those of `held`."""
        for first in held:
            order = order_of(participant, held, first, taken)
            if order in self._seen:
                continue
            if len(self._seen) >= KEPT:
                self.dropped += 1
                continue
            self._seen.add(order)
            self._untold.append(order)

    def untold(self) -> tuple[Order, ...]:
        """The next ones to tell, the oldest first."""
        return tuple(self._untold[:AT_ONCE])

    def told(self, number: int) -> None:
        """The first `number` of them have been told."""
        del self._untold[:number]
