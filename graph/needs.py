"""What a wait needs, worked out from the facts: conditions over those who could help.

An atom becomes a condition: an AND of groups. A group is met once helpers of enough weight can go on: one
supplier of a mailbox (weights 1, need 1), all holders of a lock (need n), units that a semaphore lacks
(weights = units held). A condition without groups is met now. `gone` helpers have no weight: they will never
help, but they are the explanation. Conditions that many waits share (a collective, a mailbox) are one object,
so work stays linear in what is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from unknot.graph.events import Atom, Resource
from unknot.graph.queues import ahead
from unknot.graph.resources import UNITS, ResourceState
from unknot.graph.rights import Rights, Suppliers

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import Participant

Via = Literal["hold", "queue", "owe", "peer", "external"]
Never = Literal["mismatch", "too many"]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Met once helpers that can go on weigh `need`, or if `open` and unknown helpers count."""

    need: int
    weights: Mapping[str, int]
    via: Via
    open: bool = False
    gone: tuple[str, ...] = ()
    never: Never | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """All groups must be met. `what` is the resource id, the participant or the label that is waited for."""

    what: str
    groups: tuple[Group, ...]
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """One clause: `k` of the conditions."""

    k: int
    of: tuple[Condition, ...]


@dataclass(slots=True)
class Compiler:
    """Turns the waits of one state of a graph into conditions."""

    graph: LiveGraph
    rights: Rights = field(init=False)
    _shared: dict[tuple[str, str, int], Condition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rights = Rights(self.graph)

    def needs(self, one: Participant) -> tuple[Need, ...]:
        """The clauses of the current wait of `one`, empty if it does not wait."""
        if one.wait is None:
            return ()
        return tuple(Need(c.k, tuple(self.condition(one, atom) for atom in c.of)) for c in one.wait.needs)

    def condition(self, one: Participant, atom: Atom) -> Condition:
        """What `atom` of the current wait of `one` needs."""
        if atom.external is not None:
            return Condition(atom.external, (Group(1, {}, "external", open=not atom.closed),))
        if atom.p is not None:
            return Condition(atom.p, self._peer(atom.p))
        assert atom.r is not None
        state = self.graph.resources[atom.r]
        if state.declared is None:
            return Condition(atom.r, (Group(1, {}, "owe", open=True),))
        assert one.wait is not None
        if atom.r in one.wait.passed:
            return Condition(atom.r, ())
        return _TYPES[state.declared.type](self, one, state, atom)

    def _peer(self, pid: str) -> tuple[Group, ...]:
        known = self.graph.participants.get(pid)
        if known is None:  # nothing was ever heard of it, or nothing yet: no proof that it will never answer
            return (Group(1, {}, "peer", open=True),)
        if known.how == "exit":
            return ()
        if known.how == "crash":
            return (Group(1, {}, "peer", gone=(pid,)),)
        # A call to a fenced incarnation may be answered by the next one, or fail: it is not known to hang.
        return (Group(1, {} if known.how else {pid: 1}, "peer", open=known.how is not None),)

    def _lock(self, one: Participant, state: ResourceState, atom: Atom) -> Condition:
        own = state.declared
        assert own is not None
        others = [pid for pid in state.holders if pid != one.id or not own.reentrant]
        blockers = [
            pid for pid in others if any(state.excludes(atom.mode, held) for held in state.holders[pid])
        ]
        groups = [self._held(dict.fromkeys(blockers, 1), len(blockers), own.setters)] if blockers else []
        if own.reentrant and one.id in state.holders:  # it need not queue again
            return Condition(state.id, tuple(groups))
        return Condition(state.id, (*groups, *self._behind(one, state, atom)))

    def _units(self, one: Participant, state: ResourceState, atom: Atom) -> Condition:
        own, capacity = state.declared, state.capacity()
        assert own is not None
        if capacity is None:
            return Condition(state.id, (Group(1, {}, "hold", open=True),))
        if atom.units > capacity and own.setters is None:
            return Condition(state.id, (Group(atom.units, {}, "hold", never="too many"),))
        lacking = atom.units - (capacity - state.held())
        weights = {pid: sum(modes.values()) for pid, modes in state.holders.items()}
        groups = [self._held(weights, lacking, own.setters)] if lacking > 0 else []
        return Condition(state.id, (*groups, *self._behind(one, state, atom)))

    def _held(self, weights: dict[str, int], need: int, setters: tuple[str, ...] | None) -> Group:
        """Those who hold, and those who may free it without holding: each of them alone suffices."""
        gone = tuple(pid for pid in weights if self.graph.participants[pid].how is not None)
        alive = {pid: weight for pid, weight in weights.items() if pid not in gone}
        others = self.rights.suppliers(setters) if setters else _NOBODY
        return Group(
            need, {**alive, **dict.fromkeys(others.alive, need)}, "hold", open=others.open, gone=gone
        )

    def _behind(self, one: Participant, state: ResourceState, atom: Atom) -> list[Group]:
        """The waiters ahead in the queue that must be served first."""
        found = ahead(self.graph, one, state, atom)
        return [Group(len(found), dict.fromkeys(found, 1), "queue")] if found else []

    def _mailbox(self, one: Participant, state: ResourceState, atom: Atom) -> Condition:
        own, op = state.declared, atom.op or "recv"
        assert own is not None
        if state.closed or self._mailbox_ready(one, state, op):
            return Condition(state.id, ())
        return self._sharing(state, op, 0, lambda: (self._counterparts(state, own, op),))

    def _counterparts(self, state: ResourceState, own: Resource, op: str) -> Group:
        """Who has the right to do the opposite, or already waits to do it, whatever the list says; who may put messages back."""
        owed = self._owed(state, own.senders if op == "recv" else own.receivers)
        ready = [pid for pid in state.waiters if self.graph.meets(pid, state.id, op)]
        if op != "recv" or owed.open or not state.returners:
            return replace(owed, weights={**owed.weights, **dict.fromkeys(ready, 1)})
        back = self.rights.suppliers(state.returners)
        helpers = [pid for pid in sorted(back.alive) if not self.graph.waits_only_for(pid, state.id)]
        return replace(
            owed, weights={**owed.weights, **dict.fromkeys([*helpers, *ready], 1)}, open=back.open,
            gone=tuple(sorted({*owed.gone, *back.gone})),
        )  # fmt: skip

    def _mailbox_ready(self, one: Participant, state: ResourceState, op: str) -> bool:
        assert state.declared is not None
        capacity = state.declared.capacity
        if op == "recv" and state.count > 0:
            return True
        if op == "send" and (capacity is None or state.count < capacity):
            return True
        return capacity == 0 and any(
            pid != one.id and self.graph.meets(pid, state.id, op) for pid in state.waiters
        )

    def _owed(self, state: ResourceState, names: tuple[str, ...] | None) -> Group:
        """One of those who have the right, or may close; an absent list means anybody."""
        closers = (state.declared.closers if state.declared is not None else None) or ()
        if names is None or state.doubtful:
            return Group(1, {}, "owe", open=True)
        return _one_of(self.rights.suppliers((*names, *closers)), via="owe")

    def _event(self, _: Participant, state: ResourceState, __: Atom) -> Condition:
        own = state.declared
        assert own is not None
        done = state.is_set or (own.type == "latch" and state.count <= 0)
        return self._sharing(
            state, "set", int(done), lambda: () if done else (self._owed(state, own.setters),)
        )

    def _collective(self, _: Participant, state: ResourceState, atom: Atom) -> Condition:
        own = state.declared
        assert own is not None
        if own.members is None or atom.seq is None:
            return Condition(state.id, (Group(1, {}, "owe", open=True),), atom.seq)
        return self._sharing(
            state, "seq", atom.seq, lambda: self._absent(state, atom.seq or 0)
        )

    def _absent(self, state: ResourceState, seq: int) -> tuple[Group, ...]:
        if state.mismatched(seq):
            return (Group(1, dict.fromkeys((), 1), "owe", never="mismatch"),)
        groups = []
        for name, issuing in state.issuing(self.graph.participants).items():
            if any(state.arrivals[pid] >= seq for pid in issuing):
                continue
            alive = {pid: 1 for pid in issuing if self.graph.participants[pid].how is None}
            if alive:
                groups.append(Group(1, alive, "owe"))
            elif issuing:
                groups.append(Group(1, {}, "owe", gone=tuple(issuing)))
            else:
                groups.append(self._never_issued(name))
        return tuple(groups)

    def issuing(self, state: ResourceState, name: str) -> list[str]:
        """The participants of `name` that have issued on the group, of its newest incarnation."""
        return state.issuing(self.graph.participants).get(name, [])

    def _never_issued(self, name: str) -> Group:
        known = self.graph.participants.get(name)
        if known is None:
            return _one_of(self.rights.suppliers((name,)), via="owe")
        return Group(1, {name: 1} if known.how is None else {}, "owe", gone=(name,) if known.how else ())

    def _sharing(
        self, state: ResourceState, part: str, number: int, make: Callable[[], tuple[Group, ...]]
    ) -> Condition:
        key = (state.id, part, number)
        if key not in self._shared:
            self._shared[key] = Condition(state.id, make(), number if part == "seq" else None)
        return self._shared[key]


_NOBODY = Suppliers(frozenset(), frozenset())


def _one_of(found: Suppliers, *, via: Via) -> Group:
    return Group(
        1, dict.fromkeys(sorted(found.alive), 1), via, open=found.open, gone=tuple(sorted(found.gone))
    )


_TYPES: dict[str, Callable[[Compiler, Participant, ResourceState, Atom], Condition]] = {
    "lock": Compiler._lock, "rwlock": Compiler._lock, **dict.fromkeys(sorted(UNITS), Compiler._units),
    "mailbox": Compiler._mailbox, "event": Compiler._event, "condition": Compiler._event,
    "latch": Compiler._event, "external": Compiler._event, "collective": Compiler._collective,
}  # fmt: skip
