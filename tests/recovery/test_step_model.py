"""Steps of several members against a model: whole commits or nothing, in any order of crashes, roll-backs and full mailboxes.

Every question is asked twice and must be answered the same twice, since the store asks again when an answer is lost.
"""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from unknot.recovery.answers import Answer, ask
from unknot.recovery.interrupts import interrupt
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.store.redis_store import RedisStore

MEMBERS = ("agent/a", "agent/b", "judge/j")
BOXES = ("raw", "scored")
CAPACITY = 3
_runs = itertools.count(1)

members = st.sampled_from(MEMBERS)
boxes = st.sampled_from(BOXES)


@dataclass
class OpenStep:
    """What a member's present step has done so far."""

    received: list[tuple[str, int]] = field(default_factory=list)
    sends: list[tuple[str, bytes]] = field(default_factory=list)
    written: bytes | None = None
    token: int | None = None
    ticket: int | None = None  # of the commit that waits for room

    def plan(self) -> tuple[str, list[bytes]]:
        sends = [{"box": box, "to": "", "origin": "", "number": 0, "sub": ""} for box, _ in self.sends]
        plan = {
            "acks": [f"{box}/{seq}" for box, seq in self.received],
            "sends": sends,
            "writes": ["w"] if self.written is not None else [],
            "publishes": [],
            "locks": [["x", str(self.token)]] if self.token is not None else [],
        }
        bodies = [body for _, body in self.sends] + ([self.written] if self.written is not None else [])
        return json.dumps(plan), bodies


class StepMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.store = RedisStore.connect(self.url, f"step-model-{os.getpid()}-{next(_runs)}")
        self.tickets, self.values = itertools.count(1), itertools.count(1)
        self.incarnations = dict.fromkeys(MEMBERS, 0)
        self.steps: dict[str, OpenStep] = {}
        self.committed = dict.fromkeys(MEMBERS, 0)
        self.state: dict[str, bytes] = {}
        self.queues: dict[str, list[int]] = {box: [] for box in BOXES}
        self.content: dict[str, dict[int, bytes]] = {box: {} for box in BOXES}
        self.consumed: list[bytes] = []
        self.lock: tuple[str, int] | None = None
        self.token = 0
        for member in MEMBERS:
            self.crash(member)
        for box in BOXES:
            assert ask(self.store, "mbox_declare", box, str(CAPACITY), "", "", "step", "arrival", "").word == "ok"

    def teardown(self) -> None:
        self.store.close()

    def who(self, member: str, ticket: int | None = None) -> tuple[str, int, str, int]:
        incarnation = self.incarnations[member]
        return member, incarnation, f"{member}#{incarnation}", next(self.tickets) if ticket is None else ticket

    def twice(self, script: str, *args: Any) -> Answer:
        first = ask(self.store, script, *args)
        assert ask(self.store, script, *args) == first
        return first

    def commit(self, member: str, ticket: int, mode: str = "wait") -> Answer:
        plan, bodies = self.steps[member].plan()
        return self.twice("step_commit", *self.who(member, ticket), mode, self.committed[member], 16, plan, *bodies)

    # The model.

    def fits(self, member: str) -> bool:
        sends = [box for box, _ in self.steps[member].sends]
        return all(len(self.queues[box]) + sends.count(box) <= CAPACITY for box in BOXES if box in sends)

    def carry_out(self, member: str) -> None:
        step = self.steps[member]
        self.consumed += [self.content[box][seq] for box, seq in step.received]
        for box, body in step.sends:
            seq = len(self.content[box]) + 1
            self.content[box][seq] = body
            self.queues[box].append(seq)
        if step.written is not None:
            self.state[member] = step.written
        self.committed[member] += 1
        self.steps[member] = OpenStep()
        self.unlock(member)

    def give_back(self, member: str) -> int:
        step = self.steps.get(member, OpenStep())
        for box, seq in step.received:
            self.queues[box] = sorted([*self.queues[box], seq])
        self.steps[member] = OpenStep()
        self.unlock(member)
        return len(step.received)

    def unlock(self, member: str) -> None:
        if self.lock is not None and self.lock[0] == member:
            self.lock = None

    def running(self, member: str) -> bool:
        return self.steps[member].ticket is None

    # What a step does.

    @rule(member=members, box=boxes)
    def receive(self, member: str, box: str) -> None:
        if not self.running(member):
            return
        answer = self.twice("mbox_receive", box, *self.who(member), "try", "")
        if not self.queues[box]:
            assert answer == ("empty", ())
            return
        seq = self.queues[box].pop(0)
        assert (answer.word, answer.number(), answer.rest[2]) == ("granted", seq, self.content[box][seq])
        self.steps[member].received.append((box, seq))

    @rule(member=members, box=boxes)
    def send(self, member: str, box: str) -> None:
        sends = self.steps[member].sends
        if self.running(member) and sum(to == box for to, _ in sends) < CAPACITY:
            sends.append((box, b"v%d" % next(self.values)))

    @rule(member=members)
    def write(self, member: str) -> None:
        if self.running(member):
            self.steps[member].written = b"w%d" % next(self.values)

    @rule(member=members)
    def take_the_lock(self, member: str) -> None:
        if not self.running(member) or self.steps[member].token is not None:
            return
        answer = self.twice("lock_acquire", "x", *self.who(member), "try")
        if self.lock is not None:
            assert answer.word == "busy"
            return
        self.token += 1
        assert answer == ("granted", (b"%d" % self.token,))
        self.lock, self.steps[member].token = (member, self.token), self.token

    # How it ends.

    @rule(member=members)
    def end_the_block(self, member: str) -> None:
        step = self.steps[member]
        ticket = step.ticket or next(self.tickets)
        if self.fits(member):
            before = self.committed[member]
            plan, bodies = step.plan()
            args: tuple[Any, ...] = (*self.who(member, ticket), "wait", before, 16, plan, *bodies)
            assert self.twice("step_commit", *args) == ("committed", (b"%d" % (before + 1), b"0"))
            self.carry_out(member)
            assert ask(self.store, "step_commit", *args).word == "committed", "also later"
        else:
            assert self.commit(member, ticket) == ("queued", ())
            step.ticket = ticket

    @rule(member=members)
    def another_commit_of_the_same_step_is_a_conflict(self, member: str) -> None:
        if self.committed[member]:
            stale = self.committed[member] - 1
            empty, _ = OpenStep().plan()
            answer = self.twice("step_commit", *self.who(member), "wait", stale, 16, empty)
            assert answer.word == "conflict"

    @rule(member=members)
    def roll_back(self, member: str) -> None:
        step = self.steps[member]
        if step.ticket is not None:
            assert self.commit(member, step.ticket, "leave").word == "left"
        plan, _ = step.plan()
        back = len(step.received)
        name, incarnation, participant, _ = self.who(member, 0)
        assert ask(self.store, "step_rollback", name, incarnation, participant, plan) == ("ok", (back,))
        assert ask(self.store, "step_rollback", name, incarnation, participant, plan) == ("ok", (0,)), "twice is once"
        self.give_back(member)

    @precondition(lambda self: any(step.ticket for step in self.steps.values()))
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from([m for m in MEMBERS if self.steps[m].ticket is not None]))
        ticket = self.steps[member].ticket
        assert ticket is not None
        assert interrupt(self.store, self.who(member, 0)[2], ticket, incident="i1")
        assert self.commit(member, ticket) == ("interrupted", (b"i1",))
        self.roll_back_after_interrupt(member)

    def roll_back_after_interrupt(self, member: str) -> None:
        plan, _ = self.steps[member].plan()
        name, incarnation, participant, _ = self.who(member, 0)
        ask(self.store, "step_rollback", name, incarnation, participant, plan)
        self.give_back(member)

    @rule(member=members)
    def crash(self, member: str) -> None:
        boot = new_boot()
        registered = register(self.store, member, role="agent", pid=1, host="here", boot=boot)
        assert registered.incarnation == self.incarnations[member] + 1
        self.incarnations[member] = registered.incarnation
        assert registered.items_put_back == self.give_back(member)

    @rule(member=members)
    def an_old_incarnation_commits_nothing(self, member: str) -> None:
        current = self.incarnations[member]
        if current < 2:
            return
        plan, bodies = OpenStep(sends=[("raw", b"late")]).plan()
        old = (member, current - 1, f"{member}#{current - 1}", next(self.tickets))
        answer = self.twice("step_commit", *old, "wait", self.committed[member], 16, plan, *bodies)
        assert answer == ("fenced", (b"%d" % current,))

    # What must hold.

    @invariant()
    def redis_says_what_the_model_says(self) -> None:
        command, key = self.store.command, self.store.key
        for box in BOXES:
            assert [int(seq) for seq in command("LRANGE", key("mboxq", box), 0, -1)] == self.queues[box]
            waiting = {e.decode().partition("#")[0] for e in command("LRANGE", key("mboxc", box), 0, -1)}
            assert waiting == {m for m in MEMBERS if self.steps[m].ticket and box in dict(self.steps[m].sends)}
        for member in MEMBERS:
            held = sorted(f"{box}/{seq}".encode() for box, seq in self.steps[member].received)
            assert sorted(command("HKEYS", key("unacked", member))) == held
            assert int(command("HGET", key("step", member), "committed") or 0) == self.committed[member]
            assert command("HGET", key("state", member), "w") == self.state.get(member)
            assert command("HLEN", key("waits", member)) == (self.steps[member].ticket is not None)
        holder = command("HGET", key("lock", "x"), "holder")
        assert (holder or b"").decode().partition("#")[0] == (self.lock[0] if self.lock else "")

    @invariant()
    def nothing_is_lost_and_nothing_is_there_twice(self) -> None:
        here = [self.content[box][seq] for box in BOXES for seq in self.queues[box]]
        here += [self.content[box][seq] for step in self.steps.values() for box, seq in step.received]
        everything = [body for box in BOXES for body in self.content[box].values()]
        assert sorted(here + self.consumed) == sorted(everything)
        for box in BOXES:
            held = sum(one == box for step in self.steps.values() for one, _ in step.received)
            assert self.store.command("HLEN", self.store.key("mboxi", box)) == 2 * (len(self.queues[box]) + held)
            told = self.store.command("HVALS", self.store.key("holding", box))
            assert sum(int(count) for count in told) == held


def test_steps_are_their_model(redis_url: str) -> None:
    StepMachine.url = redis_url
    run_state_machine_as_test(
        StepMachine,
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
