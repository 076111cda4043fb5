"""`supervisor graph`: a picture of who waits for whom, of a live run or of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from unknot.graph.draw import dot, mermaid, plain
from unknot.graph.explain import sentences
from unknot.graph.live import LiveGraph
from unknot.graph.picture import LIMIT, Edge, Node, Picture, picture
from unknot.graph.replay import Replay
from unknot.graph.trace import read
from unknot.graph.verdict import evaluate
from unknot.recovery.errors import ConfigError
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.json_output import document
from unknot.supervisor.cli.output import Look, emit, emit_json
from unknot.supervisor.cli.text import ASCII
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.traces import opened

if TYPE_CHECKING:
    from unknot.supervisor.cli.connect import Target

Format = Literal["text", "dot", "mermaid", "svg", "json"]
_ASCII = str.maketrans({"→": "->", "—": "-", "✗": "x", "·": "-", "…": "..."})


class GraphOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to draw. `until`: the last line of a trace that counts."""

    format: Format = "text"
    trace: Path | None = None
    until: int | None = None
    everybody: bool = False
    limit: int = LIMIT


class NodeItem(Node, frozen=True, kw_only=True, tag_field="item", tag="node"):
    """One node as it is published."""


class EdgeItem(Edge, frozen=True, kw_only=True, tag_field="item", tag="edge"):
    """One edge as it is published."""


def chosen_format(named: Format | None, *, as_json: bool) -> Format:
    """The format that is meant. Raises ConfigError where two are asked for."""
    if as_json and named not in (None, "json"):
        raise ConfigError(what=f"--json and --format {named} ask for two formats", todo="give one of them")
    return "json" if as_json else named or "text"


def draw(wanted: Wanted, options: GraphOptions, shown: Look) -> int:
    """Write the picture to stdout; the exit code. Raises ConfigError, TraceError, StoreUnavailable."""
    if options.until is not None and options.trace is None:
        raise ConfigError(what="--until counts the lines of a trace", todo="give --trace FILE too")
    graph, now = _of_trace(options) if options.trace is not None else _of_run(wanted)
    found = picture(graph, now, everybody=options.everybody, limit=options.limit)
    if options.format == "json":
        emit_json(document("graph", _items(found), at=now, problems=_problems(found)))
        return exit_codes.OK
    text = _drawn(found, graph, now, options.format)
    emit(text.translate(_ASCII) if shown.glyphs is ASCII and options.format == "text" else text)
    return exit_codes.OK


def _drawn(found: Picture, graph: LiveGraph, now: float, form: Format) -> str:
    if form == "svg":
        from unknot.graph.draw_svg import svg

        told = [s.text for one in evaluate(graph, now).findings for s in sentences(graph, one, now)]
        return svg(found, told)
    return {"text": plain, "dot": dot, "mermaid": mermaid}[form](found)


def _items(found: Picture) -> Sequence[NodeItem | EdgeItem]:
    nodes = [NodeItem(**msgspec.structs.asdict(node)) for node in found.nodes]
    return [*nodes, *(EdgeItem(**msgspec.structs.asdict(edge)) for edge in found.edges)]


def _problems(found: Picture) -> list[str]:
    return [f"{found.left_out} participants are left out; see --limit"] if found.left_out else []


def _of_trace(options: GraphOptions) -> tuple[LiveGraph, float]:
    assert options.trace is not None
    with opened(options.trace) as lines:
        header, events = read(lines)
        play = Replay(header, looks=False)
        for one in events:
            if options.until is not None and one.number > options.until:
                break
            play.feed(one)
    return play.graph, play.now


def _of_run(wanted: Wanted) -> tuple[LiveGraph, float]:
    from unknot.supervisor.cli.command_status import ask
    from unknot.supervisor.cli.connect import connect, no_such_run
    from unknot.supervisor.monitor.once import graph_now

    def work(target: Target) -> tuple[LiveGraph, float]:
        with connect(target, limit_s=wanted.limit_s) as store:
            if store.command("HGET", store.key("run"), "state") is None:
                raise no_such_run(target, limit_s=wanted.limit_s)
            return graph_now(store)

    return ask(wanted, work)
