"""Who lives and runs, and marks no progress any more: a retry that never succeeds, two who undo each other's work, a loop without end.

Nobody waits there, so no graph shows it; only what a member says of its own work does (`unknot.progress`, and every step that counts). So
nothing is said of a member that has never marked any, and only time in which its main thread was not seen to wait counts: who
waits is told by what it waits for, and who polls an empty mailbox is no culprit. How long is long is a setting, and ten times the
usual time between two marks where that is more: an evaluation every thousand steps is no circle. Time before this
monitor led is held against nobody: somebody may have waited in it. It is never proof, and has no remedy but people.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from unknot.graph.live import LiveGraph
from unknot.recovery.registration import MemberInfo

_USUALLY = 10.0


class Circle(msgspec.Struct, frozen=True, kw_only=True):
    """A member that runs without progress, and since how many seconds; `usual_s` between two marks, None if it made one only."""

    member: MemberInfo
    without_s: float
    usual_s: float | None


class Progress:
    """What members have marked, from the first time that this was looked at."""

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._first: dict[str, tuple[int, float]] = {}
        self._waited_at: dict[str, float] = {}

    def circles(self, graph: LiveGraph, members: Iterable[MemberInfo], *, since: float, now: float) -> list[Circle]:
        """Members without progress for too long at `now` seconds; all has been seen `since` then."""
        workers = {one.source: one for one in members if one.state == "alive" and one.role != "driver" and one.progress_n}
        self._first = {source: seen for source, seen in self._first.items() if source in workers}
        self._waited_at = {source: at for source, at in self._waited_at.items() if source in workers}
        return list(self._circles(graph, workers.values(), since, now))

    def _circles(self, graph: LiveGraph, workers: Iterable[MemberInfo], since: float, now: float) -> Iterator[Circle]:
        for member in workers:
            main = graph.participants.get(member.source)
            if main is not None and main.wait is not None:
                self._waited_at[member.source] = now
            without_s = now - max(member.progress_at, self._waited_at.get(member.source, since), since)
            usual_s = self._usual_s(member)
            if without_s >= max(self._after_s, _USUALLY * (usual_s or 0.0)) and now - member.beat_at <= member.lease_s:
                yield Circle(member=member, without_s=without_s, usual_s=usual_s)

    def _usual_s(self, member: MemberInfo) -> float | None:
        n, at = self._first.setdefault(member.source, (member.progress_n, member.progress_at))
        return (member.progress_at - at) / (member.progress_n - n) if member.progress_n > n else None
