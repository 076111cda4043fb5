"""The wait table of a process: a slot for each thread, read by the publisher.

Reading is done without any lock that a user's thread could wait for. A snapshot therefore collects twice: the waits
of all slots, then what the blocked threads hold, then the waits again. A thread that stands in the same wait (same
ticket) both times was blocked all the while, so what it held was exact in between; a thread that moved is reported
as running, which can hide a standstill for one tick and never invents one.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from unknot.graph.events import Clause, Event, Hold, Resource, Start, Wait
from unknot.supervisor.recorder.sites import calling_site
from unknot.supervisor.recorder.slots import Slot, WaitHandle, Waiting


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
        """Whether nobody waits."""
        return not any(ticket is not None for ticket in self.tickets.values())


class WaitTable:
    """Implements `unknot.recovery.ports.Recorder` for one member's process."""

    def __init__(self, *, member: str, incarnation: int, role: str, clock: Callable[[], float]) -> None:
        self.member = member
        self.incarnation = incarnation
        self.role = role
        self.source = f"{member}#{incarnation}"
        self.fenced: Exception | None = None
        self._clock = clock
        self._tickets = itertools.count(1)
        self._local = threading.local()
        self._slots: dict[int, Slot] = {}
        self._holders: dict[str, list[Slot]] = {}
        self._threads: weakref.WeakKeyDictionary[threading.Thread, Slot] = weakref.WeakKeyDictionary()
        self._sources: list[Source] = []

    def add_source(self, source: Source) -> None:
        """Let a source add to every snapshot."""
        self._sources.append(source)

    def slot(self) -> Slot:
        """The calling thread's slot, made on first use."""
        try:
            found: Slot = self._local.slot
        except AttributeError:
            found = self._new_slot(threading.current_thread())
            self._local.slot = found
        return found

    def slot_of(self, ident: int) -> Slot | None:
        """The slot of a thread by its identifier, made if the thread is alive."""
        found = self._slots.get(ident)
        if found is not None:
            return found
        thread = next((t for t in threading.enumerate() if t.ident == ident), None)
        return None if thread is None else self._new_slot(thread)

    def _new_slot(self, thread: threading.Thread) -> Slot:
        known = self._threads.get(thread)
        if known is not None:
            return known
        is_main = thread is threading.main_thread()
        name = self.source if is_main else f"{self.source}/{thread.name.replace('/', '.')}"
        if any(slot.participant == name for slot in list(self._slots.values())):
            name = f"{name}.{thread.native_id}"
        slot = Slot(name, thread.ident or 0, thread.native_id or 0)
        self._threads[thread] = slot
        self._slots[slot.ident] = slot
        return slot

    def participant(self) -> str:
        """The calling thread's participant id."""
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
        label: str | None = None,
        owner_of: Callable[[], int | None] | None = None,
    ) -> WaitHandle:
        """Announce a wait of the calling thread; entering the handle writes it, leaving clears it."""
        now = self._clock()
        waiting = Waiting(
            ticket=ticket, needs=tuple(needs), resources=tuple(resources), since=now, site=calling_site(),
            deadline=None if deadline_s is None else now + deadline_s,
            label=label, interruptible=interruptible, owner_of=owner_of,
        )  # fmt: skip
        return WaitHandle(self, self.slot(), waiting)

    def hold(self, resource: Resource, *, units: int = 1) -> None:
        """The calling thread now holds units of the resource."""
        slot = self.slot()
        before = slot.holds.get(resource.r)
        slot.holds[resource.r] = (resource, units + (before[1] if before else 0))
        if before is None:
            self._holders.setdefault(resource.r, []).append(slot)

    def release(self, resource_id: str, *, units: int = 1) -> None:
        """Units are given back, by the thread that holds them or by another one of this process."""
        slot = self._holder(resource_id)
        if slot is None:
            return
        resource, held = slot.holds[resource_id]
        if held > units:
            slot.holds[resource_id] = (resource, held - units)
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
        for slot in list(self._slots.values()):
            waiting = slot.wait
            if slot.participant == participant and waiting is not None and waiting.ticket == ticket:
                slot.interrupt = (ticket, error)
                return slot.wait is waiting
        return False

    def waits(self) -> dict[str, Waiting]:
        """What each blocked participant waits for now."""
        return {s.participant: w for s in list(self._slots.values()) if (w := s.wait) is not None}

    def slots(self) -> list[Slot]:
        """All slots of living threads; those of ended threads are dropped here."""
        alive = {thread.ident for thread in threading.enumerate()}
        for ident in [i for i in list(self._slots) if i not in alive]:
            slot = self._slots[ident]
            if not slot.holds:
                del self._slots[ident]
        return list(self._slots.values())

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
        return _assemble(self, slots, standing, [*holds, *owned], extra)

    def _owned(self, waits: dict[str, Waiting]) -> list[tuple[str, Resource, int]]:
        found: dict[tuple[str, str], tuple[str, Resource, int]] = {}
        for waiting in waits.values():
            ident = waiting.owner_of() if waiting.owner_of is not None else None
            slot = self.slot_of(ident) if ident is not None else None
            if slot is not None:
                for resource in waiting.resources:
                    found[slot.participant, resource.r] = (slot.participant, resource, 1)
        return list(found.values())


def _held(slots: list[Slot], waits: dict[str, Waiting]) -> list[tuple[str, Resource, int]]:
    wanted = {r.r for w in waits.values() for r in w.resources}
    return [
        (slot.participant, resource, units)
        for slot in slots
        for resource, units in list(slot.holds.values())
        if slot.participant in waits or resource.r in wanted or resource.r.startswith("lock:")
    ]


def _assemble(
    table: WaitTable,
    slots: list[Slot],
    standing: dict[str, Waiting],
    holds: list[tuple[str, Resource, int]],
    extra: list[Event],
) -> Snapshot:
    names = sorted({*(s.participant for s in slots), *(p for p, _, _ in holds)})
    events: list[Event] = [
        Start(p=name, member=table.member, role=table.role, incarnation=table.incarnation) for name in names
    ]
    declared = {r.r: r for w in standing.values() for r in w.resources} | {r.r: r for _, r, _ in holds}
    events += [declared[r] for r in sorted(declared)]
    events += [Hold(p=p, r=r.r, units=units) for p, r, units in holds]
    events += [
        Wait(
            p=p, t=w.since, ticket=w.ticket, needs=w.needs, deadline=w.deadline, site=w.site, label=w.label,
            interruptible=w.interruptible,
        )
        for p, w in sorted(standing.items())
    ]  # fmt: skip
    events += extra
    tickets: dict[str, int | None] = dict.fromkeys(names)
    tickets |= {e.p: e.ticket for e in events if isinstance(e, Wait)}
    return Snapshot(events=tuple(events), tickets=tickets)
