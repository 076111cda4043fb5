"""What the live graph knows of one resource: who holds it, who waits for it in which order, what it counts.

A resource is never an edge between two participants: who helps whom is worked out anew at each evaluation
from these facts. A lock that changes hands is then one changed entry, however many wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from unknot.graph.collectives import FIELDS, comparable
from unknot.graph.events import Arrive, Resource
from unknot.graph.gates import Node
from unknot.graph.ids import parse

if TYPE_CHECKING:
    from unknot.graph.participants import Participant

HELD = frozenset({"lock", "rwlock", "semaphore", "slots", "reservation"})
UNITS = frozenset({"semaphore", "slots", "reservation"})
_EXCLUSIVE = frozenset({"x", "w", "write", "exclusive", "writer"})

Signature = tuple[Any, ...]


@dataclass(slots=True)
class ResourceState:
    """Facts about one resource. `declared` is None for one that was named before it was declared.

    holders: participant -> mode -> units. doubtful: a record that may have changed what it
    counts is lost. taken: when and where holders took it, as far as that was told. waiters: who waits, in the order
    of asking. queue: those of them whose place is known, in the order of being served. count: messages in a mailbox
    or the number of a latch. returners: who has messages of a mailbox in its hands and may put them back.
    by_threads: a thread that is not the main one has issued.
    """

    id: str
    declared: Resource | None = None
    holders: dict[str, dict[str, int]] = field(default_factory=dict)
    waiters: dict[str, None] = field(default_factory=dict)
    queue: list[str] = field(default_factory=list)
    count: int = 0
    returners: tuple[str, ...] = ()
    by_threads: bool = False
    is_set: bool = False
    closed: bool = False
    store_counted: bool = False
    doubtful: bool = False
    signalled_until: float = float("-inf")
    arrivals: dict[str, int] = field(default_factory=dict)
    signatures: dict[int, dict[str, Signature]] = field(default_factory=dict)
    sites: dict[int, dict[str, str]] = field(default_factory=dict)
    taken: dict[str, tuple[float, str]] = field(default_factory=dict)
    gates: dict[tuple[Any, ...], Node] | None = field(default=None, repr=False, compare=False)

    @property
    def type(self) -> str:
        """The declared type, empty if undeclared."""
        return self.declared.type if self.declared is not None else ""

    @property
    def declared_members(self) -> tuple[str, ...]:
        """The members of a collective group as declared, none if they are not known."""
        return (self.declared.members if self.declared is not None else None) or ()

    def capacity(self) -> int | None:
        """How many units there are, None if nobody has said it."""
        own = self.declared
        if own is None:
            return None
        told = (own.capacity, own.units, own.initial, own.count)
        return next((n for n in told if n is not None), None)

    def excludes(self, mode: str, other: str) -> bool:
        """Whether a request in `mode` cannot be served beside a hold in mode `other`."""
        own = self.declared
        if own is None or own.type == "lock":
            return True
        if own.conflicts is not None:
            return other in own.conflicts.get(mode, ()) or mode in own.conflicts.get(other, ())
        return mode in _EXCLUSIVE or other in _EXCLUSIVE

    def exclusive(self, mode: str) -> bool:
        """Whether `mode` is a writer's: it excludes itself."""
        return self.excludes(mode, mode)

    def held(self) -> int:
        """Units held by anybody."""
        return sum(sum(modes.values()) for modes in self.holders.values())

    def take(self, participant: str, at: float, site: str | None) -> None:
        """Note where and when (seconds) somebody who holds nothing yet takes it; of the last `KEPT_TAKEN`."""
        if site is None or participant in self.holders:
            return
        self.taken.pop(participant, None)
        self.taken[participant] = (at, site)
        if len(self.taken) > KEPT_TAKEN:
            del self.taken[next(iter(self.taken))]

    def mismatched(self, seq: int) -> bool:
        """Whether two participants issued different operations as number `seq`."""
        issued = self.signatures.get(seq)
        if not issued or len(set(issued.values())) == 1:
            return False
        columns = zip(*issued.values(), strict=False)
        return any(len({value for value in column if value is not None}) > 1 for column in columns)

    def signature(self, event: Arrive) -> Signature:
        """What `event` tells of the fields that must be equal."""
        names = self.fields()
        if names is FIELDS:
            return event.op, event.shape, event.dtype, event.root, event.reduce_op
        return tuple(getattr(event, name, None) for name in names)

    def fields(self) -> tuple[str, ...]:
        """What must be equal in all ranks; a field that a rank does not tell agrees with any."""
        return (self.declared.match if self.declared is not None else None) or FIELDS

    def issuing(self, people: Mapping[str, Participant]) -> dict[str, list[str]]:
        """For each declared member its participants that have issued here, those of its newest incarnation."""
        found: dict[str, list[str]] = {}
        others = set()
        for name in self.declared_members:
            found[name] = []
            if name not in people or parse(name).source == name:
                others.add(name)
            elif name in self.arrivals:  # a thread is nobody but itself
                found[name] = [name]
        for pid in self.arrivals if others else ():
            one = people[pid]
            for name in {one.member, one.source} & others:
                mine = found[name]
                if not mine or one.incarnation == people[mine[0]].incarnation:
                    mine.append(pid)
                elif one.incarnation > people[mine[0]].incarnation:
                    found[name] = [pid]
        return found

    def forget(self, participant: str) -> None:
        """Void whatever `participant` holds and has issued here."""
        self.holders.pop(participant, None)
        self.arrivals.pop(participant, None)
        for seq in list(self.signatures):
            self.signatures[seq].pop(participant, None)
            self.sites.get(seq, {}).pop(participant, None)
            if not self.signatures[seq]:
                del self.signatures[seq]
                self.sites.pop(seq, None)

    def arrive(self, participant: str, seq: int, signature: Signature, site: str | None = None) -> None:
        """Note that `participant` has issued everything up to `seq`; what it was and where, if that is told."""
        self.arrivals[participant] = max(seq, self.arrivals.get(participant, seq))
        if signature.count(None) == len(signature):
            return
        self.signatures.setdefault(seq, {})[participant] = comparable(self.fields(), signature)
        if site is not None:
            self.sites.setdefault(seq, {})[participant] = site
        if len(self.signatures) > KEPT_SIGNATURES:
            self._prune()

    def _prune(self) -> None:
        oldest = min(self.arrivals.values())
        for seq in sorted(self.signatures)[: -KEPT_SIGNATURES // 2]:
            if seq < oldest and not self.mismatched(seq):
                del self.signatures[seq]
                self.sites.pop(seq, None)


KEPT_SIGNATURES = 256
KEPT_TAKEN = 64


def first_count(resource: Resource) -> int:
    """What a newly declared resource counts: messages of a mailbox, the number of a latch."""
    return next((n for n in (resource.count, resource.initial) if n is not None), 0)


def differs(one: Resource, other: Resource) -> bool:
    """Whether two declarations of a resource differ in more than what it counts at the moment."""
    return msgspec.structs.replace(one, count=None, t=0.0, p="") != msgspec.structs.replace(other, count=None, t=0.0, p="")
