"""The wait table of a process: a slot for each thread, read by the publisher.

Reading is done without any lock that a user's thread could wait for. A snapshot therefore collects twice: the waits
of all slots, then what the blocked threads hold, then the waits again. A thread that stands in the same wait (same
ticket) both times was blocked all the while, so what it held was exact in between; a thread that moved is reported
as running, which can hide a standstill for one tick and never invents one.

Names. A participant is named after its thread, and a name is free again once its thread has ended, so that the
loader of each epoch is `agent/b#1/loader`. Two live threads never share one. The publisher and the thread itself may
make a slot at the same moment; both then claim the same name for the same thread by `setdefault`, which is atomic, and
one slot wins. A name whose thread ended while holding something is told as ended, and is never used again.

A forked child inherits the table, but nobody reads it there, and its tickets and names are those of the parent. So
the child's copy is abandoned: waits are not announced, and whoever asks who he is is told that he is no member.
"""

from __future__ import annotations

import itertools
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from unknot.graph.events import Clause, End, Event, Hold, Resource, Start, Wait
from unknot.graph.hazards import Taken
from unknot.recovery.errors import NotAMember
from unknot.supervisor.recorder.lock_orders import LockOrders
from unknot.supervisor.recorder.sites import calling_site
from unknot.supervisor.recorder.slots import Held, Life, Slot, WaitHandle, Waiting

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


class Source(Protocol):
    """Adds what a snapshot must say beyond the slots, such as collectives."""

    def collect(self, standing: dict[str, Waiting]) -> Sequence[Event]:
        """Events for this look; called between the two collections of the waits."""


class Snapshot(msgspec.Struct, frozen=True):
    """All that is published of a process at one look: events that rebuild it, and the ticket of each wait."""

    events: tuple[Event, ...]
    tickets: dict[str, int | None]

    @property
    def is_quiet(self) -> bool:
        """Whether nobody waits, and no thread has ended with something in its hands."""
        waits = any(ticket is not None for ticket in self.tickets.values())
        return not waits and not any(isinstance(event, End) for event in self.events)


class WaitTable:
    """Implements `unknot.recovery.ports.Recorder` for one member's process."""

    def __init__(self, *, member: str, incarnation: int, role: str, clock: Callable[[], float]) -> None:
        self.member = member
        self.incarnation = incarnation
        self.role = role
        self.source = f"{member}#{incarnation}"
        self.fenced: Exception | None = None
        self.abandoned = False
        self._clock = clock
        self._tickets = itertools.count(1)
        self._local = threading.local()
        self._slots: dict[str, Slot] = {}
        self._names: dict[str, weakref.ref[Any]] = {}
        self._holders: dict[str, list[Slot]] = {}
        self._of_thread: weakref.WeakKeyDictionary[threading.Thread, Slot] = weakref.WeakKeyDictionary()
        self._sources: list[Source] = []
        self.orders = LockOrders()

    def add_source(self, source: Source) -> None:
        """Let a source add to every snapshot."""
        self._sources.append(source)

    def abandon(self) -> None:
        """This is a forked child's copy: record nothing any more."""
        self.abandoned = True

    # --- slots ---

    def slot(self) -> Slot:
        """The calling thread's slot, made on first use."""
        try:
            found: Slot = self._local.slot
        except AttributeError:
            found = self._local.slot = self._own_slot(threading.get_ident())
        return found

    def _own_slot(self, ident: int) -> Slot:
        thread = _thread_of(ident)
        if thread is None:
            return self._foreign_slot(ident)
        slot = self._slot_for(thread)
        self._local.life = Life()
        slot.life = weakref.ref(self._local.life)
        return slot

    def slot_of(self, ident: int) -> Slot | None:
        """The slot of a live thread by its identifier, made if need be; None for one that is not Python's and was never here."""
        known = next((s for s in list(self._slots.values()) if s.ident == ident and s.alive), None)
        if known is not None:
            return known
        thread = _thread_of(ident)
        return None if thread is None else self._slot_for(thread)

    def _foreign_slot(self, ident: int) -> Slot:
        """Of a thread that Python did not start."""
        life = self._local.life = Life()
        slot = Slot(self._claim_name(f"{self.source}/thread-{threading.get_native_id()}", life), ident, None)
        slot.life = weakref.ref(life)
        self._slots[slot.participant] = slot
        return slot

    def _slot_for(self, thread: threading.Thread) -> Slot:
        known = self._of_thread.get(thread)
        if known is not None:
            return known
        slot = Slot(self._claim_name(self._name_of(thread), thread), thread.ident or 0, thread)
        made = self._of_thread.setdefault(thread, slot)
        self._slots[made.participant] = made
        return made

    def _name_of(self, thread: threading.Thread) -> str:
        if thread is threading.main_thread():
            return self.source
        return f"{self.source}/{_NOT_IN_NAMES.sub('-', thread.name).strip('-') or 'thread'}"

    def _claim_name(self, name: str, owner: object) -> str:
        mine = weakref.ref(owner)
        candidates = itertools.chain([name], (f"{name}~{n}" for n in itertools.count(2)))
        return next(one for one in candidates if self._names.setdefault(one, mine) == mine)

    def slots(self) -> list[Slot]:
        """All slots of living threads, and of those that ended while holding something; the others are dropped here."""
        kept = []
        for slot in list(self._slots.values()):
            if slot.alive:
                kept.append(slot)
            elif slot.holds:
                self._note_end(slot)
                kept.append(slot)
            else:
                self._drop(slot)
        return kept

    def _note_end(self, slot: Slot) -> None:
        # A lock must be released by the thread that acquired it; units of other things anybody may give back.
        if slot.ended_at is None and any(held.resource.type == "lock" for held in slot.holds.values()):
            slot.ended_at = self._clock()

    def _drop(self, slot: Slot) -> None:
        del self._slots[slot.participant]
        if slot.ended_at is None:
            del self._names[slot.participant]

    # --- what threads note ---

    def participant(self) -> str:
        """The calling thread's participant id. NotAMember in a forked child."""
        if self.abandoned:
            raise NotAMember(call="a primitive of the run, used in a forked child,")
        return self.slot().participant

    def next_ticket(self) -> int:
        """A number that is never reused in this process."""
        return next(self._tickets)

    def wait(
        self,
        ticket: int,
        needs: Sequence[Clause],
        resources: Sequence[Resource] = (),
        *,
        interruptible: bool = True,
        deadline_s: float | None = None,
        limit_s: float | None = None,
        label: str | None = None,
        owner_of: Callable[[], int | None] | None = None,
        waited_s: float = 0.0,
    ) -> WaitHandle:
        """Announce a wait of the calling thread; entering the handle writes it, leaving clears it.

        `deadline_s`, `limit_s`: seconds until the waiter goes on by itself, or is ended. `owner_of` tells the thread that holds an
        in-process lock, by identifier; `waited_s`: seconds already waited.
        """
        now = self._clock()
        waiting = Waiting(
            ticket=ticket, needs=tuple(needs), resources=tuple(resources), since=now - waited_s, site=calling_site(),
            deadline=None if deadline_s is None else now + deadline_s, limit=None if limit_s is None else now + limit_s,
            label=label, interruptible=interruptible, owner_of=owner_of,
        )  # fmt: skip
        return WaitHandle(self, None if self.abandoned else self.slot(), waiting)

    def known_idents(self) -> set[int]:
        """The threads that have a slot."""
        return {slot.ident for slot in list(self._slots.values()) if slot.alive}

    def again(self, waiting: Waiting) -> Waiting:
        """The same wait under a new ticket, for a thread that ran in between."""
        return msgspec.structs.replace(waiting, ticket=self.next_ticket())

    def hold(self, resource: Resource, *, units: int = 1, would_wait: bool = True) -> None:
        """The calling thread now holds units of the resource."""
        slot = self.slot()
        before = slot.holds.get(resource.r)
        if before is not None:
            slot.holds[resource.r] = before._replace(units=units + before.units)
            return
        held = Held(resource, units, self._clock(), calling_site())
        if slot.holds and would_wait and resource.type == "lock":
            locks = [_taken(one) for one in slot.holds.values() if one.resource.type == "lock"]
            self.orders.note(slot.participant, locks, _taken(held))
        slot.holds[resource.r] = held
        self._holders.setdefault(resource.r, []).append(slot)

    def release(self, resource_id: str, *, units: int = 1) -> None:
        """Units are given back, by the thread that holds them or by another one of this process."""
        slot = self._holder(resource_id)
        if slot is None:
            return
        held = slot.holds[resource_id]
        if held.units > units:
            slot.holds[resource_id] = held._replace(units=held.units - units)
            return
        del slot.holds[resource_id]
        self._holders[resource_id].remove(slot)

    def _holder(self, resource_id: str) -> Slot | None:
        own = self.slot()
        if resource_id in own.holds:
            return own
        others = self._holders.get(resource_id)
        return others[-1] if others else None

    def interrupt(self, participant: str, ticket: int, error: Exception) -> bool:
        """Have exactly this wait raise `error`; False when it is over already."""
        slot = self._slots.get(participant)
        waiting = slot.wait if slot is not None else None
        if slot is None or waiting is None or waiting.ticket != ticket:
            return False
        slot.interrupt = (ticket, error)
        return slot.wait is waiting

    def waits(self) -> dict[str, Waiting]:
        """What each blocked participant waits for now."""
        return {s.participant: w for s in list(self._slots.values()) if (w := s.wait) is not None}

    # --- what the publisher reads ---

    def start_of(self, participant: str) -> Start:
        """That a participant of this process is there."""
        return Start(p=participant, member=self.member, role=self.role, incarnation=self.incarnation)

    def snapshot(self, *, publish_after_s: float) -> Snapshot:
        """One consistent look at the process; waits younger than `publish_after_s` count as running."""
        now = self._clock()
        slots = self.slots()
        first = {s.participant: w for s in slots if (w := s.wait) is not None and now - w.since >= publish_after_s}
        holds = _held(slots, first)
        owned = self._owned(first)
        extra = [event for source in self._sources for event in source.collect(first)]
        again = self.waits()
        standing = {p: w for p, w in first.items() if again.get(p) is w}
        return _assemble(self, slots, standing, holds=[*holds, *owned], extra=extra)

    def _owned(self, waits: dict[str, Waiting]) -> list[tuple[str, Held]]:
        found: dict[tuple[str, str], tuple[str, Held]] = {}
        for waiting in waits.values():
            ident = waiting.owner_of() if waiting.owner_of is not None else None
            slot = self.slot_of(ident) if ident is not None else None
            if slot is not None:
                for resource in waiting.resources:
                    found[slot.participant, resource.r] = (slot.participant, Held(resource, 1, 0.0, None))
        return list(found.values())


def _thread_of(ident: int) -> threading.Thread | None:
    """The thread of an identifier, None where only a stand-in is known: those stay when their threads have ended."""
    found = next((thread for thread in threading.enumerate() if thread.ident == ident), None)
    return None if isinstance(found, threading._DummyThread) else found


def _taken(held: Held) -> Taken:
    return Taken(held.resource.r, "x", held.site or "?")


def _held(slots: list[Slot], waits: dict[str, Waiting]) -> list[tuple[str, Held]]:
    wanted = {r.r for w in waits.values() for r in w.resources}
    return [
        (slot.participant, held)
        for slot in slots
        for r, held in list(slot.holds.items())
        if slot.participant in waits or r in wanted or r.startswith("lock:")
    ]


def _assemble(
    table: WaitTable,
    slots: list[Slot],
    standing: dict[str, Waiting],
    *,
    holds: list[tuple[str, Held]],
    extra: list[Event],
) -> Snapshot:
    names = sorted({*(s.participant for s in slots), *(p for p, _ in holds)})
    events: list[Event] = [
        table.start_of(name) for name in names
    ]
    declared = {r.r: r for w in standing.values() for r in w.resources} | {h.resource.r: h.resource for _, h in holds}
    events += [declared[r] for r in sorted(declared)]
    events += [Hold(p=p, t=h.since, r=h.resource.r, units=h.units, site=h.site) for p, h in holds]
    events += [End(p=s.participant, t=s.ended_at) for s in slots if s.ended_at is not None]
    events += [
        Wait(
            p=p, t=w.since, ticket=w.ticket, needs=w.needs, deadline=w.deadline, limit=w.limit, site=w.site, label=w.label,
            interruptible=w.interruptible,
        )
        for p, w in sorted(standing.items())
    ]  # fmt: skip
    events += extra
    tickets: dict[str, int | None] = dict.fromkeys(names)
    tickets |= {e.p: e.ticket for e in events if isinstance(e, Wait)}
    return Snapshot(events=tuple(events), tickets=tickets)
