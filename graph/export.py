"""The wait-for graph in the form of other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unknot.graph.analysis import Analysis
from unknot.graph.reduce import View, unmet

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph


def to_networkx(graph: LiveGraph) -> Any:
    """A `networkx.MultiDiGraph` of who waits for what: participant -> resource or label -> helper.

    Nodes carry `kind` (`participant`, `resource`) and, for participants, `state` and `stuck`; edges towards a resource
    carry `ticket`, `since` (seconds) and `site`, edges from it `via`. Needs that are met already have no edges.
    Needs networkx, which is imported here and nowhere else.
    """
    import networkx

    state = Analysis(graph)
    drawn = networkx.MultiDiGraph()
    for pid, one in graph.participants.items():
        drawn.add_node(pid, kind="participant", state=one.state, stuck=pid in state.stuck)
    view = View(set(), unknown_help=False)
    for pid, one in state.waiting.items():
        assert one.wait is not None
        for condition, group in unmet(state.needs[pid], view):
            if group.via != "peer":
                drawn.add_node(condition.what, kind="resource")
                drawn.add_edge(pid, condition.what, ticket=one.wait.ticket, since=one.wait.t, site=one.wait.site)
            origin = pid if group.via == "peer" else condition.what
            for helper in (*group.weights, *group.gone):
                if not drawn.has_edge(origin, helper):
                    drawn.add_edge(origin, helper, via=group.via)
    return drawn
