"""Pictures as text that other tools draw: Graphviz' dot, Mermaid, and plain lines.

Participants are round, resources square, collectives hexagons; a gate that needs all is filled, one that needs any is open;
the ring is red and thick, what has ended carries a cross. Names come from users, so each renderer escapes them in its own way.
"""

from __future__ import annotations

import unicodedata

from unknot.graph.picture import Edge, Node, NodeKind, Picture

_DOT_SHAPE: dict[NodeKind, str] = {
    "participant": "ellipse", "resource": "box", "collective": "hexagon", "outside": "note",
    "all": "circle", "any": "circle",
}  # fmt: skip
_MERMAID_SHAPE: dict[NodeKind, tuple[str, str]] = {
    "participant": ("([", "])"), "resource": ("[", "]"), "collective": ("{{", "}}"), "outside": ("[/", "/]"),
    "all": ("((", "))"), "any": ("((", "))"),
}  # fmt: skip
_HARMLESS = frozenset(["Cc", "Cf", "Cs", "Co", "Zl", "Zp"])


def visible(text: str) -> str:
    """`text` with every sign that could break a line or hide itself shown as `?`."""
    return "".join("?" if unicodedata.category(char) in _HARMLESS else char for char in text)


def caption(node: Node) -> str:
    """What is written in a node: a cross before what has ended."""
    return f"✗ {visible(node.label)}" if node.state == "ended" else visible(node.label)


def dot(found: Picture) -> str:
    """The picture in Graphviz' language."""
    lines = ["digraph waits {", "  rankdir=LR;", '  node [fontname="sans-serif"]; edge [fontname="sans-serif", fontsize=10];']
    numbers = _numbers(found)
    lines += [f"  {numbers[node.id]} [{_dot_node(node)}];" for node in found.nodes]
    lines += [f"  {numbers[e.origin]} -> {numbers[e.target]} [{_dot_edge(e)}];" for e in found.edges]
    return "\n".join([*lines, "}"]) + "\n"


def _dot_node(node: Node) -> str:
    parts = [f'label="{_dot_text(caption(node))}"', f"shape={_DOT_SHAPE[node.kind]}"]
    if node.kind == "all":
        parts += ["style=filled", "fillcolor=black", "fontcolor=white", "width=0.3", "fixedsize=true", "fontsize=8"]
    elif node.kind == "any":
        parts += ["width=0.4", "fixedsize=true", "fontsize=8"]
    if node.core:
        parts += ["color=red", "penwidth=3"]
    elif node.state == "ended":
        parts += ["style=dashed"]
    return ", ".join(parts)


def _dot_edge(edge: Edge) -> str:
    parts = [f'label="{_dot_text(_told(edge))}"']
    if edge.core:
        parts += ["color=red", "penwidth=3"]
    if edge.kind == "helps":
        parts.append("style=dashed")
    return ", ".join(parts)


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def mermaid(found: Picture) -> str:
    """The picture as a Mermaid flow chart."""
    numbers = _numbers(found)
    lines = ["flowchart LR"]
    for node in found.nodes:
        before, after = _MERMAID_SHAPE[node.kind]
        lines.append(f'  {numbers[node.id]}{before}"{_mermaid_text(caption(node))}"{after}{_mermaid_class(node)}')
    ring = []
    for number, edge in enumerate(found.edges):
        arrow = "-.->" if edge.kind == "helps" else "-->"
        label = f'|"{_mermaid_text(_told(edge))}"|' if _told(edge) else ""
        lines.append(f"  {numbers[edge.origin]} {arrow}{label} {numbers[edge.target]}")
        ring += [str(number)] if edge.core else []
    lines += [
        "  classDef core stroke:#c00,stroke-width:3px", "  classDef gone stroke-dasharray:4 3",
        "  classDef all fill:#000,color:#fff",
    ]  # fmt: skip
    if ring:
        lines.append(f"  linkStyle {','.join(ring)} stroke:#c00,stroke-width:3px")
    return "\n".join(lines) + "\n"


def _mermaid_class(node: Node) -> str:
    name = "core" if node.core else "gone" if node.state == "ended" else "all" if node.kind == "all" else ""
    return f":::{name}" if name else ""


def _mermaid_text(text: str) -> str:
    return "".join(char if char.isalnum() or char in " _.,:/-✗@()" else f"#{ord(char)};" for char in text)


def plain(found: Picture) -> str:
    """The picture in lines: `agent/a —3 s (a.py:2)→ lock:b → agent/b`, those of the ring first and marked."""
    nodes = {node.id: node for node in found.nodes}
    helps: dict[str, list[Edge]] = {}
    for edge in found.edges:
        helps.setdefault(edge.origin, []).append(edge)
    lines = []
    for node in sorted((n for n in found.nodes if n.kind == "participant"), key=lambda n: not n.core):
        mark = "*" if node.core else "x" if node.state == "ended" else "-" if node.stuck else " "
        tails = [tail for edge in helps.get(node.id, ()) for tail in _tails(edge, helps, nodes, ())]
        lines += [f"{mark} {caption(node)} {tail}" for tail in tails] or [f"{mark} {caption(node)} ({_rest(node)})"]
    if found.left_out:
        lines.append(f"  and {found.left_out} more")
    return "\n".join(lines or ["nobody waits"]) + "\n"


def _tails(edge: Edge, helps: dict[str, list[Edge]], nodes: dict[str, Node], seen: tuple[str, ...]) -> list[str]:
    """An edge and what follows it up to the next participants."""
    target = nodes[edge.target]
    told = _told(edge)
    head = f"—{told}→ {caption(target)}" if told and edge.kind == "waits" else f"→ {caption(target)}"
    if target.kind == "participant" or edge.target in seen:
        return [head]
    following = helps.get(edge.target, ())
    if target.kind in ("all", "any"):
        rest = [tail for one in following for tail in _tails(one, helps, nodes, (*seen, edge.target))]
        return [f"{head} {tail}" for tail in rest] or [head]
    people = ", ".join(caption(nodes[one.target]) for one in following)
    return [f"{head} → {people}" if people else f"{head} → nobody"]


def _rest(node: Node) -> str:
    return node.state or "not known"


def _told(edge: Edge) -> str:
    if edge.kind == "waits" and edge.site:
        return visible(f"{edge.label} ({edge.site})".strip())
    return visible(edge.label)


def _numbers(found: Picture) -> dict[str, str]:
    return {node.id: f"n{number}" for number, node in enumerate(found.nodes)}
