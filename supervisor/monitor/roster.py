"""The members as the monitor knows them: who was replaced, who ended, and who has been silent for too long.

Registration, the end of a process and its records come by different ways (hash and stream), so each may be read first.
Whatever the order, a source that was replaced or has ended stays so: a record that comes after it changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from unknot.graph.events import End, Event, Fence, Start
from unknot.graph.live import LiveGraph
from unknot.recovery.registration import MemberInfo

_ENDED = ("done", "dead")
_CRASH_NEWS_S = 30.0


class Roster:
    """The newest word of the store on each member."""

    def __init__(self) -> None:
        self._members: dict[str, MemberInfo] = {}
        self._expected: dict[str, int] = {}
        self._crashes_told: dict[str, int] = {}

    def update(self, graph: LiveGraph, members: Iterable[MemberInfo], now: float) -> list[Event]:
        """Take the members as the store has them; what follows for `graph`. `now`: seconds."""
        events: list[Event] = []
        for member in members:
            self._members[member.member] = member
            if member.incarnation > max(1, graph.fences.get(member.member, 0)):
                events.append(Fence(member=member.member, incarnation=member.incarnation, t=now))
            events += self._begins(graph, member, now)
            events += self._ends(graph, member)
        return events

    @staticmethod
    def _begins(graph: LiveGraph, member: MemberInfo, now: float) -> list[Event]:
        """A process that is expected or has registered runs, as long as it has not said otherwise itself."""
        if member.state in _ENDED or member.source in graph.by_source or graph.absorbed(member.source):
            return []
        return [
            Start(
                p=member.source, t=now, member=member.member, role=member.role, incarnation=member.incarnation
            )
        ]

    def behind(self, graph: LiveGraph) -> list[str]:
        """Sources of which a record is missing: one that was written before the last call and has not been read yet."""
        alive = [member for member in self._members.values() if member.state not in _ENDED]
        before, self._expected = self._expected, {member.source: member.records for member in alive}
        return [source for source, n in before.items() if source in self._expected and graph.absorbed(source) < n]

    def after(self, graph: LiveGraph, source: str) -> list[Event]:
        """What follows for `graph` once a record of `source` was read."""
        member = self._members.get(source.partition("#")[0])
        return self._ends(graph, member) if member is not None and member.source == source else []

    def is_over(self, source: str) -> bool:
        """Whether the process of `source` has ended or was replaced."""
        member = self._members.get(source.partition("#")[0])
        return member is not None and (member.source != source or member.state in _ENDED)

    def is_replaced(self, source: str) -> bool:
        """Whether a newer incarnation than `source` has registered."""
        member = self._members.get(source.partition("#")[0])
        return member is not None and member.source != source

    def dead(self) -> list[MemberInfo]:
        """Members whose present incarnation ended by an error or a signal."""
        return [member for member in self._members.values() if member.state == "dead"]

    def crashed(self, now: float) -> list[MemberInfo]:
        """Members of which a process was lost and replaced since this was asked last; each loss once.

        What is older than a while was told by an earlier leader.
        """
        found = []
        for member in self._members.values():
            crash = member.crash
            if crash is None or self._crashes_told.get(member.member, -1) >= crash.incarnation:
                continue
            self._crashes_told[member.member] = crash.incarnation
            if now - crash.at <= _CRASH_NEWS_S:
                found.append(member)
        return found

    def is_back(self, source: str) -> bool:
        """Whether a newer process than `source` has registered, or the member has ended for good."""
        member = self._members.get(source.partition("#")[0])
        return member is not None and member.source != source and member.state != "starting"

    def all(self) -> Iterable[MemberInfo]:
        """Every member."""
        return self._members.values()

    def has_died(self, source: str) -> bool:
        """Whether the member of `source` is dead by now."""
        member = self._members.get(source.partition("#")[0])
        return member is not None and member.state == "dead"

    def driver(self) -> str:
        """The source of the run's driver, '' while none lives."""
        alive = (m.source for m in self._members.values() if m.role == "driver" and m.state == "alive")
        return next(alive, "")

    def silent(self, now: float, *, leases: float = 1.0) -> list[MemberInfo]:
        """Members that should live and have not said so for longer than so many of their leases."""
        alive = (member for member in self._members.values() if member.state == "alive" and member.lease_s > 0)
        return [member for member in alive if now - member.beat_at > leases * member.lease_s]

    @staticmethod
    def _ends(graph: LiveGraph, member: MemberInfo) -> list[Event]:
        if member.state not in _ENDED:
            return []
        how: Literal["exit", "crash"] = "crash" if member.state == "dead" else "exit"
        of_source = [graph.participants[pid] for pid in graph.by_source.get(member.source, ())]
        return [End(p=one.id, how=how, t=member.ended_at) for one in of_source if one.how is None]
