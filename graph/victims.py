"""Whom to free so that a knot comes apart: from its core only, at the least cost, each choice with what it frees.

Every choice is tried on the net before it is offered ("what if this one went on?"), so one that frees nobody is
never made: to interrupt somebody who merely owes a message ends its wait and no other.

In this order, since each costs more than the one before:

1. `overtake`: a waiter that only the order of a queue keeps is let through. Nobody loses anything; it needs a
   queue that is ours to change (PostgreSQL rearranges wait queues for the same reason before it aborts anybody).
2. `interrupt`: one wait ends, and its owner lets go what others of the core wait for. First those that were not
   struck the last time, then by role (an environment before an agent, a trainer rank last), then those that free
   most, then those with the least work since their last mark of progress, then the newest wait.
3. `break`: the operations of one group end for all its members; the group with the fewest waiting members first.

The cheapest set of victims is a feedback vertex set, NP-hard already where every wait is an AND (Karp 1972); after
one remedy the graph is looked at again, so greedy choices are made one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from unknot.graph.ids import shown

if TYPE_CHECKING:
    from unknot.graph.finding import Finding
    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import Participant

WORTH = {"environment": 0, "agent": 1, "judge": 2, "trainer": 3, "driver": 4}
_UNKNOWN_WORTH = 2


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One way out: `target` is a participant, or the group (`coll:NAME@gGEN`) of a `break`.

    ticket: the wait that it ends, for compare-and-set; None for a group. resource: where. frees: who of the core
    could go on then. why: one sentence for people.
    """

    rung: Literal["overtake", "interrupt", "break"]
    target: str
    resource: str
    frees: tuple[str, ...]
    why: str
    ticket: int | None = None


def choices(
    graph: LiveGraph, finding: Finding, *, spare: Iterable[str] = (), tried: Iterable[str] = (),
    ours: Callable[[str], bool] = lambda _: True,
) -> tuple[Choice, ...]:
    """All ways to free the core of `finding`, the cheapest first; none for a ring that a deadline will cut.

    Args:
        graph: in the state in which the finding holds; waits of the core that have ended since are left out.
        finding: of cause deadlock, mismatch, absent or dead.
        spare: who bore the last remedy; chosen only if nobody else can be.
        tried: targets that did not help.
        ours: whether the queue of a resource is ours to change.
    """  # fmt: skip
    if finding.kind == "timed":
        return ()
    done, sparing = frozenset(tried), frozenset(spare)
    core = [graph.participants[pid] for pid in finding.core if graph.ticket(pid) == finding.tickets[pid]]
    overtaking = [c for one in core if (c := _overtake(graph, finding, one, ours)) is not None]
    ends = [c for one in core if one.id in finding.interruptible and (c := _interrupt(graph, finding, one)) is not None]
    ends.sort(key=lambda choice: _cost(graph, choice, sparing))
    breaks = [c for group in finding.groups if (c := _break(graph, finding, group)) is not None]
    breaks.sort(key=lambda choice: (len(graph.resources[choice.target].waiters), choice.target))
    return tuple(choice for choice in (*overtaking, *ends, *breaks) if choice.target not in done)


def _freed(graph: LiveGraph, finding: Finding, people: Iterable[Participant]) -> tuple[str, ...]:
    """Who of the core could go on if `people` did."""
    still = {node.pid for node in graph.wiring.settle().out_with(one.node for one in people)}
    return tuple(pid for pid in finding.core if pid not in still)


def _overtake(graph: LiveGraph, finding: Finding, one: Participant, ours: Callable[[str], bool]) -> Choice | None:
    edges = [edge for edge in finding.edges if edge.participant == one.id]
    queues = {edge.resource for edge in edges if edge.via == "queue"}
    if len(queues) != 1 or any(edge.via != "queue" for edge in edges):
        return None
    (resource,) = queues
    if not ours(resource):
        return None
    passed = sorted({edge.helper for edge in edges})
    return Choice(
        rung="overtake", target=one.id, resource=resource, frees=_freed(graph, finding, [one]), ticket=graph.ticket(one.id),
        why=f"only the queue of {shown(resource)} keeps it: it goes ahead of {', '.join(passed)}, and nobody loses work",
    )  # fmt: skip


def _interrupt(graph: LiveGraph, finding: Finding, one: Participant) -> Choice | None:
    frees = _freed(graph, finding, [one])
    if len(finding.core) > 1 and frees == (one.id,):
        return None
    held = sorted({e.resource for e in finding.edges if e.helper == one.id and e.via == "hold"})
    gives = f" and gives back {', '.join(map(shown, held))}" if held else ""
    others = f"{len(frees) - 1} of {len(finding.core) - 1} others of the knot" if len(finding.core) > 1 else "itself"
    return Choice(
        rung="interrupt", target=one.id, resource=held[0] if held else "", frees=frees, ticket=graph.ticket(one.id),
        why=f"its wait can be ended{gives}: that frees {others}",
    )  # fmt: skip


def _break(graph: LiveGraph, finding: Finding, group: str) -> Choice | None:
    inside = [graph.participants[pid] for pid in graph.resources[group].waiters]
    frees = _freed(graph, finding, inside)
    if not frees:
        return None
    why = f"no cheaper way: whoever waits in {shown(group)} ({len(inside)}) leaves it, and it is formed again"
    return Choice(rung="break", target=group, resource=group, frees=frees, why=why)


def _cost(graph: LiveGraph, choice: Choice, spare: frozenset[str]) -> tuple[bool, int, int, float, int, str]:
    one = graph.participants[choice.target]
    marked = one.last_progress if one.last_progress is not None else one.started_at
    worth = WORTH.get(one.role, _UNKNOWN_WORTH)
    return choice.target in spare, worth, -len(choice.frees), -marked, -(choice.ticket or 0), choice.target
