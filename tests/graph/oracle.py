"""A brute-force oracle: a participant is stuck iff no continuation exists in which it goes on.

It shares nothing with the detector: it replays the raw events into a plain state, and then searches all states that those who run
can reach by doing anything that their rights allow: give back, send, receive, set, count down, issue the next operation,
answer. A waiter whose needs are met goes on, taking what it was granted.
Only for small scenes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from unknot.graph import events as ev

State = tuple[Any, ...]
WRITERS = ("x", "w", "write")
HELD = ("lock", "rwlock", "semaphore", "slots", "reservation")
UNITS = ("semaphore", "slots", "reservation")
FLAGGED = ("event", "condition", "external")
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
    fences: dict[str, int] = field(default_factory=dict)

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

    def _signal(self, e: ev.Signal) -> None:
        self._pass(e.r, len(self.people) if e.n == "all" else int(e.n))

    def _pass(self, r: str, n: int = 1000) -> None:
        present = [p for p in self.queues.get(r, ()) if (p, r) not in self.passed]
        self.passed |= {(p, r) for p in present[:n]}

    def _arrive(self, e: ev.Arrive) -> None:
        self.arrived[e.r, e.p] = max(e.seq, self.arrived.get((e.r, e.p), e.seq))
        self.issued.setdefault((e.r, e.seq), set()).add(e.op)
        if len(self.issued[e.r, e.seq] - {None}) > 1:
            self.bad.add((e.r, e.seq))

    def _fence(self, e: ev.Fence) -> None:
        self.fences[e.member] = max(e.incarnation, self.fences.get(e.member, 0))
        for p in [p for p in self.people if member(p) == e.member and incarnation(p) < e.incarnation]:
            self._leave(p)
            self.people[p] = "fence"
            self.holds = {k: n for k, n in self.holds.items() if k[1] != p}

    # --- semantics ---

    def conflict(self, r: str, one: str, other: str) -> bool:
        kind = self.kinds[r]
        if kind.conflicts is not None and kind.type == "rwlock":
            return other in kind.conflicts.get(one, ()) or one in kind.conflicts.get(other, ())
        return kind.type != "rwlock" or one in WRITERS or other in WRITERS

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
            setters = self.kinds[r].setters
            if (p in running and self.people[p] == "run") or (setters and self.anybody(setters, running)):
                found.append((running, frozenset(i for i in held if i[0] != (r, p, m)), counts, flags, arrived))
        for r, kind in self.kinds.items():
            for n in self.changes(r, kind, running, numbers):
                found.append((running, held, tuple(sorted({**numbers, r: n}.items())), flags, arrived))
            if r not in flags and self.flags_up(kind, running):
                found.append((running, held, counts, flags | {r}, arrived))
            for m in kind.members or ():
                if self.came(r, m, came) < self.last_seq(r) and self.may_come(r, m, running):
                    later = {**came, (r, m): self.last_seq(r)}
                    found.append((running, held, counts, flags, tuple(sorted(later.items()))))
        return found

    def flags_up(self, kind: ev.Resource, running: frozenset[str]) -> bool:
        """Whether somebody may set, signal or close."""
        if kind.type == "mailbox":
            return kind.closers is not None and self.anybody(kind.closers, running)
        return kind.type in FLAGGED and self.anybody(kind.setters, running)

    def last_seq(self, r: str) -> int:
        return max((a.seq or 0 for w in self.waits.values() for c in w.needs for a in c.of if a.r == r), default=-1)

    def issuing(self, r: str, m: str) -> list[str]:
        """Who has issued operations of the group for the member `m`: those of its newest incarnation."""
        if m in self.people and source(m) != m:
            return [m] if (r, m) in self.arrived else []
        mine = [p for g, p in self.arrived if g == r and m in (member(p), source(p))]
        return [p for p in mine if incarnation(p) == max(map(incarnation, mine))]

    def came(self, r: str, m: str, came: dict[tuple[str, str], int]) -> int:
        return max(came.get((r, p), -1) for p in (m, *self.issuing(r, m)))

    def may_come(self, r: str, m: str, running: frozenset[str]) -> bool:
        issuing = self.issuing(r, m) or ([m] if m in self.people else [])
        if issuing:
            return any(p in running and self.people[p] == "run" for p in issuing)
        return self.anybody((m,), running)

    def anybody(self, names: tuple[str, ...] | None, running: frozenset[str]) -> bool:
        return names is None or any(self.named(name, running) for name in names)

    def named(self, name: str, running: frozenset[str]) -> bool:
        """Whether somebody whom `name` means can act, or somebody new may come and do it."""
        if any(mark in name for mark in "*?["):
            matched = {member(p) for p in self.people if fnmatchcase(member(p), name)}
            return self.newcomer(running) or any(self.named(m, running) for m in matched)
        if "#" not in name:
            mine = [p for p in self.people if member(p) == name and not queue(p)]
            mine = [p for p in mine if incarnation(p) == max(map(incarnation, mine))]
            if not mine or incarnation(mine[0]) < self.fences.get(name, 0):
                return self.newcomer(running)
        elif "/" in name.partition("#")[2]:
            mine = [name] if name in self.people else []
        else:
            mine = [p for p in self.people if source(p) == name and not queue(p)]
        if mine:
            return any(p in running and self.people[p] == "run" for p in mine)
        if incarnation(name) < self.fences.get(member(name), 0):
            return False
        return any(source(p) == source(name) for p in self.people) or self.newcomer(running)

    def newcomer(self, running: frozenset[str]) -> bool:
        """Only a driver brings somebody new; where none is known, anybody might."""
        drivers = [p for p in self.people if p.startswith("driver/") and not queue(p)]
        return not drivers or any(p in running and self.people[p] == "run" for p in drivers)

    def changes(self, r: str, kind: ev.Resource, running: frozenset[str], numbers: dict[str, int]) -> list[int]:
        found = []
        if kind.type == "mailbox":
            room = kind.capacity is None or numbers[r] < kind.capacity
            back = kind.returners is not None and self.anybody(kind.returners, running)
            if room and numbers[r] < 3 and (back or self.anybody(kind.senders, running)):
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
            return not a.closed
        if a.p is not None:
            return a.p in running or self.people.get(a.p, "unknown") in ("exit", "fence", "unknown")
        assert a.r is not None
        kind, holds, numbers = self.kinds[a.r], dict(held), dict(counts)
        if (p, a.r) in self.passed or a.r in flags:
            return True
        if kind.type in HELD:
            return self.granted(p, a, state, holds)
        if kind.type == "mailbox":
            return self.delivered(p, a, running, numbers[a.r])
        if kind.type in FLAGGED:
            return False
        if kind.type == "latch":
            return bool(numbers[a.r] == 0)
        came, seq = dict(arrived), a.seq or 0
        if kind.members is None:
            return True
        return (a.r, seq) not in self.bad and all(self.came(a.r, m, came) >= seq for m in kind.members)

    def delivered(self, p: str, a: ev.Atom, running: frozenset[str], n: int) -> bool:
        kind = self.kinds[a.r or ""]
        if kind.capacity == 0 and n == 0:
            waiting = (q for q in self.waits if q != p and q not in running)
            meets = any(b.r == a.r and b.op != a.op for q in waiting for c in self.waits[q].needs for b in c.of)
            return meets or self.anybody(kind.senders if a.op == "recv" else kind.receivers, running)
        return n > 0 if a.op == "recv" else kind.capacity is None or n < kind.capacity

    def granted(self, p: str, a: ev.Atom, state: State, holds: dict[tuple[str, str, str], int]) -> bool:
        r = a.r or ""
        kind = self.kinds[r]
        mine = [h for h in holds if h[0] == r]
        if kind.type in UNITS:
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
            writers = [q for q in queue if q != p and any(self.conflict(r, a.mode, m) for m in self.modes(q, r))]
            return self.conflict(r, a.mode, a.mode) or not writers
        ahead = queue[: queue.index(p)]
        return not any(self.conflict(r, a.mode, m) for q in ahead for m in self.modes(q, r))


def member(p: str) -> str:
    return p.partition("#")[0]


def source(p: str) -> str:
    return member(p) + "#" + str(incarnation(p))


def incarnation(p: str) -> int:
    return int(p.partition("#")[2].partition("/")[0] or "1")


def queue(p: str) -> bool:
    return "/queue:" in p.partition("#")[2]
