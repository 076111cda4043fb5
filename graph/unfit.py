"""Whether a wait can be as it is told: what is wrong with it, and what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unknot.graph.events import Atom, Wait
    from unknot.graph.participants import Participant
    from unknot.graph.resources import ResourceState

Problem = tuple[str, str]


def unfit(
    event: Wait, one: Participant | None, resources: Mapping[str, ResourceState], *, tolerant: bool
) -> Problem | None:
    """What is wrong with a wait of `one`, None if nothing is; `tolerant`: another record may yet explain it."""
    if one is not None and one.wait is not None and not tolerant:
        return f"{event.p} waits again", f"a wake for its ticket {one.wait.ticket} first"
    for clause in event.needs:
        if not 0 <= clause.k <= len(clause.of):
            return f"{clause.k} of {len(clause.of)} atoms", "k between 0 and the number of atoms"
        for atom in clause.of:
            if (problem := _unfit_atom(atom, resources, tolerant=tolerant)) is not None:
                return problem
    return None


def _unfit_atom(atom: Atom, resources: Mapping[str, ResourceState], *, tolerant: bool) -> Problem | None:
    if (atom.r is not None) + (atom.p is not None) + (atom.external is not None) != 1:
        return f"atom {atom}", "exactly one of r, p, external"
    if atom.units <= 0:
        return f"{atom.units} units", "a positive number"
    if atom.r is None:
        return None
    known = resources.get(atom.r)
    own = known.declared if known is not None else None
    if own is None:
        if tolerant:
            return None
        return f"unknown resource {atom.r}", "a resource event that declares it before its first use"
    if atom.op is None and own.type == "mailbox":
        return f"wait for mailbox {atom.r} without op", "recv or send"
    return None
