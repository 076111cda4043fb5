"""The picture as one SVG file without scripts or links, with its sentences as text alternative."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from unknot.graph.draw import caption, plain, visible
from unknot.graph.layout import layers
from unknot.graph.picture import Edge, Node, Picture

_DX, _DY, _W, _H, _MARGIN = 230, 90, 150, 44, 60
_LEGEND = 60
_STYLE = (
    "text{font:12px sans-serif;text-anchor:middle;dominant-baseline:central;fill:#222}"
    ".small{font-size:10px;fill:#555}.n{fill:#fff;stroke:#444;stroke-width:1.2}.core{stroke:#c00;stroke-width:3}"
    ".ended{stroke-dasharray:4 3}.running{fill:#eefaee}.all{fill:#222}.e{fill:none;stroke:#777;stroke-width:1.2}"
    ".helps{stroke-dasharray:5 3}.ring{stroke:#c00;stroke-width:3}"
)
_MARKER = (
    '<marker id="{0}" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="{1}" markerHeight="{1}" orient="auto">'
    '<path d="M0 0L10 5L0 10z" fill="{2}"/></marker>'
)
_LEGEND_TEXT = (
    "round: participant · square: resource · hexagon: collective · filled dot: needs all · open dot: needs any · "
    "red: the ring · ✗: ended"
)
_Place = dict[str, tuple[float, float]]


def svg(found: Picture, told: Iterable[str] = ()) -> str:
    """The picture; `told` are its sentences, for those who cannot see it."""
    made = layers(found)
    tallest = max((len(layer) for layer in made), default=1)
    place = {
        node: (_MARGIN + _W / 2 + x * _DX, _MARGIN + (tallest - len(layer)) * _DY / 2 + y * _DY + _H / 2)
        for x, layer in enumerate(made)
        for y, node in enumerate(layer)
    }
    width = _MARGIN * 2 + _W + max(len(made) - 1, 0) * _DX
    height = _MARGIN * 2 + _H + (tallest - 1) * _DY + _LEGEND
    description = escape("\n".join(visible(text) for text in told) or plain(found), quote=False)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" aria-labelledby="t d">',
        f'<title id="t">Who waits for whom</title><desc id="d">{description}</desc><style>{_STYLE}</style>',
        f"<defs>{_MARKER.format('a', 8, '#777')}{_MARKER.format('r', 5, '#c00')}</defs>",
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        *(_edge(edge, place) for edge in found.edges),
        *(_node(node, place) for node in found.nodes),
        _legend(height, found),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _node(node: Node, place: _Place) -> str:
    x, y = place[node.id]
    kinds = " ".join(("n", node.kind, node.state, "core" if node.core else "")).split()
    look = f'class="{" ".join(kinds)}"'
    title = f"<title>{_text(node.id)}{f', {node.state}' if node.state else ''}</title>"
    if node.kind in ("all", "any"):
        shape = f'<circle cx="{x:g}" cy="{y:g}" r="7" {look}/>'
        return f'<g>{title}{shape}<text class="small" x="{x:g}" y="{y - 15:g}">{_text(node.label)}</text></g>'
    return f'<g>{title}{_shape(node, x, y, look)}<text x="{x:g}" y="{y:g}">{_text(_cut(caption(node)))}</text></g>'


def _shape(node: Node, x: float, y: float, look: str) -> str:
    left, top = x - _W / 2, y - _H / 2
    if node.kind == "collective":
        cut = _H / 2
        right, low = left + _W, top + _H
        points = f"{left},{y} {left + cut},{top} {right - cut},{top} {right},{y} {right - cut},{low} {left + cut},{low}"
        return f'<polygon points="{points}" {look}/>'
    radius = _H / 2 if node.kind == "participant" else 2
    return f'<rect x="{left:g}" y="{top:g}" width="{_W}" height="{_H}" rx="{radius:g}" {look}/>'


def _edge(edge: Edge, place: _Place) -> str:
    (x1, y1), (x2, y2) = place[edge.origin], place[edge.target]
    forward = x2 > x1
    x1, x2 = x1 + (_W / 2 if forward else -_W / 2), x2 - (_W / 2 if forward else -_W / 2)
    bend = 0.0 if forward else (_DY * 0.8 if y1 >= y2 else -_DY * 0.8)
    if edge.origin == edge.target:
        x1, x2, bend = place[edge.origin][0] - 30, place[edge.origin][0] + 30, _DY * 0.9
    middle = (x1 + x2) / 2
    path = f"M{x1:g} {y1:g}C{middle:g} {y1 + bend:g} {middle:g} {y2 + bend:g} {x2:g} {y2:g}"
    look = " ".join(("e", edge.kind, "ring" if edge.core else "")).strip()
    marker = "r" if edge.core else "a"
    told = edge.label if edge.kind == "waits" else ""
    title = f"<title>{_text(edge.site)}</title>" if edge.site else ""
    text = f'<text class="small" x="{middle:g}" y="{(y1 + y2) / 2 + bend * 0.75 - 8:g}">{_text(told)}</text>' if told else ""
    return f'<g>{title}<path d="{path}" class="{look}" marker-end="url(#{marker})"/>{text}</g>'


def _legend(height: float, found: Picture) -> str:
    told = _LEGEND_TEXT
    more = f" · {found.left_out} more are not shown" if found.left_out else ""
    return f'<text class="small" style="text-anchor:start" x="20" y="{height - 20:g}">{escape(told + more)}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= 22 else f"{text[:10]}…{text[-11:]}"


def _text(text: str) -> str:
    return escape(visible(text))
