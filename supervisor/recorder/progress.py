"""Progress marks: how much real work this process has done, and when it last did some.

`unknot.progress` only counts in a dict, so that it costs nothing in a training step. Whoever looks (the publisher, every
50 ms) notes which counts have grown since its last look, and so when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from unknot.graph.events import Progress


class Mark(msgspec.Struct, frozen=True):
    """`n` so far in all, and when that was last seen to grow: seconds on the run's clock."""

    n: int
    at: float


class ProgressNotes:
    """The marks of one process. For the publisher's thread alone; `counts` may be read at any time."""

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts
        self._marks: dict[str, Mark] = {}

    def look(self, now: float) -> None:
        """Take in what has been marked until `now`."""
        for what, n in self._counts().items():
            known = self._marks.get(what)
            if known is None or known.n != n:
                self._marks[what] = Mark(n, now)

    def events(self, participant: str) -> tuple[Progress, ...]:
        """The marks as events of `participant`: totals, each dated when it last grew."""
        return tuple(Progress(p=participant, t=mark.at, what=what, n=mark.n) for what, mark in self._marks.items())

    def encoded(self) -> str:
        """As JSON: `{"step": {"n": 12, "at": 1722.5}}`."""
        return msgspec.json.encode(self._marks).decode()


def nothing() -> Mapping[str, int]:
    """The counts of a process that marks nothing."""
    return {}
