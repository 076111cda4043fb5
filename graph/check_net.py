"""The invariants of the net: its links, counters and ranks, and what it says against two full reductions.

The first reduction walks the same gates and ignores ranks and counters; it finds errors of propagation. The
second shares nothing with the gates: it compiles the waits anew from the facts; it finds gates that a changed
fact did not reach.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from unknot.graph.gates import Node, from_scratch
from unknot.graph.needs import Compiler
from unknot.graph.reduce import Net
from unknot.graph.wiring import all_nodes

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph


def check_net(graph: LiveGraph) -> None:
    """Raise AssertionError, naming what disagrees, unless the net is true to the facts."""
    net = graph.wiring.settle()
    nodes = list(all_nodes(graph))
    known = set(nodes)
    assert len(known) == len(nodes), "a node is listed twice"
    for node in nodes:
        _check_links(node, known)
        _check_support(node)
    live = from_scratch(nodes)
    assert net.out == known - live, f"the net lost its way: {_names(net.out ^ (known - live))}"
    assert graph.stuck() == reduced(graph), "the net is not what the facts say"


def _check_links(node: Node, known: set[Node]) -> None:
    assert len(set(node.ins)) == len(node.ins), f"{_name(node)} counts somebody twice"
    for one in node.ins:
        assert one in known, f"{_name(node)} counts {_name(one)}, which is forgotten"
        assert node in one.outs, f"{_name(one)} does not know that {_name(node)} counts it"
    for gate in node.outs:
        assert gate in known, f"{_name(node)} is counted by {_name(gate)}, which is forgotten"
        assert node in gate.ins, f"{_name(gate)} does not count {_name(node)}"
    kept = node.pid is not None or node.home == "anybody" or node.home[0] is None
    assert kept or node.outs, f"{_name(node)} is kept for nobody"


def _check_support(node: Node) -> None:
    if node.free:
        assert node.at == 0.0, f"{_name(node)} is free and has the rank {node.at}"
        assert not node.plain, f"{_name(node)} is free and counts"
        return
    assert node.plain == (node.weights is None and node.need == len(node.ins)), f"{_name(node)}: plain is wrong"
    if node.at < 0.0:
        assert node.left == node.lacks() > 0, f"{_name(node)} is out and lacks {node.lacks()}, not {node.left}"
    else:
        assert node.left == node.lacks_before(node.at) <= 0, f"{_name(node)} is in without earlier support"


def reduced(graph: LiveGraph) -> set[str]:
    """Who is stuck, by compiling all waits anew and one full reduction: slow, and independent of the gates."""
    compiler, waiting = Compiler(graph), graph.waiting()
    start = {one.id for one in graph.participants.values() if one.state == "running"}
    start |= {one.id for one in waiting if graph.is_unknown(one.source)}
    start |= {one.id for one in waiting if one.wait is not None and one.wait.deadline is not None}
    live = Net({one.id: compiler.needs(one) for one in waiting}).solve(start, unknown_help=True)
    return {one.id for one in waiting} - live


def _name(node: Node) -> str:
    if node.pid is not None:
        return node.pid
    if isinstance(node.home, str):
        return f"a gate of {node.home}"
    state, key = node.home
    return f"gate {key}" if state is None else f"gate {key} of {state.id}"


def _names(nodes: set[Node]) -> str:
    return ", ".join(sorted(map(_name, nodes)))
