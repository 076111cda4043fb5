"""What a picture of the graph shows, as values: nodes and edges of the part that matters, ready for any renderer.

By default that is the stuck core and its neighbours, never the whole run: who holds or owes, who waits directly behind. Where
nothing is stuck, it is whoever waits. A wait for several things passes through a gate: filled where all are needed, open
where any suffices. At most `limit` participants are shown, the core first and the rest by their distance from it; `left_out` counts
the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from unknot.graph.analysis import Analysis
from unknot.graph.ids import parse, short
from unknot.graph.reduce import View
from unknot.graph.verdict import evaluate
from unknot.graph.wording import age

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unknot.graph.live import LiveGraph
    from unknot.graph.needs import Condition, Need

LIMIT = 40
NodeKind = Literal["participant", "resource", "collective", "outside", "all", "any"]
EdgeKind = Literal["waits", "helps"]


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in the picture. `state` is empty for what is no participant; `core`: it is part of a standstill's core."""

    id: str
    kind: NodeKind
    label: str
    state: Literal["", "running", "waiting", "ended"] = ""
    stuck: bool = False
    core: bool = False


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """`waits`: towards what is waited for, labelled with the age of the wait; `helps`: from it to who could end that."""

    origin: str
    target: str
    kind: EdgeKind
    label: str = ""
    site: str | None = None
    core: bool = False


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes and edges in a fixed order: the same graph gives the same picture."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    left_out: int = 0


def picture(graph: LiveGraph, now: float, *, everybody: bool = False, limit: int = LIMIT) -> Picture:
    """The part of `graph` that matters at `now` seconds, or with `everybody` all that wait or are waited for."""
    state = Analysis(graph)
    core = {pid for one in evaluate(graph, now).findings for pid in one.core}
    drawing = _Drawing(state, core, now)
    near = drawing.near(core, hops=1) if core and not everybody else drawing.all()
    shown = near[:limit]
    for pid in shown:
        drawing.add(pid, set(shown))
    made = Picture(
        nodes=tuple(drawing.nodes.values()), edges=tuple(drawing.edges.values()), left_out=len(near) - len(shown)
    )
    return _with_ring(made)


@dataclass(slots=True)
class _Drawing:
    state: Analysis
    core: set[str]
    now: float
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: dict[tuple[str, str], Edge] = field(default_factory=dict)
    _view: View = field(init=False)

    def __post_init__(self) -> None:
        self._view = View(set(), unknown_help=False)

    # --- who is shown ---

    def helpers(self, pid: str) -> list[str]:
        """Who could end something that `pid` waits for."""
        lacking = (c for need in self.state.needs.get(pid, ()) for c in need.of)
        return [h for c in lacking for g in self._view.lacking(c) for h in (*g.weights, *g.gone)]

    def all(self) -> list[str]:
        """Whoever waits, and whoever is waited for; the stuck ones first."""
        waiting = sorted(self.state.waiting, key=lambda pid: (pid not in self.core, pid not in self.state.stuck, pid))
        return list(dict.fromkeys([*waiting, *(h for pid in waiting for h in self.helpers(pid))]))

    def near(self, core: Iterable[str], *, hops: int) -> list[str]:
        """The core and its neighbours, nearest first."""
        back: dict[str, list[str]] = {}
        for pid in sorted(self.state.waiting):
            for helper in self.helpers(pid):
                back.setdefault(helper, []).append(pid)
        found = dict.fromkeys(sorted(core))
        ring = list(found)
        for _ in range(hops):
            ring = [n for pid in ring for n in (*self.helpers(pid), *back.get(pid, ())) if n not in found]
            found |= dict.fromkeys(ring)
        return list(found)

    # --- what is drawn ---

    def add(self, pid: str, shown: set[str]) -> None:
        """A participant, and its wait as far as it leads to somebody who is shown."""
        self._participant(pid)
        one = self.state.waiting.get(pid)
        if one is None or one.wait is None:
            return
        told, site = age(self.now - one.wait.t), one.wait.site
        origin = pid
        needs = [need for need in self.state.needs[pid] if any(map(self._view.lacking, need.of))]
        if len(needs) > 1:
            origin = self._gate(f"{pid}|all", "all", "all", (pid, told, site))
            told, site = "", None
        for number, need in enumerate(needs):
            self._clause(origin, need, shown, (f"{pid}|{number}", told, site))

    def _clause(self, origin: str, need: Need, shown: set[str], about: tuple[str, str, str | None]) -> None:
        name, told, site = about
        lacking = [c for c in need.of if self._view.lacking(c)]
        missing = need.k - (len(need.of) - len(lacking))
        if len(lacking) > 1:
            kind: NodeKind = "all" if missing >= len(lacking) else "any"
            label = "all" if kind == "all" else "any" if missing == 1 else f"{missing} of {len(lacking)}"
            origin, told, site = self._gate(name, kind, label, (origin, told, site)), "", None
        for condition in lacking:
            self._condition(origin, condition, shown, (told, site))

    def _condition(self, origin: str, condition: Condition, shown: set[str], about: tuple[str, str | None]) -> None:
        told, site = about
        groups = self._view.lacking(condition)
        everybody = [h for g in groups for h in (*g.weights, *g.gone)]
        helpers = [h for h in everybody if h in shown]
        if all(group.via == "peer" for group in groups):
            for helper in helpers if everybody else [condition.what]:
                self._participant(helper)
                self._edge(Edge(origin=origin, target=helper, kind="waits", label=told, site=site))
            return
        what = self._resource(condition)
        self._edge(Edge(origin=origin, target=what, kind="waits", label=told, site=site))
        for helper in helpers:
            self._participant(helper)
            self._edge(Edge(origin=what, target=helper, kind="helps", label=_HELPS[groups[0].via]))

    def _participant(self, pid: str) -> None:
        known = self.state.graph.participants.get(pid)
        self.nodes.setdefault(
            pid,
            Node(
                id=pid,
                kind="participant",
                label=_name(pid),
                state=known.state if known is not None else "",
                stuck=pid in self.state.stuck,
                core=pid in self.core,
            ),
        )

    def _resource(self, condition: Condition) -> str:
        known = self.state.graph.resources.get(condition.what)
        outside = any(group.via == "external" for group in condition.groups)
        kind: NodeKind = "outside" if outside else "collective" if known and known.type == "collective" else "resource"
        name = f"{condition.what} #{condition.seq}" if condition.seq is not None else condition.what
        label = f"{short(condition.what)} #{condition.seq}" if condition.seq is not None else short(condition.what)
        self.nodes.setdefault(name, Node(id=name, kind=kind, label=label))
        return name

    def _gate(self, name: str, kind: NodeKind, label: str, origin: tuple[str, str, str | None]) -> str:
        pid, told, site = origin
        self.nodes[name] = Node(id=name, kind=kind, label=label)
        self._edge(Edge(origin=pid, target=name, kind="waits", label=told, site=site))
        return name

    def _edge(self, edge: Edge) -> None:
        self.edges.setdefault((edge.origin, edge.target), edge)


_HELPS = {"hold": "held by", "queue": "behind", "owe": "owed by", "peer": "", "external": ""}


def _name(pid: str) -> str:
    own = parse(pid)
    return f"{own.member}/{own.thread}" if own.thread else own.member


def _with_ring(found: Picture) -> Picture:
    """The picture with the edges marked that lie between core participants, through whatever stands between them."""
    core = {node.id for node in found.nodes if node.core}
    people = {node.id for node in found.nodes if node.kind == "participant"}
    ahead: dict[str, list[str]] = {}
    behind: dict[str, list[str]] = {}
    for edge in found.edges:
        ahead.setdefault(edge.origin, []).append(edge.target)
        behind.setdefault(edge.target, []).append(edge.origin)
    after, before = _through(ahead, core, people), _through(behind, core, people)
    edges = [
        msgspec.structs.replace(edge, core=edge.origin in core | after and edge.target in core | before)
        for edge in found.edges
    ]
    return msgspec.structs.replace(found, edges=tuple(edges))


def _through(links: dict[str, list[str]], start: set[str], people: set[str]) -> set[str]:
    """What is reached from `start` without passing a participant."""
    seen: set[str] = set()
    todo = list(start)
    while todo:
        for following in links.get(todo.pop(), ()):
            if following not in seen and following not in people:
                seen.add(following)
                todo.append(following)
    return seen
