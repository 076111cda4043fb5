"""One state of a graph, reduced: who can go on under which assumptions, and what keeps the others.

The assumptions of a verdict: those that run can go on; a wait with a deadline goes on by itself; of a source
with a missing record anything may be true, so its participants can go on; unknown helpers may help. Each of
them can only shrink the stuck set, so what remains is stuck in truth if the facts are.

Who is stuck is kept by the graph from event to event. The other assumptions are asked as "what if": their nodes
are taken out of the net, what follows is read, and they are put back; that costs what depends on them. Conditions,
which explain, are compiled only for those that somebody asks about.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from unknot.graph.gates import OPEN, TIMED, Node
from unknot.graph.needs import Compiler, Condition, Group, Need
from unknot.graph.reduce import View, unmet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import Participant

Blockers = dict[str, list[tuple[Condition, Group]]]


class Needs(dict[str, tuple[Need, ...]]):
    """The needs of each waiting participant, compiled when they are first asked for."""

    def __init__(self, graph: LiveGraph) -> None:
        super().__init__()
        self._graph = graph
        self._compiler = Compiler(graph)

    def get(self, pid: str, default: Any = None) -> Any:
        """The needs of `pid`, `default` if it does not wait."""
        one = self._graph.participants.get(pid)
        return self[pid] if one is not None and one.wait is not None else default

    def __missing__(self, pid: str) -> tuple[Need, ...]:
        found = self[pid] = self._compiler.needs(self._graph.participants[pid])
        return found


class Analysis:
    """The present state of `graph`; void as soon as the graph changes."""

    def __init__(self, graph: LiveGraph) -> None:
        self.graph = graph
        self.stuck: set[str] = graph.stuck()
        self.needs = Needs(graph)

    @cached_property
    def waiting(self) -> dict[str, Participant]:
        """Everybody who waits."""
        return {one.id: one for one in self.graph.waiting()}

    @cached_property
    def running(self) -> set[str]:
        """Everybody who neither waits nor has ended."""
        return {pid for pid, one in self.graph.participants.items() if one.wait is None and one.how is None}

    @cached_property
    def untold(self) -> set[str]:
        """Waiting participants of sources with a missing record."""
        return {pid for pid in self._mute if self.graph.participants[pid].wait is not None}

    @cached_property
    def timed(self) -> set[str]:
        """Waiting participants that a deadline lets go."""
        return {pid for pid, one in self.waiting.items() if one.wait is not None and one.wait.deadline is not None}

    @cached_property
    def live(self) -> set[str]:
        """Everybody who can go on."""
        return self._live(self.stuck)

    @cached_property
    def live_without_deadlines(self) -> set[str]:
        """Who could go on if no wait ended by itself."""
        return self._live(self._stuck_without(self._nodes(self.timed), TIMED))

    @cached_property
    def live_by_known(self) -> set[str]:
        """Who can go on without help from anybody unknown."""
        return self._live(self._stuck_without(list(self.graph.wiring.open), OPEN))

    @cached_property
    def unknown(self) -> set[str]:
        """Who would be stuck if those whose records are missing could not go on."""
        if not self._mute:
            return set()
        return self._stuck_without(self._nodes(self._mute), ~0) - self.stuck - self.untold

    @cached_property
    def _mute(self) -> set[str]:
        """Participants of sources with a missing record."""
        lacking = [source for source, state in self.graph.sources.items() if state.unknown]
        people = self.graph.participants
        return {pid for source in lacking for pid in self.graph.by_source.get(source, ()) if people[pid].how is None}

    def blockers(self, among: set[str], live: set[str]) -> Blockers:
        """What keeps each of `among`, if those in `live` can go on."""
        view = View(live, unknown_help=True)
        return {pid: unmet(self.needs[pid], view) for pid in sorted(among)}

    def _nodes(self, pids: Iterable[str]) -> list[Node]:
        return [self.graph.participants[pid].node for pid in pids]

    def _live(self, stuck: set[str]) -> set[str]:
        gone = {pid for pid, one in self.graph.participants.items() if one.how is not None}
        return self.graph.participants.keys() - stuck - gone

    def _stuck_without(self, nodes: list[Node], why: int) -> set[str]:
        if not nodes:
            return self.stuck
        found = self.graph.wiring.settle().out_without(nodes, why)
        return {node.pid for node in found if node.pid is not None and node.pid in self.waiting}


def neighbours(blockers: Blockers) -> dict[str, list[str]]:
    """For each blocked participant the blocked ones that it depends on, itself included where it does."""
    return {
        pid: list(
            dict.fromkeys(helper for _, group in groups for helper in group.weights if helper in blockers)
        )
        for pid, groups in blockers.items()
    }
