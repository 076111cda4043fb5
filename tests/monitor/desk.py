"""A decision core on an injected clock: short words for what comes in, and a memory of what came out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, TypeVar

from unknot.graph import events as ev
from unknot.graph.ids import parse
from unknot.recovery.registration import MemberInfo
from unknot.supervisor.config import Config
from unknot.supervisor.incidents import Incident
from unknot.supervisor.monitor.core import MonitorCore
from unknot.supervisor.monitor.instructions import AskRound, CollectStacks, Instruction, InterruptWait, Put
from unknot.supervisor.monitor.truth import Answers

A, B = "agent/a#1", "agent/b#1"
T = TypeVar("T")


def atom(what: str, **more: Any) -> ev.Atom:
    """`lock:x`, `mbox:q` (op in `more`), `p=agent/a#1`, `ext=approval`."""
    kind, _, name = what.partition("=")
    if kind == "p":
        return ev.Atom(p=name, **more)
    return ev.Atom(external=name, **more) if kind == "ext" else ev.Atom(r=what, **more)


class Party:
    """One process as its records tell it: who holds what and waits for what."""

    def __init__(self, desk: Desk, source: str) -> None:
        self.desk, self.source, self.n = desk, source, 0
        self.holds: list[ev.Hold] = []
        self.waits: dict[str, ev.Wait] = {}
        self.resources: dict[str, ev.Resource] = {}
        self.extra: list[ev.Event] = []
        self.people = {source}

    def declare(self, r: str, kind: Any, **more: Any) -> Party:
        self.resources[r] = ev.Resource(r=r, type=kind, **more)
        return self

    def hold(self, r: str, p: str = "") -> Party:
        self.resources.setdefault(r, ev.Resource(r=r, type="lock"))
        self.people.add(p or self.source)
        self.holds.append(ev.Hold(p=p or self.source, r=r))
        return self

    def release(self, r: str) -> Party:
        self.holds = [hold for hold in self.holds if hold.r != r]
        return self

    def wait(self, *needs: ev.Atom, p: str = "", **more: Any) -> Party:
        for one in needs:
            if one.r is not None and one.r.startswith("lock:"):
                self.resources.setdefault(one.r, ev.Resource(r=one.r, type="lock"))
        p = p or self.source
        self.people.add(p)
        clauses = tuple(ev.Clause(k=1, of=(one,)) for one in needs)
        ticket = more.pop("ticket", None) or next(self.desk.tickets)
        told = {"t": self.desk.now, "interruptible": True, "site": "user.py:1", **more}
        self.waits[p] = ev.Wait(p=p, ticket=ticket, needs=clauses, **told)
        return self

    def wake(self, p: str = "") -> Party:
        self.waits.pop(p or self.source, None)
        return self

    def tickets(self) -> dict[str, int | None]:
        return {p: (self.waits[p].ticket if p in self.waits else None) for p in sorted(self.people)}

    def record(self, *rounds: int) -> ev.Record:
        self.n += 1
        own = parse(self.source)
        starts = [
            ev.Start(p=p, member=own.member, role=own.role, incarnation=own.incarnation) for p in sorted(self.people)
        ]
        beats = [ev.Beat(src=self.source, n=self.n, tickets=self.tickets(), round=r) for r in rounds]
        events = (*starts, *self.resources.values(), *self.holds, *self.waits.values(), *self.extra, *beats)
        return ev.Record(src=self.source, n=self.n, t=self.desk.now, full=True, events=events)

    def tell(self, *rounds: int) -> list[Instruction]:
        """Its record is read by the monitor."""
        record = self.record(*rounds)
        return self.desk.take(lambda core, now: core.record(record, now))


class Desk:
    """The core, its clock, and all instructions it gave; validates after every input."""

    def __init__(self, now: float = 1000.0, **config: Any) -> None:
        self.now = now
        self.tickets = itertools.count(1)
        self.config = Config(**config)
        self.core = MonitorCore(run="r", config=self.config)
        self.parties: dict[str, Party] = {}
        self.told: list[Instruction] = []
        self.tick()

    def take(self, give: Any) -> list[Instruction]:
        told: list[Instruction] = give(self.core, self.now)
        self.core.validate()
        self.told += told
        return told

    def party(self, source: str) -> Party:
        if source not in self.parties:
            self.parties[source] = Party(self, source)
        return self.parties[source]

    def tick(self) -> list[Instruction]:
        return self.take(lambda core, now: core.tick(now))

    def later(self, seconds: float, *, step_s: float = 0.1) -> list[Instruction]:
        """Time passes, in steps as a real monitor takes them."""
        before = len(self.told)
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = min(self.now + step_s, end)
            self.tick()
        return self.told[before:]

    def members(self, *members: MemberInfo) -> list[Instruction]:
        return self.take(lambda core, now: core.members(list(members), now))

    def store(self, **answers: Any) -> list[Instruction]:
        return self.take(lambda core, now: core.answered(Answers(**answers), now))

    def acknowledge(self, keys: Iterable[str], outcome: str) -> list[Instruction]:
        told = []
        for key in keys:
            told += self.take(lambda core, now, key=key: core.acknowledged(key, outcome, now))
        return told

    def asks(self) -> list[AskRound]:
        return self.given(AskRound)

    def given(self, kind: type[T]) -> list[T]:
        return [one for one in self.told if isinstance(one, kind)]

    def last(self, kind: type[T]) -> T:
        return self.given(kind)[-1]

    def answer(self, ask: AskRound | None = None) -> list[Instruction]:
        """All parties that a round asks answer it (the last one that was asked)."""
        asked = ask or self.asks()[-1]
        return [one for source in asked.sources for one in self.party(source).tell(asked.round_id)]

    def confirm(self) -> list[Instruction]:
        """Both rounds are answered."""
        first = self.asks()[-1]
        self.answer(first)
        second = self.asks()[-1]
        assert second.round_id != first.round_id, "a second round is asked"
        return self.answer(second)

    def incident(self, cause: str = "") -> Incident:
        """The newest state of the last incident (of a cause)."""
        puts = [put.incident for put in self.given(Put) if cause in ("", put.incident.cause)]
        assert puts, f"no incident {cause}"
        return puts[-1]

    def opened(self, *causes: str) -> list[str]:
        """Ids of all incidents that were ever put (of these causes), in order."""
        puts = [put.incident for put in self.given(Put)]
        return list(dict.fromkeys(one.id for one in puts if not causes or one.cause in causes))


def member(source: str, *, state: str = "alive", beat_at: float = 1000.0, **more: Any) -> MemberInfo:
    own = parse(source)
    facts: dict[str, Any] = {"pid": 7, "host": "here", "lease_s": 5.0, **more}
    return MemberInfo(
        member=own.member, role=own.role, incarnation=own.incarnation, state=state, beat_at=beat_at, **facts
    )  # fmt: skip


def crossed(desk: Desk, *, first: str = A, second: str = B) -> None:
    """Each of two processes holds the lock that the other one wants; the monitor has read both records."""
    desk.party(first).hold("lock:left").wait(atom("lock:right"))
    desk.party(second).hold("lock:right").wait(atom("lock:left"))
    desk.party(first).tell()
    desk.party(second).tell()


def evidence(desk: Desk) -> None:
    """All stacks that were asked for last have come."""
    desk.acknowledge(desk.last(CollectStacks).keys.values(), "MainThread: user.py:1 f < user.py:9 main")


def interrupted(desk: Desk, outcome: str = "interrupted") -> InterruptWait:
    order = desk.last(InterruptWait)
    desk.acknowledge([order.key], outcome)
    return order
