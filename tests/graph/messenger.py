"""A small run with a true history, whose records reach a monitor late, twice, out of order or not at all."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from tests.graph.chances import Chances
from tests.graph.oracle import World
from tests.graph.scripts import PEOPLE, possible, resources
from unknot.graph import events as ev
from unknot.graph.confirm import Answered, Ask, Confirm, Confirmation, Tick, needs_store_counts
from unknot.graph.finding import Finding
from unknot.graph.live import LiveGraph
from unknot.graph.verdict import evaluate


class Run:
    """Truth on one side (`true`, `world`), a monitor on the other (`seen`), messages in between."""

    def __init__(self, chances: Chances) -> None:
        self.chances = chances
        self.true, self.seen, self.world = LiveGraph(), LiveGraph(), World()
        self.clock = itertools.count(1)
        self.rounds = itertools.count(1)
        self.n = dict.fromkeys(PEOPLE, 0)
        self.wires: dict[str, list[ev.Record]] = {pid: [] for pid in PEOPLE}
        self.candidates: dict[str, Confirmation] = {}
        self.questions: list[tuple[str, int]] = []
        self.answers: list[Answered] = []
        self.confirmed: list[Finding] = []
        self.kinds = resources(chances)
        for kind in self.kinds:
            self.happen(kind)
        self.seen.absorb(ev.Record(src="store", n=0, t=0.0, events=tuple(self.kinds)))
        for pid in PEOPLE:
            self.happen(ev.Start(p=pid))
            self.tell(pid, ev.Start(p=pid))

    # --- truth ---

    def happen(self, event: ev.Event) -> None:
        self.true.apply(event)
        self.world.apply(event)

    def act(self) -> None:
        number = next(self.clock)
        drawn = (possible(self.chances, self.true, self.kinds, number) for _ in range(3))
        event = next((one for one in drawn if one is not None), None)
        if event is None or (isinstance(event, ev.Wake) and event.p in self.world.stuck()):
            return
        timed = ev_at(event, float(number))
        self.happen(timed)
        self.tell(timed.p, timed)

    def tell(self, pid: str, *events: ev.Event, full: bool = False) -> None:
        self.n[pid] += 1
        record = ev.Record(src=pid, n=self.n[pid], t=0.0, full=full, events=events)
        self.wires[pid].append(record)

    def tell_all(self, pid: str) -> None:
        """A full record: all that is true of the process now."""
        one = self.true.participants[pid]
        events: list[ev.Event] = [ev.Start(p=pid)]
        for r in one.holds:
            modes = self.true.resources[r].holders[pid]
            events += [ev.Hold(p=pid, r=r, mode=mode, units=units) for mode, units in modes.items()]
        for r in sorted(one.issued):
            state = self.true.resources[r]
            for seq, by in sorted(state.signatures.items()):
                if pid in by:
                    events.append(ev.Arrive(p=pid, r=r, seq=seq, op=by[pid][0]))
        if (wait := self.world.waits.get(pid)) is not None:
            events.append(wait)
        if one.how is not None:
            events.append(ev.End(p=pid, how=one.how if one.how != "fence" else "crash"))
        self.tell(pid, *events, full=True)

    # --- messages ---

    def carry(self, *, faults: bool) -> None:
        """One record of some source arrives, or is lost, or arrives twice, or overtakes."""
        busy = [pid for pid in PEOPLE if self.wires[pid]]
        if not busy:
            return
        wire = self.wires[self.chances.pick(busy)]
        fate = self.chances.pick(["ok"] * 5 + ["lost", "twice", "overtakes"]) if faults else "ok"
        place = 1 if fate == "overtakes" and len(wire) > 1 else 0
        record = wire[place] if fate == "twice" else wire.pop(place)
        if fate != "lost":
            self.seen.absorb(record)
            self.seen.validate()
        self.look()

    def look(self) -> None:
        for finding in evaluate(self.seen, 0.0).findings:
            if finding.key not in self.candidates and finding.key not in {one.key for one in self.confirmed}:
                candidate = self.candidates[finding.key] = Confirmation(finding, self.rounds)
                self.follow(finding.key, candidate.begin(self.seen, 0.0))
        for key in list(self.candidates):
            self.follow(key, self.candidates[key].feed(Tick(0.0), self.seen))

    def follow(self, key: str, told: tuple[Any, ...]) -> None:
        for one in told:
            if isinstance(one, Ask):
                self.questions += [(source, one.round_id) for source in one.sources]
            if isinstance(one, Confirm):
                self.confirmed.append(one.finding)
                self.judge(one.finding)
        self.candidates[key].validate()
        if self.candidates[key].done:
            del self.candidates[key]

    def judge(self, finding: Finding) -> None:
        if finding.kind != "timed":
            assert set(finding.core) <= self.world.stuck(), f"confirmed falsely: {finding}"

    def answer(self) -> None:
        """Some publisher answers: its number and its tickets of this moment."""
        if self.questions:
            source, round_id = self.questions.pop(self.chances.number(0, len(self.questions) - 1))
            tickets = {source: self.true.ticket(source)}
            self.answers.append(Answered(source=source, round_id=round_id, n=self.n[source], tickets=tickets))

    def hear(self) -> None:
        """Some answer arrives; before it, the counts of the mailboxes are read from the store."""
        if not self.answers:
            return
        answer = self.answers.pop(self.chances.number(0, len(self.answers) - 1))
        for key in list(self.candidates):
            self.count(self.candidates[key].finding)
            self.follow(key, self.candidates[key].feed(answer, self.seen))

    def count(self, finding: Finding) -> None:
        events = []
        for r in needs_store_counts(finding):
            state = self.true.resources[r]
            assert state.declared is not None
            events.append(ev_with(state.declared, count=state.count))
            events += [ev.Close(r=r)] if state.closed else []
        self.seen.absorb(ev.Record(src="store", n=0, t=0.0, events=tuple(events)))

    def settle(self) -> None:
        """Everything that was lost is told again, every record and every answer arrives."""
        for pid in PEOPLE:
            self.tell_all(pid)
        for _ in range(1000):
            self.look()
            if not any(self.wires.values()) and not self.questions and not self.answers:
                break
            self.carry(faults=False)
            self.answer()
            self.hear()


def ev_at(event: Any, t: float) -> Any:
    return ev_with(event, t=t)


def ev_with(event: Any, **changes: Any) -> Any:
    return msgspec.structs.replace(event, **changes)
