"""One state of a graph, reduced: who can go on under which assumptions, and what keeps the others.

The assumptions of a verdict: those that run can go on; a wait with a deadline goes on by itself; of a source
with a missing record anything may be true, so its participants can go on; unknown helpers may help. Each of
them can only shrink the stuck set, so what remains is stuck in truth if the facts are.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from unknot.graph.needs import Compiler, Condition, Group, Need
from unknot.graph.reduce import Net, View, unmet

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import Participant

Blockers = dict[str, list[tuple[Condition, Group]]]


class Analysis:
    """Reductions of the present state of `graph`; void as soon as the graph changes."""

    def __init__(self, graph: LiveGraph) -> None:
        self.graph = graph
        self.waiting: dict[str, Participant] = {one.id: one for one in graph.waiting()}
        compiler = Compiler(graph)
        self.needs: dict[str, tuple[Need, ...]] = {
            pid: compiler.needs(one) for pid, one in self.waiting.items()
        }
        self.net = Net(self.needs)
        self.running = {one.id for one in graph.participants.values() if one.state == "running"}
        self.untold = {pid for pid, one in self.waiting.items() if graph.is_unknown(one.source)}
        self.timed = {pid for pid, one in self.waiting.items() if one.wait and one.wait.deadline is not None}

    @cached_property
    def live(self) -> set[str]:
        """Everybody who can go on."""
        return self.net.solve(self.running | self.untold | self.timed, unknown_help=True)

    @cached_property
    def stuck(self) -> set[str]:
        """Waiting participants that can never go on."""
        return self.waiting.keys() - self.live

    @cached_property
    def live_without_deadlines(self) -> set[str]:
        """Who could go on if no wait ended by itself."""
        if not self.timed:
            return self.live
        return self.net.solve(self.running | self.untold, unknown_help=True)

    @cached_property
    def live_by_known(self) -> set[str]:
        """Who can go on without help from anybody unknown."""
        return self.net.solve(self.running | self.untold | self.timed, unknown_help=False)

    @cached_property
    def unknown(self) -> set[str]:
        """Who would be stuck if those whose records are missing could not go on."""
        told = {pid for pid in self.running if not self.graph.is_unknown(self.graph.participants[pid].source)}
        if len(told) == len(self.running) and not self.untold:
            return set()
        live = self.net.solve(told | (self.timed - self.untold), unknown_help=True)
        return self.waiting.keys() - live - self.stuck - self.untold

    def blockers(self, among: set[str], live: set[str]) -> Blockers:
        """What keeps each of `among`, if those in `live` can go on."""
        view = View(live, unknown_help=True)
        return {pid: unmet(self.needs[pid], view) for pid in sorted(among)}


def neighbours(blockers: Blockers) -> dict[str, list[str]]:
    """For each blocked participant the blocked ones that it depends on, itself included where it does."""
    return {
        pid: list(
            dict.fromkeys(helper for _, group in groups for helper in group.weights if helper in blockers)
        )
        for pid, groups in blockers.items()
    }
