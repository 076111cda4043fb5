"""What the graph says under each assumption, by compiling all waits anew and reducing them in full each time."""

from __future__ import annotations

from functools import cached_property

from unknot.graph.live import LiveGraph
from unknot.graph.needs import Compiler
from unknot.graph.reduce import Net


class Reference:
    """Slow, and independent of the gates that the graph keeps."""

    def __init__(self, graph: LiveGraph) -> None:
        self.waiting = {one.id: one for one in graph.waiting()}
        compiler = Compiler(graph)
        self.net = Net({pid: compiler.needs(one) for pid, one in self.waiting.items()})
        people = graph.participants
        self.running = {pid for pid, one in people.items() if one.state == "running"}
        self.told = {pid for pid in self.running if not graph.is_unknown(people[pid].source)}
        self.untold = {pid for pid, one in self.waiting.items() if graph.is_unknown(one.source)}
        self.timed = {pid for pid, one in self.waiting.items() if one.wait and one.wait.deadline is not None}

    @cached_property
    def live(self) -> set[str]:
        return self.net.solve(self.running | self.untold | self.timed, unknown_help=True)

    @cached_property
    def live_without_deadlines(self) -> set[str]:
        return self.net.solve(self.running | self.untold, unknown_help=True)

    @cached_property
    def live_by_known(self) -> set[str]:
        return self.net.solve(self.running | self.untold | self.timed, unknown_help=False)

    @cached_property
    def unknown(self) -> set[str]:
        if self.told == self.running and not self.untold:
            return set()
        live = self.net.solve(self.told | (self.timed - self.untold), unknown_help=True)
        return self.waiting.keys() - live - (self.waiting.keys() - self.live) - self.untold
