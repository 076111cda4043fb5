"""Which remedy comes next: a pure choice from the ways out that the graph offers, and the highest rung that policy allows.

The graph offers only what frees somebody, the cheapest first (`graph/victims.py`): the end of a wait whose owner then lets go what
others of the core wait for, or the break of a collective group. Where nothing is left, or everything was tried, people are told,
and nothing else is done. `overtake` is not asked for: no queue of ours has a waiter that only the order keeps, since
`unknot.Lock` has one holder. A group in which somebody died or never came is not broken: its recovery re-forms it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from unknot.graph.finding import Finding
from unknot.graph.live import LiveGraph
from unknot.graph.victims import choices
from unknot.supervisor.config import Rung

_HEIGHT: dict[str, int] = {"alert": 0, "interrupt": 1, "break": 2}
_FREED_BY: dict[str, tuple[str, ...]] = {
    "deadlock": ("interrupt", "break"), "mismatch": ("interrupt", "break"), "dead": ("interrupt",), "absent": ("interrupt",),
}  # fmt: skip


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """One rung: on a participant (`interrupt`), a collective resource (`break`) or a process (`restart`), and why this one."""

    rung: Literal["interrupt", "break", "restart"]
    target: str
    why: str


def next_remedy(
    graph: LiveGraph, finding: Finding, *, tried: tuple[str, ...], highest: Rung, spare: frozenset[str] = frozenset()
) -> Remedy | None:
    """The cheapest remedy not yet tried, None when only people can help.

    Args:
        graph: in the state in which the finding holds.
        finding: confirmed.
        tried: targets of remedies that did not help.
        highest: the highest rung that policy allows.
        spare: who was interrupted the last time that these participants stood still; chosen only if nobody else can be.
    """
    allowed = [rung for rung in _FREED_BY.get(finding.cause, ()) if _HEIGHT[rung] <= _HEIGHT[highest]]
    for choice in choices(graph, finding, spare=spare, tried=tried, ours=_no_queue) if allowed else ():
        if choice.rung != "overtake" and choice.rung in allowed:
            return Remedy(rung=choice.rung, target=choice.target, why=choice.why)
    return None


def _no_queue(resource: str) -> bool:  # noqa: ARG001 - victims asks it of each resource
    return False
