"""Who may help: what a rights list means for the participants that are known now.

A list names participants, sources (`agent/b#1`: any thread of that process), members (any thread of the live
incarnation) and patterns over members (`agent/*`). Group queues are no threads: they never count.

A list is complete only together with those who could start somebody new that it matches. That is the driver:
a pattern, and a member that never started, are closed only if the driver cannot go on either, so the driver
joins the suppliers. Where no driver is known, anybody might start somebody, and the list is open.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from unknot.graph.ids import is_pattern, parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import Participant


@dataclass(frozen=True, slots=True)
class Suppliers:
    """`alive` may help; `gone` could have; `open` says that somebody unknown may."""

    alive: frozenset[str]
    gone: frozenset[str]
    open: bool = False


_SOMEBODY = Suppliers(frozenset(), frozenset(), open=True)


class Rights:
    """Resolves rights lists against one state of a graph; make a new one after any change."""

    def __init__(self, graph: LiveGraph) -> None:
        self._graph = graph
        self._cache: dict[tuple[str, ...], Suppliers] = {}
        people = graph.participants
        self._drivers = frozenset(pid for pid in graph.drivers if people[pid].how is None)
        self._no_driver = not graph.drivers

    def suppliers(self, names: Iterable[str]) -> Suppliers:
        """Who may help by the list `names`."""
        key = tuple(names)
        if key not in self._cache:
            parts = [self._one(name) for name in key]
            self._cache[key] = Suppliers(
                frozenset().union(*(part.alive for part in parts)),
                frozenset().union(*(part.gone for part in parts)),
                any(part.open for part in parts),
            )
        return self._cache[key]

    def _one(self, name: str) -> Suppliers:
        if is_pattern(name):
            return self._pattern(name)
        if "#" in name:
            return self._process(name)
        return self._member(name)

    def _pattern(self, name: str) -> Suppliers:
        found = [self._member(member) for member in self._graph.members if fnmatchcase(member, name)]
        return Suppliers(
            self._drivers.union(*(part.alive for part in found)),
            frozenset().union(*(part.gone for part in found)),
            self._no_driver or any(part.open for part in found),
        )

    def _process(self, name: str) -> Suppliers:
        own = parse(name)
        if own.thread:
            known = self._graph.participants.get(name)
            return self._split([known]) if known is not None else self.stranger(name)
        threads = self._threads(name)
        return self._split(threads) if threads else self.stranger(name)

    def _member(self, name: str) -> Suppliers:
        known = [self._graph.participants[pid] for pid in self._graph.members.get(name, ())]
        threads = [one for one in known if not one.is_queue]
        fence = self._graph.fences.get(name, 0)
        newest = max((one.incarnation for one in threads), default=-1)
        if newest < fence or not threads:
            return _SOMEBODY if self._heard_of(name, fence) else self.unborn()
        return self._split([one for one in threads if one.incarnation == newest])

    def _heard_of(self, member: str, fence: int) -> bool:
        """Whether a live process of `member` has reported, though none of its threads is known."""
        return self._graph.heard.get(member, -1) >= fence

    def _threads(self, source: str) -> list[Participant]:
        everybody = (self._graph.participants[pid] for pid in self._graph.by_source.get(source, ()))
        return [one for one in everybody if not one.is_queue]

    def _split(self, found: list[Participant]) -> Suppliers:
        alive = frozenset(one.id for one in found if one.how is None)
        return Suppliers(alive, frozenset(one.id for one in found if one.how is not None))

    def unborn(self) -> Suppliers:
        """Who may help in place of a member that never started."""
        return Suppliers(self._drivers, frozenset(), self._no_driver)

    def stranger(self, name: str) -> Suppliers:
        """Who may help in place of a participant or source that is not known.

        One of a process that is heard of may come any time: open. One of a fenced incarnation never will.
        """
        own = parse(name)
        if own.incarnation < self._graph.fences.get(own.member, 0):
            return Suppliers(frozenset(), frozenset({name}))
        if own.source in self._graph.sources or own.source in self._graph.by_source:
            return _SOMEBODY
        return self.unborn()
