"""From a reduced graph to findings: one per root cause, with its core, its culprits and its victims.

The core is what a remedy must touch. In the graph "stuck participant -> stuck participant that could have
helped" it consists of the strongly connected components with an edge inside (rings, self-waits), and of those
without any edge: they wait only for participants that are gone, for a mismatch, or for nobody at all.
Everybody else is dragged along. Those without an edge are joined where they wait for the same dead process,
the same mismatched operation or the same thing that nobody supplies: that is one root cause, however many
ranks stand before it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from unknot.graph.analysis import Analysis, Blockers, neighbours
from unknot.graph.components import components, reach, reverse
from unknot.graph.finding import CAUSE_OF, Edge, Finding, Kind, Mismatch, Suspect, Verdict
from unknot.graph.ids import parse
from unknot.graph.needs import Condition, Group
from unknot.graph.reduce import View

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import CurrentWait

_ORDER: tuple[Kind, ...] = ("mismatch", "orphaned-lock", "orphan", "never-set", "absent")
_SET_TYPES = frozenset({"event", "condition", "latch"})


def evaluate(graph: LiveGraph, now: float) -> Verdict:
    """Reduce `graph` and name every root cause. `now`: seconds on the clock of the events."""
    state = Analysis(graph)
    found = [*_findings(state), *_timed(state)]
    return Verdict(
        now=now,
        stuck=tuple(sorted(state.stuck)),
        core=tuple(sorted({pid for one in found if one.kind != "timed" for pid in one.core})),
        running=tuple(sorted(state.running)),
        unknown=tuple(sorted(state.unknown)),
        suspects=_suspects(state),
        findings=tuple(found),
        mismatches=_mismatches(graph),
    )


def interruptible_victims(finding: Finding) -> tuple[str, ...]:
    """Core members whose wait can be interrupted, and who hold something that the core waits for."""
    return finding.interruptible


def breakable_groups(finding: Finding) -> tuple[str, ...]:
    """Collective groups (`coll:NAME@gGEN`) that a core member waits in."""
    return finding.groups


# --- findings ---


def _findings(state: Analysis) -> list[Finding]:
    blockers = state.blockers(state.stuck, state.live)
    graph = neighbours(blockers)
    rings = [part for part in components(graph) if len(part) > 1 or part[0] in graph[part[0]]]
    roots = [pid for pid, helpers in graph.items() if not helpers]
    found = [
        _finding(state, blockers, graph, sorted(ring), kind=_ring_kind(state, blockers, ring)) for ring in rings
    ]
    for kind, core in _joined(state, blockers, roots):
        found.append(_finding(state, blockers, graph, core, kind=kind))
    return sorted(found, key=lambda one: (one.closing_wait_at, one.core))


def _timed(state: Analysis) -> list[Finding]:
    """Rings that a deadline will cut, as they would be without it."""
    if not state.timed:
        return []
    live = state.live_without_deadlines
    blockers = state.blockers(state.waiting.keys() - live, live)
    graph = neighbours(blockers)
    found = []
    for part in components(graph):
        ring = len(part) > 1 or part[0] in graph[part[0]]
        if ring and state.timed.intersection(part):
            found.append(_finding(state, blockers, graph, sorted(part), kind="timed"))
    return sorted(found, key=lambda one: (one.closing_wait_at, one.core))


def _finding(
    state: Analysis, blockers: Blockers, graph: dict[str, list[str]], core: list[str], *, kind: Kind
) -> Finding:
    closure = reach(graph, core)
    dragged = sorted(reach(reverse(graph), core) - set(core))
    concerned = [*core, *dragged, *sorted(closure.difference(core, dragged))]
    edges = tuple(edge for pid in concerned for edge in _edges(state, pid, blockers))
    waits = {pid: _wait(state, pid) for pid in concerned}
    deadlines = [waits[pid].deadline for pid in core if kind == "timed"]
    culprits = _culprits(state, blockers, core, kind)
    return Finding(
        cause=CAUSE_OF[kind],
        kind=kind,
        core=tuple(core),
        stuck=tuple(dragged),
        closure=tuple(sorted(closure)),
        culprits=culprits,
        victims=tuple(sorted({*core, *dragged}.difference(culprits))),
        edges=edges,
        tickets={pid: wait.ticket for pid, wait in waits.items()},
        closing_wait_at=max(waits[pid].t for pid in core),
        deadline=min((at for at in deadlines if at is not None), default=None),
        interruptible=_interruptible(waits, edges, core),
        groups=_waited(state, core, "collective"),
        mailboxes=_waited(state, closure, "mailbox"),
    )


def _wait(state: Analysis, pid: str) -> CurrentWait:
    wait = state.waiting[pid].wait
    assert wait is not None
    return wait


def _waited(state: Analysis, among: list[str] | set[str], kind: str) -> tuple[str, ...]:
    named = {r for pid in among for r in _wait(state, pid).resources()}
    return tuple(sorted(r for r in named if state.graph.resources[r].type == kind))


def _edges(state: Analysis, pid: str, blockers: Blockers) -> list[Edge]:
    wait = _wait(state, pid)
    found = []
    for condition, group in blockers[pid]:
        alive = [(helper, False) for helper in group.weights if helper in blockers]
        helpers = [*alive, *((helper, True) for helper in group.gone)] or [("", False)]
        for helper, gone in helpers:
            found.append(
                Edge(
                    participant=pid, resource=condition.what, helper=helper, via=group.via, since=wait.t,
                    site=wait.site, seq=condition.seq, gone=gone,
                )
            )  # fmt: skip
    return found


def _interruptible(
    waits: dict[str, CurrentWait], edges: tuple[Edge, ...], core: list[str]
) -> tuple[str, ...]:
    held = [edge for edge in edges if edge.via == "hold" and not edge.gone and edge.participant in core]
    wanted = {edge.helper for edge in held if len(core) == 1 or edge.participant != edge.helper}
    return tuple(pid for pid in core if pid in wanted and waits[pid].interruptible)


def _culprits(state: Analysis, blockers: Blockers, core: list[str], kind: Kind) -> tuple[str, ...]:
    groups = [(condition, group) for pid in core for condition, group in blockers[pid]]
    if kind == "mismatch":
        return tuple(sorted({pid for c, g in groups if g.never == "mismatch" for pid in _minority(state, c)}))
    if CAUSE_OF[kind] == "deadlock":
        return tuple(core)
    return tuple(sorted({pid for _, group in groups for pid in group.gone}))


def _minority(state: Analysis, condition: Condition) -> list[str]:
    """Those whose operation fewest others issued; all of them where none is rarer."""
    issued = state.graph.resources[condition.what].signatures.get(condition.seq or 0, {})
    frequency = Counter(issued.values())
    most = max(frequency.values(), default=0)
    rare = [pid for pid, signature in issued.items() if frequency[signature] < most]
    return rare or list(issued)


# --- kinds ---


def _ring_kind(state: Analysis, blockers: Blockers, ring: list[str]) -> Kind:
    if len(ring) == 1:
        return "self"
    return "knot" if any(_has_choice(state, blockers, pid) for pid in ring) else "cycle"


def _has_choice(state: Analysis, blockers: Blockers, pid: str) -> bool:
    """Whether more stuck participants could have helped `pid` than it needed."""
    for _, group in blockers[pid]:
        weights = [weight for helper, weight in group.weights.items() if helper in blockers]
        if len(weights) > 1 and sum(weights) > group.need:
            return True
    groups = {id(condition): [] for condition, _ in blockers[pid]}  # type: dict[int, list[Group]]
    for condition, group in blockers[pid]:
        groups[id(condition)].append(group)
    for clause in state.needs[pid]:
        bad = [groups[id(condition)] for condition in clause.of if id(condition) in groups]
        possible = sum(all(blockers.keys() & group.weights.keys() for group in of) for of in bad)
        if possible > clause.k - (len(clause.of) - len(bad)) > 0:
            return True
    return False


def _joined(state: Analysis, blockers: Blockers, roots: list[str]) -> list[tuple[Kind, list[str]]]:
    """Roots that stand before the same thing, joined."""
    parent: dict[str, str] = {}

    def top(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    kinds: dict[str, Kind] = {}
    for pid in roots:
        kinds[pid], keys = _root_kind(state, blockers[pid])
        for key in keys:
            parent[top(key)] = top(f"participant {pid}")
    parts: dict[str, list[str]] = {}
    for pid in roots:
        parts.setdefault(top(f"participant {pid}"), []).append(pid)
    return [(min((kinds[pid] for pid in part), key=_ORDER.index), sorted(part)) for part in parts.values()]


def _root_kind(state: Analysis, groups: list[tuple[Condition, Group]]) -> tuple[Kind, list[str]]:
    kinds = [(_group_kind(state, condition, group), condition, group) for condition, group in groups]
    worst = min((kind for kind, _, _ in kinds), key=_ORDER.index)
    keys = []
    for kind, condition, group in kinds:
        if kind == worst:
            named = [f"process {parse(pid).source}" for pid in group.gone] if kind != "mismatch" else []
            keys += named or [f"thing {condition.what} {condition.seq}"]
    return worst, keys


def _group_kind(state: Analysis, condition: Condition, group: Group) -> Kind:
    if group.never == "mismatch":
        return "mismatch"
    if group.gone and group.via == "hold":
        return "orphaned-lock"
    ended = [state.graph.participants.get(pid) for pid in group.gone]
    if any(one is None or one.how != "exit" for one in ended):
        return "orphan"
    known = state.graph.resources.get(condition.what)
    return "never-set" if known is not None and known.type in _SET_TYPES else "absent"


# --- what is not proof ---


def _suspects(state: Analysis) -> tuple[Suspect, ...]:
    found = []
    view = View(state.live_by_known, unknown_help=False)
    opened: dict[int, list[Group]] = {}
    goes_on = state.live_by_known - state.timed - state.untold  # each of their clauses is met by somebody known
    for pid in sorted(state.waiting.keys() - state.stuck - goes_on):
        wait = _wait(state, pid)
        opens = []
        for condition in view.unmet(state.needs[pid]):
            if id(condition) not in opened:
                opened[id(condition)] = [group for group in view.lacking(condition) if group.open]
            opens += [(condition, group) for group in opened[id(condition)][:1]]
        if opens:
            condition, group = opens[0]
            found.append(
                Suspect(
                    participant=pid,
                    resource=condition.what,
                    label=wait.label or condition.what,
                    since=wait.t,
                    site=wait.site,
                    external=group.via == "external",
                )
            )
    return tuple(found)


def _mismatches(graph: LiveGraph) -> tuple[Mismatch, ...]:
    return tuple(
        Mismatch(resource=r, seq=seq, issued=dict(by))
        for r, state in sorted(graph.resources.items())
        for seq, by in sorted(state.signatures.items())
        if state.mismatched(seq)
    )
