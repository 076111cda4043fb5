"""Recorded as a watcher learns of it, in whatever order between processes: no replay reports a deadlock that is none, and none is missed.

Three processes take and want locks in a true order that the watcher never sees. Each looks at itself now and then and sends its
picture; the channels deliver each in its own order, and as they like among each other. A collector asks rounds, one at a time. What
comes out of the channels is unfolded into a trace and replayed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.graph.scripts import grantable, scenarios
from unknot.graph import events as ev
from unknot.graph.live import LiveGraph
from unknot.graph.replay import Replay
from unknot.graph.trace import SCHEMA, Header
from unknot.graph.unfold import Unfolder
from unknot.graph.verdict import evaluate

PEOPLE = ("a#1", "b#1", "c#1")
LOCKS = tuple(ev.Resource(r=f"lock:{n}", type="lock", policy="any") for n in range(3))


class World:
    """The true graph, the processes' channels, and the watcher with its trace."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.truth = LiveGraph()
        self.replay = Replay(Header(schema=SCHEMA, order="arrival"))
        self.unfolder = Unfolder()
        self.channels: dict[str, deque[ev.Record]] = {pid: deque() for pid in PEOPLE}
        self.looks = dict.fromkeys(PEOPLE, 0)
        self.asked: dict[str, int] = {}
        self.round = 0
        self.unanswered: set[str] = set()
        self.ticket = 0
        starts: list[ev.Event] = [*LOCKS, *(ev.Start(p=pid) for pid in PEOPLE)]
        for event in starts:
            self.truth.apply(event)

    def act(self, pid: str) -> None:
        """One step of a thread that runs: take, release, or wait for what it cannot have. One that waits takes what is free."""
        one = self.truth.participants[pid]
        if one.wait is not None:
            lock = self.truth.resources[one.wait.resources()[0]]
            if not lock.holders:
                self.truth.apply(ev.Wake(p=pid, ticket=one.wait.ticket))
                self.truth.apply(ev.Hold(p=pid, r=lock.id))
            return
        kind = LOCKS[self.draw(st.integers(0, 2))]
        if one.holds and self.draw(st.integers(0, 2)) == 0:
            held = sorted(one.holds)
            self.truth.apply(ev.Release(p=pid, r=held[self.draw(st.integers(0, 2)) % len(held)]))
        elif kind.r in one.holds:
            return
        elif grantable(self.truth, pid, kind, "x"):
            self.truth.apply(ev.Hold(p=pid, r=kind.r))
        else:
            self.ticket += 1
            need = ev.Clause(k=1, of=(ev.Atom(r=kind.r),))
            self.truth.apply(ev.Wait(p=pid, ticket=self.ticket, needs=(need,)))

    def look(self, pid: str) -> None:
        """The process sends its picture, with an answer if it was asked."""
        one = self.truth.participants[pid]
        self.looks[pid] += 1
        events: list[ev.Event] = [*LOCKS, ev.Start(p=pid), *(ev.Hold(p=pid, r=r) for r in one.holds)]
        if one.wait is not None:
            events.append(ev.Wait(p=pid, ticket=one.wait.ticket, needs=one.wait.needs))
        if pid in self.asked:
            tickets = {pid: self.truth.ticket(pid)}
            events.append(ev.Beat(src=pid, n=self.looks[pid], tickets=tickets, round=self.asked.pop(pid)))
        record = ev.Record(src=pid, n=self.looks[pid], t=0.0, full=True, events=tuple(events))
        self.channels[pid].append(record)

    def deliver(self, pid: str) -> None:
        if not self.channels[pid]:
            return
        record = self.channels[pid].popleft()
        for line in self.unfolder.unfold(record):
            self.replay.feed(line)
            self.check()
        if any(isinstance(event, ev.Beat) for event in record.events):
            self.unanswered.discard(pid)

    def ask(self) -> None:
        """The collector's next round, once the one before was answered in full."""
        if not self.unanswered:
            self.round += 1
            self.unanswered = set(PEOPLE)
            self.asked = dict.fromkeys(PEOPLE, self.round)

    def check(self) -> None:
        stuck = set(evaluate(self.truth, 0.0).stuck)
        for one in self.replay.report().incidents:
            assert one.resolved_line is None, "a deadlock does not end by itself"
            assert set(one.core) <= stuck, (one, stuck)

    def settle(self) -> None:
        """Everything arrives, and two more rounds are asked."""
        for _ in range(3):
            for pid in PEOPLE:
                self.look(pid)
                while self.channels[pid]:
                    self.deliver(pid)
            self.ask()


@scenarios(400)
@given(st.data())
def test_what_is_reported_is_true_and_in_the_end_all_of_it_is_reported(data: Any) -> None:
    world = World(data.draw)
    for _ in range(data.draw(st.integers(10, 60))):
        pid = data.draw(st.sampled_from(PEOPLE))
        do = data.draw(st.sampled_from([world.act, world.act, world.act, world.look, world.deliver]))
        do(pid)
        if data.draw(st.integers(0, 3)) == 0:
            world.ask()
    world.settle()
    assert set(world.replay.report().final.stuck) == set(evaluate(world.truth, 0.0).stuck)


def test_a_ring_of_an_old_picture_and_a_new_one_is_a_candidate_and_never_an_incident() -> None:
    world = World(lambda _: 0)
    a, b, first, second = *PEOPLE[:2], "lock:1", "lock:2"
    need = {r: (ev.Clause(k=1, of=(ev.Atom(r=r),)),) for r in (first, second)}

    def do(*events: ev.Event) -> None:
        for event in events:
            world.truth.apply(event)

    do(ev.Hold(p=a, r=first), ev.Hold(p=b, r=second), ev.Wait(p=a, ticket=1, needs=need[second]))
    world.look(a)
    do(ev.Release(p=b, r=second), ev.Wake(p=a, ticket=1), ev.Hold(p=a, r=second), ev.Release(p=a, r=second))
    do(ev.Hold(p=b, r=second), ev.Wait(p=b, ticket=2, needs=need[first]))
    world.look(b)
    for pid in (a, b):
        world.deliver(pid)
    assert evaluate(world.replay.graph, 0.0).core == (a, b), "so it looks"
    world.ask()
    world.settle()
    assert world.replay.report().incidents == ()
