"""Graphs and histories for the benchmarks of the detector, the same for every run (seeded)."""

from __future__ import annotations

import random
from collections import deque

from unknot.graph import events as ev
from unknot.graph.live import LiveGraph

RANKS = 8


def random_knots(people: int, atoms: int = 4, *, seed: int = 1) -> list[ev.Event]:
    """`people` participants, nine in ten of which wait for others, all or some of them: `atoms` for each participant."""
    chance = random.Random(seed)
    names = [f"agent/w{number}#1" for number in range(people)]
    events: list[ev.Event] = [ev.Start(p=name) for name in names]
    for number, name in enumerate(names):
        if number % 10:
            of = tuple(ev.Atom(p=other) for other in chance.sample(names, atoms + (number % 9 < 4)))
            clause = ev.Clause(k=chance.choice([1, 2, len(of), len(of)]), of=of)
            events.append(ev.Wait(p=name, ticket=number, needs=(clause,)))
    return events


class Workplace:
    """A healthy run that is simulated event by event: locks, mailboxes, slots, groups of eight ranks."""

    def __init__(self, people: int, *, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.names = [f"agent/w{number}#1" for number in range(people)]
        self.free = set(self.names)
        self.events: list[ev.Event] = []
        self.ticket = 0
        part = max(1, people // 8)
        self.locks = [f"lock:{number}" for number in range(part)]
        self.owner: dict[str, str] = {}
        self.queues: dict[str, deque[tuple[str, int]]] = {}
        self.counts: dict[str, int] = {}
        self.groups = [self.names[at : at + RANKS] for at in range(0, people - RANKS + 1, RANKS)]
        self.seq: dict[int, int] = {}
        self.there: dict[int, list[tuple[str, int]]] = {}
        for name in self.names:
            self.events.append(ev.Start(p=name))
        self._declare(part)
        self.opening = len(self.events)

    def _declare(self, part: int) -> None:
        for r in self.locks:
            self.events.append(ev.Resource(r=r, type="lock"))
        self.boxes = [f"mbox:{number}" for number in range(part)]
        for number, r in enumerate(self.boxes):
            senders = tuple(self.names[number * 8 : number * 8 + 4])
            self.events.append(ev.Resource(r=r, type="mailbox", capacity=16, senders=senders))
        self.slots = [f"slots:{number}" for number in range(part)]
        for r in self.slots:
            self.events.append(ev.Resource(r=r, type="slots", capacity=2))
        for number, members in enumerate(self.groups):
            self.events.append(ev.Resource(r=f"coll:{number}", type="collective", members=tuple(members)))

    def run(self, events: int) -> list[ev.Event]:
        """`events` events that follow on those before, the last act whole."""
        until = len(self.events) + events
        while len(self.events) < until:
            number = self.chance.randrange(len(self.names))
            name = self.names[number]
            if name in self.free:
                self._act(name, number)
        return self.events[self.opening :]

    def _act(self, name: str, number: int) -> None:
        """Every second eight are ranks of a group; of the others four send, four receive, and all use locks and slots.

        Nobody waits with a lock in its hands, and senders wait for locks alone: so nothing can get stuck.
        """
        rank = number // RANKS % 2 == 0 and number // RANKS < len(self.groups)
        if self.owner.get(self._near(number, self.locks)) == name:
            self._lock(name, number)
            return
        acts = ("arrive", "arrive", "slots", "progress") if rank else ("lock", "lock", "box", "box", "slots", "progress")
        act = self.chance.choice(acts)
        if act == "box":
            act = "send" if number % RANKS < 4 else "recv"
        getattr(self, f"_{act}")(name, number)

    # --- acts ---

    def _put(self, event: ev.Event) -> None:
        self.events.append(event)

    def _wait(self, name: str, atom: ev.Atom) -> int:
        self.ticket += 1
        self.free.discard(name)
        self._put(ev.Wait(p=name, ticket=self.ticket, needs=(ev.Clause(k=1, of=(atom,)),), t=float(self.ticket)))
        return self.ticket

    def _wake(self, name: str, ticket: int) -> None:
        self.free.add(name)
        self._put(ev.Wake(p=name, ticket=ticket))

    def _near(self, number: int, what: list[str]) -> str:
        return what[number // RANKS % len(what)]

    def _progress(self, name: str, _: int) -> None:
        self._put(ev.Progress(p=name))

    def _lock(self, name: str, number: int) -> None:
        r = self._near(number, self.locks)
        if self.owner.get(r) == name:
            self._put(ev.Release(p=name, r=r))
            del self.owner[r]
            self._serve(r)
        elif r not in self.owner:
            self.owner[r] = name
            self._put(ev.Hold(p=name, r=r))
        else:
            self.queues.setdefault(r, deque()).append((name, self._wait(name, ev.Atom(r=r))))

    def _serve(self, r: str) -> None:
        if self.queues.get(r):
            following, ticket = self.queues[r].popleft()
            self._wake(following, ticket)
            self.owner[r] = following
            self._put(ev.Hold(p=following, r=r))

    def _send(self, name: str, number: int) -> None:
        r = self._near(number, self.boxes)
        if self.counts.get(r, 0) < 16:
            self._put(ev.Send(p=name, r=r))
            self.counts[r] = self.counts.get(r, 0) + 1
            if self.queues.get(r):
                following, ticket = self.queues[r].popleft()
                self._wake(following, ticket)
                self._take(following, r)

    def _recv(self, name: str, number: int) -> None:
        r = self._near(number, self.boxes)
        if self.counts.get(r, 0):
            self._take(name, r)
        elif self.chance.random() < 0.5:
            self.queues.setdefault(r, deque()).append((name, self._wait(name, ev.Atom(r=r, op="recv"))))

    def _take(self, name: str, r: str) -> None:
        self.counts[r] -= 1
        self._put(ev.Recv(p=name, r=r))

    def _slots(self, name: str, number: int) -> None:
        r = self._near(number, self.slots)
        self._put(ev.Hold(p=name, r=r))
        self._put(ev.Release(p=name, r=r))

    def _arrive(self, name: str, place: int) -> None:
        number = place // RANKS
        r, seq = f"coll:{number}", self.seq.get(number, 0)
        self._put(ev.Arrive(p=name, r=r, seq=seq, op="all_reduce"))
        there = self.there.setdefault(number, [])
        if len(there) + 1 < RANKS:
            there.append((name, self._wait(name, ev.Atom(r=r, seq=seq))))
            return
        self.seq[number], self.there[number] = seq + 1, []
        for following, ticket in there:
            self._wake(following, ticket)


def rings(graph: LiveGraph, people: int) -> None:
    """`people` bystanders in `graph`, of which half wait for one that runs, each for a lock of its own."""
    for number in range(0, people, 2):
        holder, waiter, r = f"env/e{number}#1", f"env/e{number + 1}#1", f"lock:e{number}"
        for event in (
            ev.Start(p=holder), ev.Start(p=waiter), ev.Resource(r=r, type="lock"), ev.Hold(p=holder, r=r),
            ev.Wait(p=waiter, ticket=number, needs=(ev.Clause(k=1, of=(ev.Atom(r=r),)),)),
        ):  # fmt: skip
            graph.apply(event)


def ring(size: int, *, name: str = "trainer/r") -> tuple[list[ev.Event], ev.Wait, ev.Wake]:
    """A ring of `size` that wait for each other's locks: what comes first, the wait that closes it, the wake that opens it."""
    people = [f"{name}{number}#1" for number in range(size)]
    locks = [f"lock:{name}{number}" for number in range(size)]
    first: list[ev.Event] = [ev.Start(p=p) for p in people]
    first += [ev.Resource(r=r, type="lock") for r in locks]
    first += [ev.Hold(p=p, r=r) for p, r in zip(people, locks, strict=True)]
    waits = [
        ev.Wait(p=p, ticket=10**6 + number, needs=(ev.Clause(k=1, of=(ev.Atom(r=locks[(number + 1) % size]),)),))
        for number, p in enumerate(people)
    ]
    return first + list(waits[:-1]), waits[-1], ev.Wake(p=people[-1], ticket=waits[-1].ticket)
