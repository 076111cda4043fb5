"""Silent mixing: ranks issue equal-looking operations of one group in different orders, and the sums are wrong.

Two reductions of the same size, swapped on one rank, pair with each other and nothing hangs. Only the call sites tell. But
different sites in one operation are no proof: `if rank == 0: broadcast(x)` on one line and the same broadcast in the
`else` branch on another is good code. How is it decided?

A rank is *out of line* at a site when it issued there while another rank issued the same operation at another site. A
branch by rank keeps the sites apart: the one rank is out of line at its own site only, the others at theirs, for ever. Mixing
does not: the rank that was met at site B while it stood at A comes to B itself when the others have left it. So two ranks
mix when one stood at A and the other at B in one operation, and one of them was out of line at the *other's* site in another
operation. A helper that all ranks call together is never out of line, so calling it elsewhere too proves nothing.

What this cannot tell apart is a branch whose roles rotate (`if rank == step % world`): each rank comes to each site, as in a
swap. So it is a warning and never an incident, and the two sites can be marked as `alike` in the declaration of the group;
then they count as one.

Kept for each group: the last `SLOTS` operations that are not complete in all ranks' words, and `SITES` sites a rank; a rank is compared
with `MET` others in an operation.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from unknot.graph import events as ev
from unknot.graph.ids import shown

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph

SLOTS = 256
SITES = 256
MET = 16
WARNINGS = 100


class Mixing(msgspec.Struct, frozen=True, kw_only=True):
    """Two ranks of a group issued operation `seq` at two sites that each of them also comes to elsewhere."""

    resource: str
    seq: int
    participants: tuple[str, str]
    sites: tuple[str, str]
    text: str


@dataclass(slots=True)
class _Group:
    slots: dict[int, dict[str, str]] = field(default_factory=dict)
    out_of_line: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(slots=True)
class CallSites:
    """Compares where ranks issue. Feed it each event after the graph has taken it."""

    _groups: dict[str, _Group] = field(default_factory=dict)
    _found: dict[tuple[str, frozenset[str]], Mixing] = field(default_factory=dict)

    def observe(self, graph: LiveGraph, event: ev.Event) -> None:
        """Take one event; all but operations with a call site say nothing."""
        if not isinstance(event, ev.Arrive) or not event.site or not event.p:
            return
        state = graph.resources.get(event.r)
        if state is None or state.mismatched(event.seq):
            return
        site = _as_marked(event.site, state.declared.alike if state.declared is not None else None)
        group = self._groups.setdefault(event.r, _Group())
        slot = group.slots.setdefault(event.seq, {})
        others = ((other, there) for other, there in slot.items() if other != event.p and there != site)
        for met in itertools.islice(others, MET):
            self._compare(group, event, site, met)
        slot[event.p] = site
        if len(group.slots) > SLOTS:
            del group.slots[min(group.slots)]

    def warnings(self) -> tuple[Mixing, ...]:
        """What was found, the first one first."""
        return tuple(self._found.values())

    def _compare(self, group: _Group, event: ev.Arrive, site: str, other: tuple[str, str]) -> None:
        pid, there = other
        mine = group.out_of_line.setdefault(event.p, {})
        theirs = group.out_of_line.setdefault(pid, {})
        crossed = mine.get(there, event.seq) != event.seq or theirs.get(site, event.seq) != event.seq
        for known, place in ((mine, site), (theirs, there)):
            if place in known or len(known) < SITES:
                known[place] = event.seq
        key = (event.r, frozenset((site, there)))
        if crossed and key not in self._found and len(self._found) < WARNINGS:
            self._found[key] = _mixing(event, site, other)


def _as_marked(site: str, alike: tuple[tuple[str, ...], ...] | None) -> str:
    return next((same[0] for same in alike or () if site in same), site)


def _mixing(event: ev.Arrive, site: str, other: tuple[str, str]) -> Mixing:
    pid, there = other
    text = (
        f"operation #{event.seq} of {shown(event.r)} ({event.op or 'operation'}) was issued by {pid} at {there} and by {event.p} "
        f"at {site}, and both come to the other's place too: equal-sized operations may be mixed, and their results wrong. "
        "If these places belong together, mark them as alike."
    )
    return Mixing(
        resource=event.r, seq=event.seq, participants=(pid, event.p), sites=(there, site), text=text
    )
