"""Who keeps everybody waiting, where nothing is stuck: old waits followed to the participants that run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unknot.graph.analysis import Analysis
from unknot.graph.components import reach, reverse
from unknot.graph.finding import SlowChain
from unknot.graph.reduce import View, unmet

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph
    from unknot.graph.needs import Condition, Group


@dataclass(frozen=True, slots=True)
class _End:
    """Where a chain ends: participants that run and could each help, or nobody known."""

    kind: Literal["running", "external"]
    roots: tuple[str, ...]
    resource: str


def slow_chains(graph: LiveGraph, now: float, older_than_s: float) -> tuple[SlowChain, ...]:
    """Waits that are older than `older_than_s` seconds and not stuck, by what they all wait for in the end.

    Returns the chain with the oldest wait first. A straggler is a chain with one root and many waiters.
    """
    state = Analysis(graph)
    free = {pid: one for pid, one in state.waiting.items() if pid not in state.stuck}
    view = View(set(), unknown_help=False)
    steps = {pid: unmet(state.needs[pid], view) for pid in free}
    links = {pid: [h for _, group in steps[pid] for h in group.weights if h in free] for pid in free}
    ends: dict[_End, list[str]] = {}
    for pid, blockers in steps.items():
        for condition, group in blockers:
            for end in _ends(state, condition, group):
                ends.setdefault(end, []).append(pid)
    back = reverse(links)
    found = [_chain(state, end, direct, reach(back, direct), now=now) for end, direct in ends.items()]
    return tuple(
        sorted((one for one in found if one.oldest_age_s > older_than_s), key=lambda one: -one.oldest_age_s)
    )


def _ends(state: Analysis, condition: Condition, group: Group) -> list[_End]:
    running = [pid for pid in group.weights if pid in state.running]
    if not running:
        helped = any(pid in state.waiting for pid in group.weights)
        return [_End("external", (), condition.what)] if group.open and not helped else []
    if group.need >= sum(group.weights.values()):
        return [_End("running", (pid,), condition.what) for pid in running]
    return [_End("running", tuple(sorted(running)), condition.what)]


def _chain(state: Analysis, end: _End, direct: list[str], everybody: set[str], *, now: float) -> SlowChain:
    since = {pid: wait.t for pid in everybody if (wait := state.waiting[pid].wait) is not None}
    last = min(direct, key=lambda pid: (since[pid], pid))
    wait = state.waiting[last].wait
    return SlowChain(
        kind=end.kind,
        roots=end.roots,
        resource=(wait.label if wait is not None and wait.label and end.kind == "external" else end.resource),
        by=last,
        waiters=tuple(sorted(everybody)),
        oldest_age_s=now - min(since.values()),
        site=wait.site if wait is not None else None,
    )
