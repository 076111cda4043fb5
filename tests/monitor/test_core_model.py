"""The leader against a world that it knows only by late, lost and doubled records.

The world is a set of threads and locks that behave as threads and locks do. Whatever the order of events, an incident
`deadlock` is opened only about threads that are deadlocked in that world at that moment; and once the network behaves,
every deadlock is freed and every incident ends.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.monitor.desk import Desk, atom, member
from unknot.graph import events as ev
from unknot.graph.ids import parse
from unknot.supervisor.monitor.instructions import AskRound, CollectStacks, Instruction, InterruptWait, Put

PEOPLE = ("agent/a#1", "agent/a#1/x", "agent/b#1", "judge/c#1")
SOURCES = tuple(sorted({parse(p).source for p in PEOPLE}))
people, sources, locks = st.sampled_from(PEOPLE), st.sampled_from(SOURCES), st.integers(0, 2)


class World(RuleBasedStateMachine):
    """Threads that acquire and release locks; records of them under way to the monitor."""

    in_store = False

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.holder: dict[str, str] = {}
        self.waiting: dict[str, tuple[str, int]] = {}
        self.under_way: dict[str, deque[ev.Record]] = {source: deque() for source in SOURCES}
        self.arrived: list[ev.Record] = []
        self.asked: dict[str, set[int]] = {source: set() for source in SOURCES}
        self.commands: deque[InterruptWait | CollectStacks] = deque()
        self.opened: set[str] = set()
        for p in PEOPLE:
            self.party(p).people.add(p)

    def party(self, p: str) -> Any:
        return self.desk.party(parse(p).source)

    def lock(self, number: int) -> str:
        return f"lock:l{number}" if self.in_store else f"lock:m/{number}"

    # --- what threads do ---

    @rule(p=people, number=locks)
    def acquire(self, p: str, number: int) -> None:
        lock = self.lock(number)
        if p in self.waiting or self.holder.get(lock) == p:
            return
        if lock not in self.holder:
            self._give(lock, p)
        else:
            ticket = next(self.desk.tickets)
            self.waiting[p] = (lock, ticket)
            self.party(p).wait(atom(lock), p=p, ticket=ticket)

    @rule(p=people, number=locks)
    def release(self, p: str, number: int) -> None:
        if p not in self.waiting and self.holder.get(self.lock(number)) == p:
            self._free(self.lock(number))

    def _are_free(self, p: str, q: str, one: int, two: int) -> bool:
        idle = p != q and one != two and not {p, q} & {*self.waiting, *self.holder.values()}
        return idle and not {self.lock(one), self.lock(two)} & self.holder.keys()

    @rule(p=people, q=people, one=locks, two=locks)
    def cross(self, p: str, q: str, one: int, two: int) -> None:
        """A deadlock."""
        if self._are_free(p, q, one, two):
            for who, lock in ((p, one), (q, two), (p, two), (q, one)):
                self.acquire(who, lock)
                self.publish(parse(who).source)

    @rule(p=people, q=people, one=locks, two=locks)
    def nearly_cross(self, p: str, q: str, one: int, two: int) -> None:
        """What looks like a deadlock as long as the last record of `q` is under way: its wait for `one` has ended."""
        if not self._are_free(p, q, one, two):
            return
        for who, lock in ((p, one), (q, two), (q, one)):
            self.acquire(who, lock)
        self.publish(parse(q).source)
        self.release(p, one)
        self.release(q, one)
        for lock in (one, two):
            self.acquire(p, lock)
        self.publish(parse(p).source)
        for who in (q, p):
            while self.under_way[parse(who).source]:
                self.deliver(parse(who).source)

    def _give(self, lock: str, p: str) -> None:
        self.holder[lock] = p
        self.party(p).hold(lock, p)

    def _free(self, lock: str) -> None:
        owner = self.party(self.holder.pop(lock))
        owner.release(lock)
        heir = next((p for p, (wanted, _) in self.waiting.items() if wanted == lock), None)
        if heir is not None:
            del self.waiting[heir]
            self.party(heir).wake(heir)
            self._give(lock, heir)

    # --- what the network does ---

    @rule(source=sources)
    def publish(self, source: str) -> None:
        self.under_way[source].append(self.desk.party(source).record())

    @rule(source=sources)
    def respond(self, source: str) -> None:
        if self.asked[source]:
            self.under_way[source].append(self.desk.party(source).record(*sorted(self.asked[source])))
            self.asked[source].clear()

    @rule(source=sources)
    def forget_to_respond(self, source: str) -> None:
        self.asked[source].clear()

    @rule(source=sources)
    def lose(self, source: str) -> None:
        if self.under_way[source]:
            self.under_way[source].popleft()

    @rule(source=sources)
    def deliver(self, source: str) -> None:
        if self.under_way[source]:
            if self.in_store:
                self.ask_the_store()
            self.arrived.append(self.under_way[source].popleft())
            self._read(self.arrived[-1])

    @precondition(lambda self: self.arrived)
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        self._read(data.draw(st.sampled_from(self.arrived[-8:])))

    def _read(self, record: ev.Record) -> None:
        self._do(self.desk.take(lambda core, now: core.record(record, now)))

    # --- what the monitor's shell does ---

    @rule(seconds=st.sampled_from([0.05, 0.1, 0.3, 0.6, 0.9, 4.0]))
    def tick(self, seconds: float) -> None:
        self.desk.now += seconds
        self._do(self.desk.tick())

    @rule()
    def look_at_members(self) -> None:
        told = [member(s, beat_at=self.desk.now, records=self.desk.party(s).n) for s in SOURCES]
        self._do(self.desk.members(*told))

    def ask_the_store(self) -> None:
        asked = self.desk.core.questions()
        stands = {(p, t): self.waiting.get(p, ("", -1))[1] == t for p, t in asked.stands}
        holders = {name: self.holder.get(f"lock:{name}", "") for name in asked.holders}
        self._do(self.desk.store(stands=stands, holders=holders))

    @rule(answers=st.booleans())
    def carry_out(self, answers: bool) -> None:
        if not self.commands:
            return
        command = self.commands.popleft()
        if isinstance(command, CollectStacks):
            keys, outcome = list(command.keys.values()), "MainThread: user.py:1 f"
        else:
            keys, outcome = [command.key], self._interrupt(command)
        if answers:
            self._do(self.desk.acknowledge(keys, outcome))

    def _interrupt(self, order: InterruptWait) -> str:
        if self.waiting.get(order.participant, ("", -1))[1] != order.ticket:
            return "gone"
        del self.waiting[order.participant]
        self.party(order.participant).wake(order.participant)
        for lock in [lock for lock, p in self.holder.items() if p == order.participant]:
            self._free(lock)
        return "interrupted"

    def _do(self, told: list[Instruction]) -> None:
        for one in told:
            if isinstance(one, AskRound):
                for source in one.sources:
                    self.asked[source].add(one.round_id)
            elif isinstance(one, InterruptWait | CollectStacks):
                self.commands.append(one)
            elif isinstance(one, Put) and one.incident.id not in self.opened:
                self._check_opened(one)

    def _check_opened(self, put: Put) -> None:
        incident = put.incident
        self.opened.add(incident.id)
        assert incident.cause in ("deadlock", "unresponsive"), incident.headline
        if incident.cause == "deadlock":
            for p in incident.core:
                assert self.waiting.get(p, ("", -1))[1] == incident.tickets[p], f"{p} does not stand there any more"
                assert self._is_stuck(p), f"{p} can go on"

    def _is_stuck(self, p: str) -> bool:
        seen: list[str] = []
        while p in self.waiting and p not in seen:
            seen.append(p)
            p = self.holder[self.waiting[p][0]]
        return p in seen

    # --- the end: the network behaves ---

    def teardown(self) -> None:
        for _ in range(60):
            for source in SOURCES:
                self.publish(source)
                self.respond(source)
                while self.under_way[source]:
                    self.deliver(source)
            self.look_at_members()
            self.tick(0.3)
            while self.commands:
                self.carry_out(answers=True)
        assert not any(self._is_stuck(p) for p in self.waiting), "a deadlock that nobody freed"
        for _ in range(10):
            self.tick(0.3)
        left = {one.incident.headline for one in self.desk.core.cases.values()}
        assert left == set(), "an incident that does not end"


class StoreWorld(World):
    """The same with locks of the store, whose word is asked before records are read."""

    in_store = True


@pytest.mark.parametrize("world", [World, StoreWorld])
def test_a_deadlock_is_told_only_of_a_deadlock_and_each_is_freed_whatever_the_network_does(world: type[World]) -> None:
    checked = settings(
        max_examples=40, stateful_step_count=40, deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )  # fmt: skip
    run_state_machine_as_test(world, settings=checked)
