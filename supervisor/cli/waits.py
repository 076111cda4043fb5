"""What the published records say about who waits for what: pure functions from records to sentences.

This is the plain picture for people (who stands, since when, who could help), not a verdict: verdicts are the
monitor's, and are shown as incidents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from unknot.graph.events import Arrive, Atom, Clause, Hold, Record, Resource, Wait

ANYBODY = "anybody"
LOCK_PREFIX = "lock:"
T = TypeVar("T")


class WaitView(msgspec.Struct, frozen=True, kw_only=True):
    """One wait.

    `age_s` and the `_in_s` are seconds; `helpers` are those who could end it, as far as is known.
    """

    participant: str
    ticket: int
    text: str
    resources: tuple[str, ...]
    age_s: float
    site: str | None = None
    label: str | None = None
    holders: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    deadline_in_s: float | None = None
    limit_in_s: float | None = None


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What all records together say about resources.

    Declarations, holders, and how far ranks came in collectives.
    """

    resources: dict[str, Resource]
    holders: dict[str, tuple[str, ...]]
    arrived: dict[tuple[str, str], int]


def waits_of(
    records: Iterable[Record], *, now: float, holders: Mapping[str, str] | None = None
) -> tuple[WaitView, ...]:
    """All waits in these full records, oldest first.

    `now`: Redis' time in seconds. `holders`: holders that Redis itself knows, by resource id.
    """
    known = list(records)
    world = _world(known, holders or {})
    views = [
        _view(event, world, now) for record in known for event in record.events if isinstance(event, Wait)
    ]
    return tuple(sorted(views, key=lambda view: (-view.age_s, view.participant)))


def locks_waited_for(records: Iterable[Record]) -> tuple[str, ...]:
    """The names of the locks that somebody waits for, sorted."""
    atoms = (
        atom
        for record in records
        for event in record.events
        if isinstance(event, Wait)
        for clause in event.needs
        for atom in clause.of
    )
    return tuple(
        sorted(
            {atom.r.removeprefix(LOCK_PREFIX) for atom in atoms if atom.r and atom.r.startswith(LOCK_PREFIX)}
        )
    )


def _world(records: Sequence[Record], known: Mapping[str, str]) -> World:
    resources: dict[str, Resource] = {}
    holders: dict[str, list[str]] = {resource: [who] for resource, who in known.items()}
    arrived: dict[tuple[str, str], int] = {}
    for event in (event for record in records for event in record.events):
        if isinstance(event, Resource):
            resources[event.r] = event
        elif isinstance(event, Hold):
            holders.setdefault(event.r, []).append(event.p)
        elif isinstance(event, Arrive):
            arrived[event.r, event.p] = max(event.seq, arrived.get((event.r, event.p), -1))
    return World(
        resources=resources, holders={key: _unique(who) for key, who in holders.items()}, arrived=arrived
    )


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))


def _view(wait: Wait, world: World, now: float) -> WaitView:
    atoms = [atom for clause in wait.needs for atom in clause.of]
    return WaitView(
        participant=wait.p,
        ticket=wait.ticket,
        text=" and ".join(_clause_text(clause) for clause in wait.needs),
        resources=_unique(atom.r for atom in atoms if atom.r is not None),
        age_s=max(now - wait.t, 0.0),
        site=wait.site,
        label=wait.label,
        holders=_unique(who for atom in atoms for who in world.holders.get(atom.r or "", ())),
        helpers=_unique(who for atom in atoms for who in helpers_of(atom, world)),
        deadline_in_s=None if wait.deadline is None else wait.deadline - now,
        limit_in_s=None if wait.limit is None else wait.limit - now,
    )


def helpers_of(atom: Atom, world: World) -> tuple[str, ...]:
    """Who could serve this atom: holders, declared senders or receivers, absent ranks, or one participant."""
    if atom.p is not None:
        return (atom.p,)
    if atom.r is None:
        return (f"external {atom.external}",)
    resource = world.resources.get(atom.r)
    if resource is None:
        return world.holders.get(atom.r, ())
    if resource.type == "mailbox":
        rights = resource.receivers if atom.op == "send" else resource.senders
        return (ANYBODY,) if rights is None else rights
    if resource.type == "collective":
        return _absent(atom, resource, world)
    if resource.type == "event":
        return (ANYBODY,) if resource.setters is None else resource.setters
    return world.holders.get(atom.r, ())


def _absent(atom: Atom, resource: Resource, world: World) -> tuple[str, ...]:
    seq = atom.seq if atom.seq is not None else 0
    return tuple(
        member for member in resource.members or () if world.arrived.get((resource.r, member), -1) < seq
    )


def _clause_text(clause: Clause) -> str:
    parts = [_atom_text(atom) for atom in clause.of]
    if len(parts) == 1:
        return parts[0]
    listed = ", ".join(parts)
    if clause.k == len(parts):
        return f"all of {listed}"
    return f"any of {listed}" if clause.k == 1 else f"{clause.k} of {listed}"


def _atom_text(atom: Atom) -> str:
    if atom.p is not None:
        return f"the answer of {atom.p}"
    if atom.r is None:
        return f"{atom.external} (external)"
    if atom.op is not None:
        return f"a message in {atom.r}" if atom.op == "recv" else f"room in {atom.r}"
    if atom.seq is not None:
        return f"{atom.r} #{atom.seq}"
    return atom.r if atom.units == 1 else f"{atom.units} of {atom.r}"
