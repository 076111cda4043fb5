"""What the store knows better than any process: items in mailboxes, holders of locks, and whether a wait still stands.

A process tells what its threads stand in. For what lives in the store that is half of the truth: a receiver may have
been given its item, or a waiter its lock, while its thread has not woken yet (the hint was lost with a connection, or
the thread gets no time). By its own process it still waits. A process that waits for nothing does not tell what it
holds either; and an item that somebody has received and not acknowledged may be put back. So the monitor asks the
store, at one instant, about everything that somebody waits for there, before it reads on. So its word is newer than
any record that is read then, and goes: also after the records were read. It can only free a waiter, or name the
holder that it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from unknot.graph.events import Event, Hold, Record, Release, Wait, Wake
from unknot.graph.ids import parse
from unknot.graph.live import LiveGraph
from unknot.graph.participants import Participant

Standing = tuple[str, int]


class Questions(msgspec.Struct, frozen=True, kw_only=True):
    """Mailboxes to count, locks whose holder is asked, waits (participant, ticket) that may stand. By bare name."""

    counts: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    stands: tuple[Standing, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.counts or self.holders or self.stands)


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """The store's word on each; the holder of a free lock is ''. returners: members that have items of a mailbox in their hands."""

    counts: dict[str, int] = {}
    returners: dict[str, tuple[str, ...]] = {}
    holders: dict[str, str] = {}
    stands: dict[Standing, bool] = {}


class StoreTruth:
    """Turns questions and answers into events of the source `store`; remembers which waits are over in the store."""

    def __init__(self) -> None:
        self._over: set[Standing] = set()
        self._holders: dict[str, str] = {}

    def questions(self, graph: LiveGraph) -> Questions:
        """What to ask about the waits of `graph`."""
        counts: set[str] = set()
        holders: set[str] = set()
        stands = set(self._over)
        for one in graph.waiting():
            things = _in_store(graph, one)
            if things and one.wait is not None:
                stands.add((one.id, one.wait.ticket))
                counts |= {name for kind, name in things if kind == "mbox"}
                holders |= {name for kind, name in things if kind == "lock"}
        return Questions(counts=tuple(sorted(counts)), holders=tuple(sorted(holders)), stands=tuple(sorted(stands)))

    def events(self, graph: LiveGraph, answers: Answers) -> list[Event]:
        """What follows for `graph`."""
        found: list[Event] = []
        for name, count in answers.counts.items():
            state = graph.resources.get(f"mbox:{name}")
            if state is not None and state.declared is not None:
                back = answers.returners.get(name, ())
                found.append(msgspec.structs.replace(state.declared, count=count, returners=back))
        self._holders = {f"lock:{name}": holder for name, holder in answers.holders.items()}
        for resource, holder in self._holders.items():
            found += _lock_events(graph, resource, holder)
        over = [wait for wait, stands in answers.stands.items() if not stands]
        self._over.update(over)
        return found + _wakes(graph, over)

    def stand_again(self, answers: Answers) -> tuple[str, ...]:
        """Sources of waits that were over and stand now: a store that was restarted had lost them for a moment."""
        again = {wait for wait, stands in answers.stands.items() if stands} & self._over
        self._over -= again
        return tuple(sorted({parse(pid).source for pid, _ in again}))

    def after(self, graph: LiveGraph, record: Record) -> list[Event]:
        """What still holds after `record`, which is older than the store's last word: that goes, whatever it tells."""
        told = {(event.p, event.ticket) for event in record.events if isinstance(event, Wait)}
        self._over = {wait for wait in self._over if wait in told or parse(wait[0]).source != record.src}
        held = {event.r for event in record.events if isinstance(event, Hold)} & self._holders.keys()
        locks = [event for r in sorted(held) for event in _lock_events(graph, r, self._holders[r])]
        return [*locks, *_wakes(graph, [wait for wait in told if wait in self._over])]


def _in_store(graph: LiveGraph, one: Participant) -> tuple[tuple[str, str], ...]:
    """Kind and bare name of the things in the store that a participant waits for: one, or the mailboxes of a commit; else none."""
    resources = one.wait.resources() if one.wait is not None else ()
    found = tuple(_kind_and_name(graph, r) for r in resources)
    kinds = {kind for kind, _ in found}
    return found if kinds and "" not in kinds and (len(found) == 1 or kinds == {"mbox"}) else ()


def _kind_and_name(graph: LiveGraph, resource: str) -> tuple[str, str]:
    kind, _, name = resource.partition(":")
    if kind == "mbox" and graph.resources[resource].type == "mailbox":
        return kind, name
    # The locks of one process are called after a place in a file; no name in the store has a slash.
    if (kind == "lock" and "/" not in name) or (kind == "event" and name.startswith("weights:")):
        return kind, name
    return "", ""


def _lock_events(graph: LiveGraph, resource: str, holder: str) -> list[Event]:
    state = graph.resources.get(resource)
    if state is None or state.declared is None:
        return []
    events: list[Event] = [
        Release(p=pid, r=resource, units=sum(modes.values())) for pid, modes in state.holders.items() if pid != holder
    ]
    known = graph.participants.get(holder)
    # One that waits tells exactly what it holds; of one that was given the lock and has not woken, this is not yet true.
    if holder and holder not in state.holders and (known is None or known.wait is None):
        events.append(Hold(p=holder, r=resource))
    return events


def _wakes(graph: LiveGraph, waits: Iterable[Standing]) -> list[Event]:
    return [Wake(p=pid, ticket=ticket) for pid, ticket in sorted(waits) if graph.ticket(pid) == ticket]
