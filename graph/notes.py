"""What keeps everybody without being a standstill: slow, outside, starved, going round in circles. Never proof, always an age.

- slow: old waits that all lead to a participant that runs.
- external: old waits that all lead outside: a person, a service, a file.
- starved: old waits for units (a pool, a slot, a reservation) whose holders run and give nothing back.
- livelock: a member that had marked progress, then none for long, and acted all the while.

`lost`, an item that was sent, never acknowledged and is nowhere any more, is not told here: events count items, they do not
name them, so a missing one cannot be told from one that is being worked on. The store knows it by its unacknowledged items.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from unknot.graph import events as ev
from unknot.graph.explain import slow_sentence
from unknot.graph.ids import parse, shown
from unknot.graph.resources import UNITS
from unknot.graph.slow import slow_chains
from unknot.graph.wording import age, listed

if TYPE_CHECKING:
    from unknot.graph.finding import SlowChain
    from unknot.graph.live import LiveGraph


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """From which age (seconds) something is told; `acts`: how much activity without progress is much."""

    slow_s: float = 120.0
    external_s: float = 30.0
    livelock_s: float = 600.0
    acts: int = 100


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One of them. `culprits`: who keeps the others, empty for the outside; `waiters`: who waits, however indirectly."""

    cause: Literal["slow", "external", "starved", "livelock"]
    culprits: tuple[str, ...]
    waiters: tuple[str, ...]
    age_s: float
    text: str


_ACTS = (ev.Wake, ev.Hold, ev.Release, ev.Send, ev.Recv, ev.Signal, ev.Set, ev.Add, ev.Arrive)


@dataclass(slots=True)
class _Member:
    progress_at: float | None = None
    acts: int = 0
    acted_at: float = 0.0


@dataclass(slots=True)
class Activity:
    """How much each process has done since it last marked progress. Feed it every event."""

    _members: dict[str, _Member] = field(default_factory=dict)

    def observe(self, event: ev.Event) -> None:
        """Take one event."""
        if isinstance(event, ev.Progress):
            known = self._members.setdefault(parse(event.p).source, _Member())
            known.progress_at, known.acts = event.t, 0
        elif isinstance(event, _ACTS) and event.p:
            acting = self._members.get(parse(event.p).source)
            if acting is not None:
                acting.acts, acting.acted_at = acting.acts + 1, event.t
        elif isinstance(event, ev.End):
            self._members.pop(event.p, None)

    def circling(self, now: float, patience: Patience) -> list[Note]:
        """Processes that act and get nowhere."""
        found = []
        for source, one in self._members.items():
            without_s = now - one.progress_at if one.progress_at is not None else 0.0
            recent = now - one.acted_at < patience.livelock_s / 2
            if without_s >= patience.livelock_s and one.acts >= patience.acts and recent:
                told = f"{source} has acted {one.acts} times in the {age(without_s)} since its last mark of progress"
                told += ": it may go round in circles."
                found.append(Note(cause="livelock", culprits=(source,), waiters=(), age_s=without_s, text=told))
        return found


def notes(graph: LiveGraph, activity: Activity, now: float, patience: Patience | None = None) -> tuple[Note, ...]:
    """What is to be told of `graph` at `now` seconds, the oldest first."""
    limits = patience if patience is not None else Patience()
    chains = slow_chains(graph, now, min(limits.slow_s, limits.external_s))
    found = [note for chain in chains if (note := _of_chain(graph, chain, limits)) is not None]
    return tuple(sorted([*found, *activity.circling(now, limits)], key=lambda note: -note.age_s))


def _of_chain(graph: LiveGraph, chain: SlowChain, limits: Patience) -> Note | None:
    if chain.kind == "external":
        if chain.oldest_age_s < limits.external_s:
            return None
        return Note(cause="external", culprits=(), waiters=chain.waiters, age_s=chain.oldest_age_s, text=slow_sentence(chain))
    if chain.oldest_age_s < limits.slow_s:
        return None
    state = graph.resources.get(chain.resource)
    if state is not None and state.type in UNITS:
        verb = "wait" if len(chain.waiters) > 1 else "waits"
        told = (
            f"{listed(chain.waiters)} {verb} {age(chain.oldest_age_s)} for {shown(chain.resource)}, held by {listed(chain.roots)}, "
            "which run and have given nothing back: starved, not stuck."
        )
        return Note(cause="starved", culprits=chain.roots, waiters=chain.waiters, age_s=chain.oldest_age_s, text=told)
    return Note(cause="slow", culprits=chain.roots, waiters=chain.waiters, age_s=chain.oldest_age_s, text=slow_sentence(chain))
