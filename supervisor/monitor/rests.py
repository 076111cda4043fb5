"""Who is left alone after a remedy, and who bore it.

Freed threads often do at once what they did before. Interrupting them again in the same moment would be a second knot of
our own making, so the participants of a component are left alone for one period; and the next time somebody else yields.

Code that catches the interruption and waits again at once is not helped by more of it. Who was struck a few times at one place, each
time soon after the last rest and without a mark of progress in between, is left to people for a while, then struck once more, and left
alone twice as long after that. A knot at another place is another matter: a run that ties many of them is freed from each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

_STRIKES = 3
# So many rest periods after the last strike, the next one is the first again.
_CALM = 5.0
_LONGEST_CALM_S = 600.0


class Place(NamedTuple):
    """Where a participant stands: what it waits for, and when it last marked progress (None: never)."""

    resources: tuple[str, ...]
    progress_at: float | None = None


class _Struck(NamedTuple):
    times: int
    place: Place
    at: float
    calm_at: float

    def is_at(self, place: Place) -> bool:
        """Whether somebody who stands at `place` is where it was struck, and has done nothing since."""
        progressed = place.progress_at is not None and place.progress_at > self.at
        return place.resources == self.place.resources and not progressed


class Rests:
    """The last remedy of each participant of a core."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._target: dict[str, str] = {}
        self._struck: dict[str, _Struck] = {}

    def strike(self, target: str, place: Place, *, now: float, rest_s: float) -> None:
        """A remedy on `target` begins; after it comes a rest of `rest_s` seconds."""
        before, calm_s = self._struck.get(target), _CALM * rest_s
        times = 1
        if before is not None and before.is_at(place):
            # Who is in vain is struck at the end of its calm at the earliest.
            until = before.calm_at + (calm_s if before.times >= _STRIKES else 0.0)
            times = before.times + 1 if now < until else 1
        longer = 2.0 ** min(max(0, times - _STRIKES), 30)
        self._struck[target] = _Struck(times, place, now, now + min(calm_s * longer, max(calm_s, _LONGEST_CALM_S)))

    def in_vain(self, places: Mapping[str, Place], now: float) -> dict[str, float]:
        """Whom of those who stand at `places` more of the same does not help now, and until when."""
        struck = {pid: self._struck[pid] for pid in places if pid in self._struck}
        return {
            pid: one.calm_at
            for pid, one in struck.items()
            if one.times >= _STRIKES and now < one.calm_at and one.is_at(places[pid])
        }

    def begin(self, core: Iterable[str], *, target: str, until: float) -> None:
        """A remedy on `target` for this core; leave it alone until `until` (seconds)."""
        for pid in core:
            self._until[pid] = max(until, self._until.get(pid, until))
            self._target[pid] = target

    def until(self, core: Iterable[str]) -> float:
        """Until when somebody of this core is left alone; minus infinity for never."""
        return max((self._until.get(pid, float("-inf")) for pid in core), default=float("-inf"))

    def targets(self, core: Iterable[str]) -> frozenset[str]:
        """Whom the last remedies of this core struck."""
        return frozenset(self._target[pid] for pid in core if pid in self._target)

    def forget(self, known: Iterable[str]) -> None:
        """Keep only what concerns participants that are still known."""
        kept = set(known)
        self._until = {pid: until for pid, until in self._until.items() if pid in kept}
        self._target = {pid: target for pid, target in self._target.items() if pid in kept}
        self._struck = {pid: struck for pid, struck in self._struck.items() if pid in kept}
