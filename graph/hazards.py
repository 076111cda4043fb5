"""Lock orders that another schedule could turn into a deadlock, told before anything hangs.

Each time a participant takes a lock while it holds others, the order "held before taken" is noted, with both call sites and
the modes. A ring of such orders is a hazard if all of it could happen at once (Goodlock, Havelund 2000, with the read and
write modes that lockdep distinguishes):

- each order of the ring comes from another participant: one alone cannot meet itself. Incarnations of a member count as
  one, since the older one is dead;
- at each lock of the ring the one who wants it is excluded by the one who holds it: readers that meet readers pass;
- no two of them held a common lock that excludes them from each other (a gate lock), since then only one of them is inside.

A trace tells all that is taken and released (`observe`). A live process notes its own orders and tells each once
(`supervisor/recorder/lock_orders.py`), since telling every lock would cost a write for each; they come in by `note`.

A lock that is taken with a time-out makes no order with those held before: whoever asks for it goes on by itself. (A trace does not tell
of a lock that was free whether there was one.)

A lock that was asked for and never granted makes no order here: that is an incident already, not a hazard. Rejected: to
follow orders through messages and events. Linux tried it (cross-release) and took it out again for its false reports.

Memory is bounded by numbers, not by the run: so many pairs of locks, so many different ways for each pair, so many hazards.
What does not fit is counted in `dropped`. The search for a ring starts at a new order alone, goes `RING` locks deep and
takes at most `STEPS` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from unknot.graph import events as ev
from unknot.graph.ids import parse, shown
from unknot.graph.wording import listed

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph

PAIRS = 65_536
WAYS = 8
RING = 6
STEPS = 20_000
HAZARDS = 100
_UNKNOWN = "?"
_LOCKS = frozenset({"lock", "rwlock"})


class Hazard(msgspec.Struct, frozen=True, kw_only=True):
    """A ring of lock orders: `sites` has for each lock of the ring where it was taken and where the next one was."""

    locks: tuple[str, ...]
    sites: tuple[tuple[str, str], ...]
    text: str


class Taken(msgspec.Struct, frozen=True):
    """A lock that somebody has taken: its id, in which mode, and where (`file:line`)."""

    lock: str
    mode: str
    site: str


class Order(msgspec.Struct, frozen=True):
    """`who` (a participant without its incarnation) took `second` while it held `first` and the `gates` (lock, mode)."""

    who: str
    first: Taken
    second: Taken
    gates: frozenset[tuple[str, str]] = frozenset()


Excludes = Callable[[str, str, str], bool]
"""Of a lock: whether a request in the one mode cannot be served beside a hold in the other."""


def always(_lock: str, _mode: str, _other: str) -> bool:
    """Plain locks: every hold excludes every other."""
    return True


def order_of(who: str, held: Sequence[Taken], first: Taken, second: Taken) -> Order:
    """That the participant `who` takes `second` while it holds all of `held`, `first` among them."""
    gates = frozenset((one.lock, one.mode) for one in held if one is not first)
    return Order(_who(who), first, second, gates)


@dataclass(slots=True)
class LockOrder:
    """Notes in which order locks are taken. Feed it each event after the graph has taken it."""

    dropped: int = 0
    _held: dict[str, list[Taken]] = field(default_factory=dict)
    _asked: dict[str, str] = field(default_factory=dict)
    _orders: dict[str, dict[str, list[Order]]] = field(default_factory=dict)
    _pairs: int = 0
    _found: dict[frozenset[str], Hazard] = field(default_factory=dict)

    def observe(self, graph: LiveGraph, event: ev.Event) -> None:
        """Take one event. `graph` says what type a resource is and which modes exclude each other."""
        if isinstance(event, ev.Hold):
            state = graph.resources.get(event.r)
            if state is not None and state.type in _LOCKS and event.p:
                self._take(graph, event)
        elif isinstance(event, ev.Release):
            self._release(event.p, event.r)
        elif isinstance(event, ev.Wait):
            if event.site is not None:
                self._asked[event.p] = event.site
        elif isinstance(event, ev.End):
            self._held.pop(event.p, None)
            self._asked.pop(event.p, None)
        elif isinstance(event, ev.Fence):
            self._fence(event)

    def hazards(self) -> tuple[Hazard, ...]:
        """All that were found, the first one first."""
        return tuple(self._found.values())

    # --- what is held ---

    def _take(self, graph: LiveGraph, event: ev.Hold) -> None:
        held = self._held.setdefault(event.p, [])
        site = event.site or self._asked.get(event.p) or _UNKNOWN
        taken = Taken(event.r, event.mode, site)
        if all(one.lock != event.r for one in held):
            for first in list(held):
                self.note(order_of(event.p, held, first, taken), _told_by(graph))
        self._asked.pop(event.p, None)
        held.append(taken)

    def _release(self, pid: str, r: str) -> None:
        held = self._held.get(pid, [])
        for place in range(len(held) - 1, -1, -1):
            if held[place].lock == r:
                del held[place]
                break
        if not held:
            self._held.pop(pid, None)

    def _fence(self, event: ev.Fence) -> None:
        for pid in list(self._held):
            own = parse(pid)
            if own.member == event.member and own.incarnation < event.incarnation:
                del self._held[pid]

    # --- orders ---

    def note(self, order: Order, excludes: Excludes = always) -> None:
        """Take one order that somebody else has seen; `excludes` says which modes of a lock exclude each other."""
        ways = self._orders.get(order.first.lock, {}).get(order.second.lock)
        if ways is not None and order in ways:
            return
        if len(ways) >= WAYS if ways is not None else self._pairs >= PAIRS:
            self.dropped += 1
            return
        if ways is None:
            self._pairs += 1
            ways = self._orders.setdefault(order.first.lock, {}).setdefault(order.second.lock, [])
        ways.append(order)
        self._search(excludes, order)

    def _search(self, excludes: Excludes, order: Order) -> None:
        """Rings that `order` closes, a shortest one first for each set of locks."""
        steps = 0
        paths: list[tuple[Order, ...]] = [(order,)]
        while paths and len(self._found) < HAZARDS:
            longer: list[tuple[Order, ...]] = []
            for path in paths:
                for following in self._after(excludes, path):
                    steps += 1
                    if steps > STEPS:
                        self.dropped += 1
                        return
                    if following.second.lock == order.first.lock:
                        self._close(excludes, (*path, following))
                    elif len(path) + 1 < RING:
                        longer.append((*path, following))
            paths = longer

    def _after(self, excludes: Excludes, path: tuple[Order, ...]) -> Iterator[Order]:
        """Orders that can go on from the end of `path`, all of it at the same time."""
        wanted = path[-1].second
        passed = {one.first.lock for one in path[1:]} | {wanted.lock}
        for lock, ways in self._orders.get(wanted.lock, {}).items():
            if lock in passed:
                continue
            for one in ways:
                if _excluded(excludes, wanted, one.first) and all(_together(excludes, one, other) for other in path):
                    yield one

    def _close(self, excludes: Excludes, ring: tuple[Order, ...]) -> None:
        if not _excluded(excludes, ring[-1].second, ring[0].first):
            return
        start = min(range(len(ring)), key=lambda place: ring[place].first.lock)
        ring = (*ring[start:], *ring[:start])
        locks = tuple(one.first.lock for one in ring)
        if frozenset(locks) not in self._found:
            sites = tuple((one.first.site, one.second.site) for one in ring)
            self._found[frozenset(locks)] = Hazard(locks=locks, sites=sites, text=_told(ring))


def _who(pid: str) -> str:
    own = parse(pid)
    return f"{own.member}/{own.thread}" if own.thread else own.member


def _told_by(graph: LiveGraph) -> Excludes:
    return lambda lock, mode, other: graph.resources[lock].excludes(mode, other)


def _excluded(excludes: Excludes, wanted: Taken, held: Taken) -> bool:
    return excludes(wanted.lock, wanted.mode, held.mode)


def _together(excludes: Excludes, one: Order, other: Order) -> bool:
    """Whether two participants can stand in these orders at the same time."""
    if one.who == other.who:
        return False
    mine = (*one.gates, (one.first.lock, one.first.mode))
    theirs = (*other.gates, (other.first.lock, other.first.mode))
    return not any(a == b and excludes(a, m, n) for a, m in mine for b, n in theirs)


def _told(ring: tuple[Order, ...]) -> str:
    parts = [
        f"{one.who} took {shown(one.first.lock)} ({one.first.site}), then {shown(one.second.lock)} ({one.second.site})"
        for one in ring
    ]
    return f"{listed([shown(one.first.lock) for one in ring])} can deadlock: " + "; ".join(parts)
