"""What to do about a finding, in one or two sentences: how to free it now, and what to change in the code.

Derived from the shape alone: what the ring consists of, who is gone, what was issued. Names and call sites are those of the
finding, so that a reader who has nothing else can begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from unknot.graph.finding import Edge, Finding, Kind
from unknot.graph.ids import parse, shown
from unknot.graph.resources import UNITS
from unknot.graph.wording import bare, listed, stray_rights

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph


def advice(graph: LiveGraph, finding: Finding) -> str:
    """What to do about `finding`."""
    return _strays(graph, finding) + _KINDS[finding.kind](graph, finding)


def _strays(graph: LiveGraph, finding: Finding) -> str:
    """A list of rights that matches nobody is the first thing to mend."""
    told: dict[str, None] = {}
    for edge in _core_edges(finding):
        wait, state = graph.participants[edge.participant].wait, graph.resources.get(edge.resource)
        atoms = [atom for clause in wait.needs for atom in clause.of if atom.r == edge.resource] if wait is not None else []
        found = (stray_rights(graph, state, atom) for atom in atoms) if state is not None else ()
        told |= {f"Mend the declaration of {shown(edge.resource)}: {text}. ": None for text in found if text}
    return "".join(told)


def _ring(graph: LiveGraph, finding: Finding) -> str:
    edges = _core_edges(finding)
    now = _free(graph, finding)
    kinds = {_type(graph, edge) for edge in edges}
    held = sorted({edge.resource for edge in edges if _type(graph, edge) == "held"})
    groups = sorted({edge.resource for edge in edges if _type(graph, edge) == "collective"})
    if kinds == {"held"} and len(held) > 1:
        return f"{now}Take {listed(map(shown, held))} in one order everywhere."
    if len(groups) > 1 and kinds <= {"collective", "peer"}:
        return f"{now}Issue the operations of {listed(map(shown, groups))} in the same order on every rank."
    if kinds == {"held"}:
        return f"{now}Do not ask for {shown(held[0])} while holding it: {_instead(graph, held[0])}."
    if held:
        return f"{now}{_released_first(edges)}"
    return f"{now}One of them must go on without the other: break the circle{_places(edges)}, or give one wait a deadline."


def _released_first(edges: list[Edge]) -> str:
    """Each lock of the ring with the waits of its own holders: to change one of them is enough."""
    told: dict[str, None] = {}
    taken = [edge for edge in edges if edge.via == "hold"] or [edge for edge in edges if edge.via == "queue"]
    for lock, holder in sorted({(edge.resource, edge.helper) for edge in taken}):
        waits = [edge for edge in edges if edge.participant == holder]
        told[f"{shown(lock)} before {bare(holder)} waits{_places(waits)}"] = None
    return f"Release {listed(told, 'or')}."


def _instead(graph: LiveGraph, resource: str) -> str:
    if graph.resources[resource].type in UNITS:
        return "give the inner work a pool of its own, or leave one unit for it"
    return "take it for writing from the start, or release it first"


def _free(graph: LiveGraph, finding: Finding) -> str:
    """The cheapest way to free it now."""
    if finding.interruptible:
        return f"To free it now, end the wait of {bare(finding.interruptible[0])}, which holds what the others need. "
    if finding.groups:
        return f"To free it now, break {shown(finding.groups[0])} and form it again. "
    holders = sorted({e.helper for e in _core_edges(finding) if e.via == "hold" and e.helper in finding.core})
    named = min(holders or finding.core, key=lambda pid: (_weight(graph, pid), pid))
    if not holders:
        return f"Restarting {bare(named)} frees the others only if it does not come to the same wait again. "
    return f"To free it now, restart {bare(named)}. "


def _weight(graph: LiveGraph, pid: str) -> int:
    """A trainer rank takes its whole group along."""
    known = graph.participants.get(pid)
    return int(known is not None and known.role in ("trainer", "driver"))


def _self(_: LiveGraph, finding: Finding) -> str:
    edge = _core_edges(finding)[0]
    who = bare(edge.participant)
    if edge.via == "hold":
        return f"Release {shown(edge.resource)} before {who} asks for it again{_place(edge)}, or make it re-entrant."
    return f"{who} must not wait for itself{_place(edge)}: do that work directly, or hand it to somebody else."


def _timed(graph: LiveGraph, finding: Finding) -> str:
    return f"It ends by itself when the deadline passes; until then nothing of it moves. {_ring(graph, finding)}"


def _mismatch(graph: LiveGraph, finding: Finding) -> str:
    own = [e for e in finding.edges if e.participant in finding.core]
    edge = next((e for e in own if _type(graph, e) == "collective"), own[0])
    return f"Break {shown(edge.resource)} and form it again. {mismatch_advice(graph, edge.resource, edge.seq or 0)}"


def mismatch_advice(graph: LiveGraph, group: str, seq: int) -> str:
    """What to do about operation `seq` of `group`, on which its ranks disagree."""
    state = graph.resources[group]
    sites = sorted(set(state.sites.get(seq, {}).values()))
    where = f": compare {listed(sites)}" if len(sites) > 1 else ""
    threads = {parse(pid).thread for pid in state.signatures.get(seq, {}) if not parse(pid).is_queue}
    if len(threads) > 1:
        return (
            f"More than one thread of a rank issues on {shown(group)}, and nothing keeps their order: let one thread issue all, "
            f"or give each thread a group of its own{where}."
        )
    return f"Make every rank issue the same operation as #{seq} of {shown(group)}{where}."


def _absent(graph: LiveGraph, finding: Finding) -> str:
    edge = _core_edges(finding)[0]
    gone = listed(map(bare, finding.culprits)) if finding.culprits else ""
    if _type(graph, edge) == "collective":
        left = f"{gone or 'A rank'} left while the others go on"
        return f"To free the others now, break {shown(edge.resource)}. {left}: agree on the number of steps, or stay until all are done."
    if _type(graph, edge) == "held":
        capacity = graph.resources[edge.resource].capacity()
        return f"Ask for no more than the {capacity} units of {shown(edge.resource)}{_place(edge)}."
    if edge.resource in graph.resources and graph.resources[edge.resource].type == "mailbox":
        who = gone or "Whoever was to send"
        return f"{who} ended without sending: close {shown(edge.resource)} when its senders end, or wait with a deadline{_place(edge)}."
    who = gone or "Nobody"
    return f"{who} can bring {shown(edge.resource)} no more: let whoever should have do it before it ends, in a `finally`."


def _orphan(graph: LiveGraph, finding: Finding) -> str:
    edge = next((e for e in _core_edges(finding) if e.gone), _core_edges(finding)[0])
    gone = listed(map(bare, finding.culprits))
    if _type(graph, edge) == "collective":
        now = f"To free the others now, break {shown(edge.resource)} and form it again without {gone}, or with its successor."
        return f"{now} Look for the first error of {gone}."
    them = "them" if len(finding.culprits) > 1 else "it"
    return f"Look for the first error of {gone}; restart {them}, and let the wait{_place(edge)} fail when the other side is gone."


def _orphaned_lock(graph: LiveGraph, finding: Finding) -> str:
    edge = next((e for e in _core_edges(finding) if e.gone and e.via == "hold"), _core_edges(finding)[0])
    gone = parse(edge.helper)
    if gone.thread and any(graph.participants[p].how is None for p in graph.by_source.get(gone.source, ())):
        told = f"The thread that held {shown(edge.resource)} is gone, its process lives"
        return f"{told}: release locks in a `finally`, and do not fork while one is held."
    told = f"Restart {gone.member}: its next incarnation fences the dead one, and {shown(edge.resource)} is passed on."
    return f"{told} Look for its first error; what it changed under the lock may be half done."


# --- pieces ---


def _core_edges(finding: Finding) -> list[Edge]:
    """What keeps the core: its edges to itself, else all of its edges."""
    core = set(finding.core)
    own = [edge for edge in finding.edges if edge.participant in core]
    return [edge for edge in own if edge.helper in core] or own


def _type(graph: LiveGraph, edge: Edge) -> str:
    if edge.via in ("hold", "queue"):
        return "held"
    if edge.via == "peer":
        return "peer"
    known = graph.resources.get(edge.resource)
    return known.type if known is not None else "external"


def _places(edges: list[Edge]) -> str:
    sites = sorted({edge.site for edge in edges if edge.site})
    return f" at {listed(sites, 'or')}" if sites else ""


def _place(edge: Edge) -> str:
    return f" at {edge.site}" if edge.site else ""


_KINDS: dict[Kind, Callable[[LiveGraph, Finding], str]] = {
    "cycle": _ring, "knot": _ring, "self": _self, "timed": _timed, "mismatch": _mismatch, "absent": _absent,
    "never-set": _absent, "orphan": _orphan, "orphaned-lock": _orphaned_lock,
}  # fmt: skip
