"""A brute-force oracle: a participant is stuck iff no continuation exists in which it goes on.

It shares nothing with the detector: it replays the raw events into a plain state, and then searches all states that those who run
can reach by doing anything that their rights allow: give back, send, receive, set, count down, issue the next operation,
answer. A waiter whose needs are met goes on, taking what it was granted.
Only for small scenes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from unknot.graph import events as ev

State = tuple[Any, ...]
WRITERS = ("x", "w", "write")
LIMIT = 200_000


@dataclass
class World:
    """Raw facts, replayed from events."""

    kinds: dict[str, ev.Resource] = field(default_factory=dict)
    holds: dict[tuple[str, str, str], int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    arrived: dict[tuple[str, str], int] = field(default_factory=dict)
    bad: set[tuple[str, int]] = field(default_factory=set)
    issued: dict[tuple[str, int], set[str | None]] = field(default_factory=dict)
    waits: dict[str, ev.Wait] = field(default_factory=dict)
    queues: dict[str, list[str]] = field(default_factory=dict)
    passed: set[tuple[str, str]] = field(default_factory=set)
    people: dict[str, str] = field(default_factory=dict)

    def apply(self, event: ev.Event) -> None:
        getattr(self, f"_{type(event).__name__.lower()}")(event)

    def _resource(self, e: ev.Resource) -> None:
        self.kinds[e.r] = e
        self.counts[e.r] = e.count or 0

    def _start(self, e: ev.Start) -> None:
        self.people[e.p] = "run"

    def _end(self, e: ev.End) -> None:
        self.people[e.p] = e.how
        self._leave(e.p)

    def _hold(self, e: ev.Hold) -> None:
        key = (e.r, e.p, e.mode)
        self.holds[key] = self.holds.get(key, 0) + e.units

    def _release(self, e: ev.Release) -> None:
        left = e.units
        for key in [k for k in self.holds if k[0] == e.r and k[1] == e.p]:
            taken = min(left, self.holds[key])
            left -= taken
            self.holds[key] -= taken
            if not self.holds[key]:
                del self.holds[key]

    def _wait(self, e: ev.Wait) -> None:
        self.waits[e.p] = e
        for r in dict.fromkeys(a.r for c in e.needs for a in c.of if a.r):
            queue = self.queues.setdefault(r, [])
            mine = [m for (hr, p, m) in self.holds if hr == r and p == e.p]
            place = len(queue)
            if mine and e.bypass and self.kinds[r].policy == "fifo":
                for i, other in enumerate(queue):
                    if any(self.conflict(r, m, o) for m in mine for o in self.modes(other, r)):
                        place = i
                        break
            queue.insert(place, e.p)

    def _wake(self, e: ev.Wake) -> None:
        self._leave(e.p)

    def _leave(self, p: str) -> None:
        self.waits.pop(p, None)
        self.passed = {(q, r) for q, r in self.passed if q != p}
        for queue in self.queues.values():
            if p in queue:
                queue.remove(p)

    def _send(self, e: ev.Send) -> None:
        self.counts[e.r] += e.n

    def _recv(self, e: ev.Recv) -> None:
        self.counts[e.r] -= e.n

    def _close(self, e: ev.Close) -> None:
        self.flags.add(e.r)

    def _set(self, e: ev.Set) -> None:
        self.flags.add(e.r)
        self._pass(e.r)

    def _clear(self, e: ev.Clear) -> None:
        self.flags.discard(e.r)

    def _add(self, e: ev.Add) -> None:
        self.counts[e.r] += e.n
        if self.counts[e.r] == 0:
            self._pass(e.r)

    def _pass(self, r: str) -> None:
        self.passed |= {(p, r) for p in self.queues.get(r, ())}

    def _arrive(self, e: ev.Arrive) -> None:
        self.arrived[e.r, e.p] = max(e.seq, self.arrived.get((e.r, e.p), e.seq))
        self.issued.setdefault((e.r, e.seq), set()).add(e.op)
        if len(self.issued[e.r, e.seq] - {None}) > 1:
            self.bad.add((e.r, e.seq))

    def _fence(self, e: ev.Fence) -> None:
        for p in [p for p in self.people if p.partition("#")[0] == e.member]:
            if int(p.partition("#")[2]) < e.incarnation:
                self._leave(p)
                self.people[p] = "fence"
                self.holds = {k: n for k, n in self.holds.items() if k[1] != p}

    # --- semantics ---

    def conflict(self, r: str, one: str, other: str) -> bool:
        return self.kinds[r].type != "rwlock" or one in WRITERS or other in WRITERS

    def modes(self, p: str, r: str) -> list[str]:
        return [a.mode for c in self.waits[p].needs for a in c.of if a.r == r] if p in self.waits else []

    def stuck(self) -> set[str]:
        """Everybody who waits and goes on in no continuation. A wait with a deadline is not stuck."""
        seen: set[State] = set()
        start: State = (
            frozenset(p for p, how in self.people.items() if how == "run" and p not in self.waits),
            frozenset(self.holds.items()),
            tuple(sorted(self.counts.items())),
            frozenset(self.flags),
            tuple(sorted(self.arrived.items())),
        )
        todo, gone_on = [start], set(start[0])
        while todo and not self.waits.keys() <= gone_on:
            state = todo.pop()
            if state in seen:
                continue
            seen.add(state)
            assert len(seen) < LIMIT, "the scene is too large for the oracle"
            for following in self.steps(state):
                gone_on |= following[0]
                todo.append(following)
        return {p for p in self.waits if p not in gone_on}

    def steps(self, state: State) -> list[State]:
        running, held, counts, flags, arrived = state
        holds, numbers, came = dict(held), dict(counts), dict(arrived)
        found: list[State] = []
        for p in self.waits.keys() - running:
            found += self.goings(p, state)
        for r, p, m in holds:
            if p in running:
                found.append((running, frozenset(i for i in held if i[0] != (r, p, m)), counts, flags, arrived))
        for r, kind in self.kinds.items():
            for n in self.changes(r, kind, running, numbers):
                found.append((running, held, tuple(sorted({**numbers, r: n}.items())), flags, arrived))
            if kind.type == "event" and self.anybody(kind.setters, running):
                found.append((running, held, counts, flags | {r}, arrived))
            for m in kind.members or ():
                if m in running and came.get((r, m), -1) < self.last_seq(r):
                    later = {**came, (r, m): self.last_seq(r)}
                    found.append((running, held, counts, flags, tuple(sorted(later.items()))))
        return found

    def last_seq(self, r: str) -> int:
        return max((a.seq or 0 for w in self.waits.values() for c in w.needs for a in c.of if a.r == r), default=-1)

    def anybody(self, names: tuple[str, ...] | None, running: frozenset[str]) -> bool:
        return names is None or any(p in running for p in self.named(names))

    def named(self, names: tuple[str, ...]) -> list[str]:
        return [p for p in self.people if any(n in (p, p.partition("#")[0]) for n in names)]

    def changes(self, r: str, kind: ev.Resource, running: frozenset[str], numbers: dict[str, int]) -> list[int]:
        found = []
        if kind.type == "mailbox":
            room = kind.capacity is None or numbers[r] < kind.capacity
            if room and numbers[r] < 3 and self.anybody(kind.senders, running):
                found.append(numbers[r] + 1)
            if numbers[r] > 0 and self.anybody(kind.receivers, running):
                found.append(numbers[r] - 1)
        if kind.type == "latch" and numbers[r] > 0 and self.anybody(kind.setters, running):
            found.append(0)
        return found

    def goings(self, p: str, state: State) -> list[State]:
        """The states after `p` goes on, one for each way in which its needs can be met."""
        wait = self.waits[p]
        running, held, counts, flags, arrived = state
        # What it was granted it may give back at once, so only messages taken and put leave a trace.
        met = {a for c in wait.needs for a in c.of if self.met(p, a, state)}
        moving = [a for a in met if a.op is not None and a.r not in flags]
        gone_on: State = (running | {p}, held, counts, flags, arrived)
        found = [gone_on] if wait.deadline is not None else []
        for used in (set(part) for n in range(len(moving) + 1) for part in itertools.combinations(moving, n)):
            counted = met.difference(moving) | used
            if all(sum(a in counted for a in clause.of) >= clause.k for clause in wait.needs):
                numbers = dict(counts)
                for atom in used:
                    numbers[atom.r or ""] += 1 if atom.op == "send" else -1
                found.append((running | {p}, held, tuple(sorted(numbers.items())), flags, arrived))
        return found

    def met(self, p: str, a: ev.Atom, state: State) -> bool:
        running, held, counts, flags, arrived = state
        if a.external is not None:
            return False
        if a.p is not None:
            return a.p in running or self.people.get(a.p) == "exit"
        assert a.r is not None
        kind, holds, numbers = self.kinds[a.r], dict(held), dict(counts)
        if (p, a.r) in self.passed:
            return True
        if kind.type in ("lock", "rwlock", "semaphore"):
            return self.granted(p, a, state, holds)
        if kind.type == "mailbox":
            if a.r in flags:
                return True
            n: int = numbers[a.r]
            return n > 0 if a.op == "recv" else kind.capacity is None or n < kind.capacity
        if kind.type == "event":
            return a.r in flags
        if kind.type == "latch":
            return bool(numbers[a.r] == 0)
        came, seq = dict(arrived), a.seq or 0
        return (a.r, seq) not in self.bad and all(came.get((a.r, m), -1) >= seq for m in kind.members or ())

    def granted(self, p: str, a: ev.Atom, state: State, holds: dict[tuple[str, str, str], int]) -> bool:
        r = a.r or ""
        kind = self.kinds[r]
        mine = [h for h in holds if h[0] == r]
        if kind.type == "semaphore":
            if sum(holds[h] for h in mine) + a.units > (kind.capacity or 0):
                return False
        elif kind.reentrant and any(h[1] == p for h in mine):
            return all(h[1] == p or not self.conflict(r, a.mode, h[2]) for h in mine)
        elif any(self.conflict(r, a.mode, h[2]) for h in mine):
            return False
        if kind.policy == "any":
            return True
        queue = [q for q in self.queues.get(r, ()) if q not in state[0]]
        if kind.policy == "writer-pref":
            writers = [q for q in queue if q != p and any(m in WRITERS for m in self.modes(q, r))]
            return a.mode in WRITERS or not writers
        ahead = queue[: queue.index(p)]
        return not any(self.conflict(r, a.mode, m) for q in ahead for m in self.modes(q, r))
