"""Where the nodes of a small picture stand: layers from left to right, rings unrolled, few crossings.

networkx finds the strongly connected parts and their order (`condensation`, `topological_generations`). Inside a part the edges that
lead back, in a walk from its first node, do not count for the layers; they are drawn round. The order within a layer is settled by
sweeps that put each node at the mean of its neighbours (Sugiyama, Tagawa and Toda 1981). Everything is decided by order and name,
so the same picture is always laid out the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from unknot.graph.picture import Picture

_SWEEPS = 6


def layers(found: Picture) -> list[list[str]]:
    """Ids of nodes, layer by layer."""
    import networkx

    drawn = networkx.DiGraph()
    drawn.add_nodes_from(node.id for node in found.nodes)
    drawn.add_edges_from((edge.origin, edge.target) for edge in found.edges)
    forward = drawn.copy()
    forward.remove_edges_from(_back_edges(networkx, drawn))
    made = [sorted(layer) for layer in networkx.topological_generations(forward)]
    return _settled(made, drawn)


def _back_edges(networkx: Any, drawn: Any) -> list[tuple[str, str]]:
    """Edges whose removal leaves no ring: in each strong part, those that lead back to where the walk is."""
    found: list[tuple[str, str]] = []
    for part in networkx.strongly_connected_components(drawn):
        # A graph of its own: the order in which a view of networkx walks depends on how strings are hashed.
        inside = networkx.DiGraph(sorted((a, b) for a, b in drawn.edges(part) if b in part))
        if inside:
            walk = networkx.dfs_postorder_nodes(inside, min(part))
            place = {node: at for at, node in enumerate(walk)}
            found += [(a, b) for a, b in inside.edges if place[a] <= place[b]]
    return found


def _settled(made: list[list[str]], drawn: Any) -> list[list[str]]:
    for sweep in range(_SWEEPS):
        order = list(range(len(made))) if sweep % 2 == 0 else list(reversed(range(len(made))))
        for at in order:
            place = {node: i for layer in made for i, node in enumerate(layer)}
            made[at] = sorted(made[at], key=lambda node: (_mean(drawn, node, place), node))
    return made


def _mean(drawn: Any, node: str, place: dict[str, int]) -> float:
    near: Iterable[str] = [*drawn.predecessors(node), *drawn.successors(node)]
    places = [place[one] for one in near if one != node]
    return sum(places) / len(places) if places else float(place[node])
