"""The live wait-for graph: facts of all participants and resources, fed event by event.

Two ways in. `apply` takes events in their true order and refuses what cannot be: a trace is either right or
rejected. `absorb` takes records of many processes. Each process keeps its own order, between processes there
is none, so what looks impossible is usually a record that has not come yet: it is counted, never raised.

Which reading of a half-known fact is safe? A lock that B says it holds, while the record in which A releases
it has not come, is kept with both holders, and a waiter needs both to go on. This can make a false
*candidate*, never a false *verdict*: the waiter is stuck only through those holders that are stuck
themselves, these belong to the set that is asked twice, and the graph must have read their records up to
their answers, hence also the release. The other reading (any one holder suffices) was rejected: it hides a
true deadlock until an unrelated process has been read.

The order of a fair queue is known only to its owner. Between processes it cannot be told from the times of
the waits, so a wait that came by `absorb` has no place in a queue: it waits for holders alone. That can miss,
and never accuse.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from unknot.graph import events as ev
from unknot.graph.check import check
from unknot.graph.errors import TraceError
from unknot.graph.ids import Identity, may_name, parse
from unknot.graph.indices import Index, enlist, unlist
from unknot.graph.participants import CurrentWait, Participant, SourceState, new_participant
from unknot.graph.resources import HELD, ResourceState, differs, first_count
from unknot.graph.unfit import unfit
from unknot.graph.wiring import Wiring

STORE = "store"
PENDING_LIMIT = 256


class Absorbed(enum.Enum):
    """What became of a record: applied, known already, kept back behind a missing one, or fenced."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    GAP = "gap"
    STALE = "stale"


class LiveGraph:
    """Facts of one run. Reading attributes is free; change them only through `apply` and `absorb`."""

    def __init__(self) -> None:
        self.participants: dict[str, Participant] = {}
        self.resources: dict[str, ResourceState] = {}
        self.members: Index = {}
        self.by_source: Index = {}
        self.sources: dict[str, SourceState] = {}
        self.heard: dict[str, int] = {}
        self.drivers: dict[str, None] = {}
        self.fences: dict[str, int] = {}
        self.counters: Counter[str] = Counter()
        self.wiring = Wiring(self)
        self._limbo: dict[str, Participant] = {}
        self._tolerant = False
        self._source = ""

    # --- ways in ---

    def apply(self, event: ev.Event) -> None:
        """Take one event in true order; TraceError if it cannot be, and then nothing has changed."""
        self._tolerant, self._source = False, ""
        _HANDLERS[event.__class__](self, event)

    def absorb(self, record: ev.Record) -> Absorbed:
        """Take one record as it arrives; never raises for what another process's record may explain.

        Records of source `store` with number 0 are not numbered and always applied.
        """
        own = parse(record.src)
        if own.incarnation < self.fences.get(own.member, 0):
            self.counters["stale_records"] += 1
            return Absorbed.STALE
        if record.src == STORE and record.n == 0:
            self._events(record)
            return Absorbed.APPLIED
        source = self._source_state(record.src)
        if record.n <= source.absorbed:
            self.counters["duplicate_records"] += 1
            return Absorbed.DUPLICATE
        if not record.full and (source.lost or record.n > source.absorbed + 1):
            return self._keep_back(source, record)
        self._absorb_now(source, record)
        return Absorbed.APPLIED

    def lose(self, source: str) -> None:
        """Records of `source` are known to be lost: it is unknown until its next full record."""
        state = self._source_state(source)
        self._know(source, state, unknown=True)
        state.lost = True
        state.pending.clear()

    # --- reading ---

    def absorbed(self, source: str) -> int:
        """The number of the last record of `source` that was absorbed, 0 for none."""
        state = self.sources.get(source)
        return state.absorbed if state is not None else 0

    def is_unknown(self, source: str) -> bool:
        """Whether a record of `source` is missing."""
        state = self.sources.get(source)
        return state is not None and state.unknown

    def ticket(self, participant: str) -> int | None:
        """The ticket of its current wait, None if it runs, has ended or is not known."""
        known = self.participants.get(participant)
        return known.wait.ticket if known is not None and known.wait is not None else None

    def stuck(self) -> set[str]:
        """Everybody who waits and can never go on, kept from event to event: costs what has changed since the last call."""
        return {node.pid for node in self.wiring.settle().out if node.pid is not None}

    def waiting(self) -> list[Participant]:
        """Everybody who waits."""
        return [one for one in self.participants.values() if one.wait is not None]

    def validate(self) -> None:
        """Raise AssertionError unless every index agrees with the facts."""
        check(self)

    # --- records ---

    def _source_state(self, src: str) -> SourceState:
        state = self.sources.get(src)
        if state is None:
            state = self.sources[src] = SourceState()
            own = parse(src)
            self.heard[own.member] = max(own.incarnation, self.heard.get(own.member, -1))
            self.wiring.member(own.member)
        return state

    def _know(self, src: str, state: SourceState, *, unknown: bool) -> None:
        if state.unknown != unknown:
            state.unknown = unknown
            for pid in self.by_source.get(src, ()):
                self.wiring.wait(self.participants[pid])

    def _keep_back(self, source: SourceState, record: ev.Record) -> Absorbed:
        self.counters["gaps"] += not source.unknown
        self._know(record.src, source, unknown=True)
        if len(source.pending) < PENDING_LIMIT and not source.lost:
            source.pending[record.n] = record
        return Absorbed.GAP

    def _absorb_now(self, source: SourceState, record: ev.Record) -> None:
        if record.full:
            if source.lost or record.n > source.absorbed + 1:
                self._doubt(record.src)
            self._void(record.src)
            source.lost = False
        self._events(record)
        source.absorbed = record.n
        source.pending = {n: kept for n, kept in source.pending.items() if n > record.n}
        while (following := source.pending.pop(source.absorbed + 1, None)) is not None:
            if following.full:
                self._void(record.src)
            self._events(following)
            source.absorbed += 1
        self._know(record.src, source, unknown=bool(source.pending))

    def _events(self, record: ev.Record) -> None:
        self._tolerant, self._source = True, record.src
        for event in record.events:
            _HANDLERS[event.__class__](self, event)
        if self._limbo:
            limbo, self._limbo = self._limbo, {}
            for one in limbo.values():
                self.wiring.gone(one)

    def _void(self, source: str) -> None:
        for pid in list(self.by_source.get(source, ())):
            one = self.participants[pid]
            self._drop(one)
            if one.how is None:
                self._remove(one)
                self._limbo[pid] = one

    def _doubt(self, source: str) -> None:
        """Records of `source` were lost: what it sent, set or counted is in no full record, so it may have helped."""
        for state in self.resources.values():
            own = state.declared
            if own is None or state.store_counted or own.type in HELD or own.type == "collective":
                continue
            listed = (*(own.setters or ()), *(own.senders or ()), *(own.receivers or ()), *(own.closers or ()))
            if any(may_name(name, source) for name in listed):
                state.doubtful = True
                self.wiring.resource(state)

    def _drop(self, one: Participant) -> None:
        self._end_wait(one)
        for r in {*one.holds, *one.issued}:
            self.resources[r].forget(one.id)
            self.wiring.holders(self.resources[r], one)
        one.holds.clear()
        one.issued = frozenset()

    def _remove(self, one: Participant) -> None:
        del self.participants[one.id]
        unlist(self.members, one.member, one.id)
        unlist(self.by_source, one.source, one.id)
        self.drivers.pop(one.id, None)

    # --- events ---

    def _refuse(self, what: str, expected: str) -> None:
        if not self._tolerant:
            raise TraceError(what=what, expected=expected)
        self.counters["tolerated"] += 1

    def _who(self, event: Any) -> Participant | None:
        """The participant of an event, begun now if it is new; None after a refusal."""
        if not event.p:
            self._refuse(f"{event.__struct_config__.tag} without a participant", "the key p")
            return None
        known = self.participants.get(event.p)
        return known if known is not None else self._begin(event.p, event.t, parse(event.p))

    def _begin(self, pid: str, at: float, identity: Identity) -> Participant | None:
        if identity.incarnation < self.fences.get(identity.member, 0):
            self._refuse(
                f"{pid} acts after its fence", f"incarnation {self.fences[identity.member]} or newer"
            )
            return None
        one = new_participant(pid, at, identity)
        self.participants[pid] = one
        alone = (pid,)
        enlist(self.members, one.member, alone)
        enlist(self.by_source, one.source, alone)
        if one.role == "driver" and not one.is_queue:
            self.drivers[pid] = None
        before = self._limbo.pop(pid, None)
        if before is not None:
            one.node = before.node
            self.wiring.wait(one)
        if before is None or (before.role, before.incarnation) != (one.role, one.incarnation):
            self.wiring.person(one)
        return one

    def _alive(self, event: Any) -> Participant | None:
        known = self.participants.get(event.p)
        if known is None:
            return self._who(event)
        return None if known.how is not None and self._gone(event) else known

    def _gone(self, event: Any) -> bool:
        known = self.participants.get(event.p)
        if known is not None and known.how is not None:
            self._refuse(f"{event.p} acts after its end", "no more events of it but release")
            return True
        return False

    def _at(self, event: Any) -> ResourceState | None:
        state = self.resources.get(event.r)
        if state is None or state.declared is None:
            self._refuse(
                f"unknown resource {event.r}", "a resource event that declares it before its first use"
            )
            state = self.resources.setdefault(event.r, ResourceState(event.r))
        return state

    def _typed(self, event: Any, types: Iterable[str]) -> ResourceState | None:
        state = self.resources.get(event.r)
        if state is None or state.declared is None:
            return self._at(event)
        if state.declared.type not in types:
            self._refuse(
                f"{event.__struct_config__.tag} on {event.r}, a {state.type}", f"one of {sorted(types)}"
            )
            return None
        return state

    def _resource(self, event: ev.Resource) -> None:
        state = self.resources.setdefault(event.r, ResourceState(event.r))
        known = state.declared
        if known is None:
            state.count += first_count(event)
            state.is_set = state.is_set or (event.type == "event" and bool(event.initial))
        elif known.type != event.type:
            self._refuse(f"{event.r} declared again as {event.type}", f"its type {known.type}")
            return
        elif event.count is not None and self._may_count(known, event):
            state.count = event.count
        state.declared = event
        if event.returners is not None:
            state.returners = event.returners
        if known is None or differs(known, event):
            self.wiring.waits_for(state)
        self.wiring.resource(state)
        if self._source == STORE and event.count is not None:
            state.count, state.store_counted, state.doubtful = event.count, True, False

    def _may_count(self, known: ev.Resource, event: ev.Resource) -> bool:
        return not self._tolerant and event.count != known.count

    def _start(self, event: ev.Start) -> None:
        if not event.p:
            return self._refuse("start without a participant", "the key p")
        if self._gone(event):
            return None
        own = parse(event.p)
        member = event.member or own.member
        number = event.incarnation if event.incarnation is not None else own.incarnation
        told = event.member is not None or event.incarnation is not None
        source = f"{member}#{number}" if told and "#" in event.p else own.source
        identity = Identity(member, event.role or own.role or parse(member).role, number, source, own.thread)
        known = self.participants.get(event.p)
        if known is None:
            self._begin(event.p, event.t, identity)
        return None

    def _end(self, event: ev.End) -> None:
        if (one := self._alive(event)) is not None:
            self._end_wait(one)
            one.how, one.ended_at = event.how, event.t
            self.wiring.person(one)

    def _hold(self, event: ev.Hold) -> None:
        if event.units <= 0:
            return self._refuse(f"hold of {event.units} units", "a positive number")
        state = self._typed(event, HELD)
        one = self._who(event)
        if state is None or one is None:
            return None
        state.take(one.id, event.t, event.site)
        modes = state.holders.setdefault(one.id, {})
        modes[event.mode] = modes.get(event.mode, 0) + event.units
        one.holds[event.r] = one.holds.get(event.r, 0) + event.units
        if state.gates or state.waiters:
            self.wiring.holders(state, one)
        return None

    def _release(self, event: ev.Release) -> None:
        state = self._at(event)
        one = self.participants.get(event.p)
        if state is None or one is None or event.units <= 0 or one.holds.get(event.r, 0) < event.units:
            has = one.holds.get(event.r, 0) if one is not None else 0
            return self._refuse(
                f"{event.p} releases {event.units} of {event.r}", f"at most the {has} it holds"
            )
        if one.holds[event.r] == event.units:
            del one.holds[event.r], state.holders[one.id]
        else:
            _take_units(state.holders[one.id], event.units)
            one.holds[event.r] -= event.units
        if state.gates or state.waiters:
            self.wiring.holders(state, one)
        return None

    def _wait(self, event: ev.Wait) -> None:
        one = self.participants.get(event.p)
        problem = unfit(event, one, self.resources, tolerant=self._tolerant)
        if problem is not None:
            return self._refuse(*problem)
        if one is None or one.how is not None:
            one = self._alive(event)
            if one is None:
                return None
        if one.wait is not None:
            self.counters["replaced_waits"] += one.wait.ticket != event.ticket
            self._end_wait(one)
        one.wait = CurrentWait(
            event.ticket, event.needs, event.t, event.site, event.deadline, event.limit, event.label,
            event.interruptible, event.bypass, not self._tolerant,
        )  # fmt: skip
        if len(event.needs) == 1 and len(event.needs[0].of) == 1 and event.needs[0].k == 1:
            one.wait.simple = True
            self._share_needs(one.wait)
        for r in one.wait.resources():
            state = self.resources.get(r)
            if state is None:
                state = self.resources[r] = ResourceState(r)
            self._join(one, one.wait, state)
        self.wiring.wait(one)
        return None

    def waits_only_for(self, participant: str, r: str) -> bool:
        """Whether it waits for nothing but mailbox `r`, so that it can put nothing back there before it was served itself."""
        wait = self.participants[participant].wait
        return wait is not None and wait.deadline is None and wait.simple and wait.needs[0].of[0].r == r

    def _share_needs(self, wait: CurrentWait) -> None:
        """Take the needs of the last waiter where they are equal, so that a long queue for one thing keeps them once."""
        state = self.resources.get(wait.needs[0].of[0].r or "")
        if state is not None and state.waiters:
            last = self.participants[next(reversed(state.waiters))].wait
            if last is not None and last.needs == wait.needs:
                wait.needs = last.needs

    def _join(self, one: Participant, wait: CurrentWait, state: ResourceState) -> None:
        state.waiters[one.id] = None
        if self._tolerant and wait.t <= state.signalled_until:
            wait.passed |= {state.id}
        kind = state.type
        if wait.placed and kind in HELD:
            place = self._place(one, state)
            state.queue.insert(place, one.id)
            if place < len(state.queue) - 1 or (state.declared is not None and state.declared.policy == "writer-pref"):
                self.wiring.queue(state, place + 1)
        elif kind == "mailbox":
            self.wiring.resource(state)

    def _place(self, one: Participant, state: ResourceState) -> int:
        """Where a request goes in the queue: a holder's goes ahead of the first waiter that it blocks."""
        own = state.holders.get(one.id)
        assert one.wait is not None
        if own and one.wait.bypass and state.declared is not None and state.declared.policy == "fifo":
            for place, ahead in enumerate(state.queue):
                if any(
                    state.excludes(asked, held) for asked in self.asked_modes(ahead, state.id) for held in own
                ):
                    return place
        return len(state.queue)

    def asked_modes(self, participant: str, r: str) -> tuple[str, ...]:
        """The modes in which a waiting participant asks for resource `r`."""
        wait = self.participants[participant].wait
        if wait is None:
            return ()
        return tuple(atom.mode for clause in wait.needs for atom in clause.of if atom.r == r)

    def meets(self, participant: str, r: str, op: str) -> bool:
        """Whether it waits to do the opposite of `op` at mailbox `r`."""
        wait = self.participants[participant].wait
        return wait is not None and any(a.r == r and a.op not in (None, op) for c in wait.needs for a in c.of)

    def _end_wait(self, one: Participant) -> None:
        if one.wait is None:
            return
        for r in one.wait.resources():
            state = self.resources[r]
            state.waiters.pop(one.id, None)
            if state.queue and one.wait.placed and one.id in state.queue:
                place = state.queue.index(one.id)
                del state.queue[place]
                self.wiring.queue(state, place)
            elif state.type == "mailbox":
                self.wiring.resource(state)
        one.wait = None
        self.wiring.wait(one)

    def _wake(self, event: ev.Wake) -> None:
        one = self.participants.get(event.p)
        if one is None or one.wait is None or one.wait.ticket != event.ticket:
            return self._refuse(
                f"{event.p} wakes from ticket {event.ticket}", f"its ticket {self.ticket(event.p)}"
            )
        self._end_wait(one)
        return None

    # --- things that are counted, set, signalled, issued ---

    def _send(self, event: ev.Send) -> None:
        self._move(event, event.n)

    def _recv(self, event: ev.Recv) -> None:
        self._move(event, -event.n)

    def _move(self, event: ev.Send | ev.Recv, change: int) -> None:
        if event.n <= 0:
            return self._refuse(f"{event.n} messages", "a positive number")
        state = self._typed(event, ("mailbox",))
        if state is None:
            return None
        if state.store_counted and self._source != STORE:
            self.counters["counted_by_store"] += 1
            return None
        if state.count + change < 0:
            self._refuse(f"{event.n} messages taken from {event.r}", f"at most the {state.count} in it")
        if event.p and self._who(event) is None:
            return None
        state.count += change
        self.wiring.resource(state)
        return None

    def _close(self, event: ev.Close) -> None:
        if (state := self._typed(event, ("mailbox",))) is not None:
            state.closed = True
            self.wiring.resource(state)

    def _set(self, event: ev.Set) -> None:
        if (state := self._typed(event, ("event", "condition", "external"))) is not None:
            state.is_set = state.type != "condition"
            self.wiring.resource(state)
            self._pass(state, len(state.waiters), event.t)

    def _clear(self, event: ev.Clear) -> None:
        state = self._typed(event, ("event", "external"))
        if state is not None and not (self._tolerant and event.t < state.signalled_until):
            state.is_set = False
            self.wiring.resource(state)

    def _signal(self, event: ev.Signal) -> None:
        if isinstance(event.n, int) and event.n <= 0:
            return self._refuse(f"signal of {event.n}", "a positive number or all")
        state = self._typed(event, ("condition",))
        if state is not None:
            every = event.n == "all" or self._tolerant
            self._pass(state, len(state.waiters) if every else int(event.n), event.t)
        return None

    def _pass(self, state: ResourceState, n: int, at: float) -> None:
        """Let the `n` longest waiting go, for good: what the resource does later does not call them back."""
        state.signalled_until = max(state.signalled_until, at)
        for pid in state.waiters:
            one = self.participants[pid]
            if n > 0 and one.wait is not None and state.id not in one.wait.passed:
                one.wait.passed |= {state.id}
                self.wiring.wait(one)
                n -= 1

    def _add(self, event: ev.Add) -> None:
        state = self._typed(event, ("latch",))
        if state is None:
            return
        if state.count + event.n < 0:
            self._refuse(f"{event.r} counts {state.count + event.n}", "zero or more")
        state.count += event.n
        self.wiring.resource(state)
        if state.count == 0:
            self._pass(state, len(state.waiters), event.t)

    def _arrive(self, event: ev.Arrive) -> None:
        if event.seq < 0:
            return self._refuse(f"operation number {event.seq}", "zero or more")
        state = self._typed(event, ("collective",))
        one = self._who(event)
        if state is None or one is None:
            return None
        if state.id not in one.issued:
            one.issued |= {state.id}
            state.by_threads = state.by_threads or one.source != one.id
        state.arrive(one.id, event.seq, state.signature(event), event.site)
        self.wiring.arrived(state, one, event.seq)
        return None

    def _progress(self, event: ev.Progress) -> None:
        if (one := self._who(event)) is not None:
            one.last_progress = event.t

    def _fence(self, event: ev.Fence) -> None:
        self.fences[event.member] = max(event.incarnation, self.fences.get(event.member, 0))
        self.wiring.member(event.member)
        for pid in list(self.members.get(event.member, ())):
            one = self.participants[pid]
            if one.incarnation < event.incarnation and one.how != "fence":
                self._end_wait(one)
                for r in one.holds:
                    self.resources[r].holders.pop(pid, None)
                    self.wiring.holders(self.resources[r], one)
                one.holds.clear()
                one.how, one.ended_at = "fence", event.t
                self.wiring.person(one)

    def _beat(self, event: ev.Beat) -> None:
        """An answer to a collection round says nothing new about the graph."""


def _take_units(modes: dict[str, int], units: int) -> None:
    for mode in list(modes):
        taken = min(units, modes[mode])
        modes[mode] -= taken
        units -= taken
        if not modes[mode]:
            del modes[mode]


_HANDLERS: dict[type, Callable[[LiveGraph, Any], None]] = {
    ev.Resource: LiveGraph._resource, ev.Start: LiveGraph._start, ev.End: LiveGraph._end,
    ev.Hold: LiveGraph._hold, ev.Release: LiveGraph._release, ev.Wait: LiveGraph._wait,
    ev.Wake: LiveGraph._wake, ev.Send: LiveGraph._send, ev.Recv: LiveGraph._recv,
    ev.Close: LiveGraph._close, ev.Set: LiveGraph._set, ev.Clear: LiveGraph._clear,
    ev.Signal: LiveGraph._signal, ev.Add: LiveGraph._add, ev.Arrive: LiveGraph._arrive,
    ev.Progress: LiveGraph._progress, ev.Fence: LiveGraph._fence, ev.Beat: LiveGraph._beat,
}  # fmt: skip
