"""Who is left alone after a remedy, and who bore it.

Freed threads often do at once what they did before. Interrupting them again in the same moment would be a second knot of
our own making, so the participants of a component are left alone for one period; and the next time somebody else yields.

Code that catches the interruption and waits again at once is not helped by more of it. Who was struck a few times, each time soon
after the last rest, is left to people until it has stayed out of trouble for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_STRIKES = 3
# So many rest periods after the last strike, the next one is the first again.
_CALM = 5.0


class _Struck(NamedTuple):
    times: int
    calm_at: float


class Rests:
    """The last remedy of each participant of a core."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._target: dict[str, str] = {}
        self._struck: dict[str, _Struck] = {}

    def strike(self, target: str, *, now: float, rest_s: float) -> None:
        """A remedy on `target` begins; after it comes a rest of `rest_s` seconds."""
        before = self._struck.get(target)
        times = before.times + 1 if before is not None and now < before.calm_at else 1
        self._struck[target] = _Struck(times, now + _CALM * rest_s)

    def in_vain(self, now: float) -> tuple[str, ...]:
        """Whom more of the same does not help."""
        return tuple(pid for pid, struck in self._struck.items() if struck.times >= _STRIKES and now < struck.calm_at)

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
