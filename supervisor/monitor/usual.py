"""How long waits for a thing usually take: learnt from those that ended."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable

from unknot.graph.ids import parse
from unknot.graph.participants import Participant

_KEPT = 64
_FEWEST = 3


class UsualWaits:
    """Durations in seconds of ended waits, by what was waited for; peers of one role count as one thing."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, int], tuple[str, float]] = {}
        self._ended: dict[str, deque[float]] = {}

    def observe(self, waiting: Iterable[Participant], now: float) -> None:
        """Take in who waits now; waits that are gone since have ended."""
        standing = {}
        for one in waiting:
            if one.wait is not None:
                standing[one.id, one.wait.ticket] = (_thing(one), one.wait.t)
        for key, (thing, since) in self._standing.items():
            if key not in standing:
                self._ended.setdefault(thing, deque(maxlen=_KEPT)).append(now - since)
        self._standing = standing

    def of(self, participant: Participant) -> float | None:
        """The median of what this participant waits for, None while too few have ended."""
        ended = self._ended.get(_thing(participant), ())
        return statistics.median(ended) if len(ended) >= _FEWEST else None


def _thing(participant: Participant) -> str:
    assert participant.wait is not None
    atoms = (atom for clause in participant.wait.needs for atom in clause.of)
    named = {f"peer {parse(a.p).role}" if a.p is not None else str(a.r or a.external) for a in atoms}
    return " ".join(sorted(named))
