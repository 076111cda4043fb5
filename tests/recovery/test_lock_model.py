"""The lock against a model: one queue, one holder, tokens that grow, incarnations that end.

Every question is asked twice and must be answered the same twice, since the store asks again when an answer is lost.
"""

from __future__ import annotations

import itertools
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from unknot.recovery.answers import Answer, ask
from unknot.recovery.interrupts import interrupt, standing
from unknot.recovery.registration import fence, new_boot, register
from unknot.supervisor.store.redis_store import RedisStore

MEMBERS = ("agent/a", "agent/b", "judge/c")
THREADS = ("", "/loader")
_runs = itertools.count(1)

members = st.sampled_from(MEMBERS)
threads = st.sampled_from(THREADS)


class LockMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.store = RedisStore.connect(self.url, f"lock-model-{os.getpid()}-{next(_runs)}")
        self.incarnations = dict.fromkeys(MEMBERS, 0)
        self.tickets = itertools.count(1)
        self.holder: tuple[str, int] | None = None
        self.queue: list[tuple[str, int]] = []
        self.token = 0
        self.spent: list[tuple[str, int]] = []
        for member in MEMBERS:
            self.register(member)

    def teardown(self) -> None:
        self.store.close()

    def twice(self, script: str, *args: Any) -> Answer:
        first = ask(self.store, script, *args)
        assert ask(self.store, script, *args) == first
        return first

    def ask_lock(self, member: str, participant: str, ticket: int, mode: str) -> Answer:
        return self.twice("lock_acquire", "x", member, self.incarnations[member], participant, ticket, mode)

    def participant(self, member: str, thread: str) -> str:
        return f"{member}#{self.incarnations[member]}{thread}"

    def waits(self, participant: str) -> bool:
        return any(who == participant for who, _ in self.queue)

    def pass_on(self) -> None:
        self.holder = self.queue.pop(0) if self.queue else None
        self.token += self.holder is not None

    @rule(member=members, thread=threads, mode=st.sampled_from(["wait", "try"]))
    def acquire(self, member: str, thread: str, mode: str) -> None:
        participant = self.participant(member, thread)
        if self.waits(participant):
            return
        ticket = next(self.tickets)
        answer = self.ask_lock(member, participant, ticket, mode)
        if self.holder is None:
            self.token += 1
            self.holder = (participant, ticket)
            assert answer == ("granted", (b"%d" % self.token,))
        elif mode == "wait":
            assert answer == ("queued", ())
            self.queue.append((participant, ticket))
        else:
            assert answer == ("busy", ())

    @precondition(lambda self: self.holder is not None)
    @rule()
    def release(self) -> None:
        assert self.holder is not None
        participant, ticket = self.holder
        if self.waits(participant):
            return
        member = participant.partition("#")[0]
        who = (member, self.incarnations[member], participant)
        assert ask(self.store, "lock_release", "x", *who, self.token).word == "released"
        assert ask(self.store, "lock_release", "x", *who, self.token).word == "gone"
        self.spent.append((participant, ticket))
        self.pass_on()

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        participant, ticket = data.draw(st.sampled_from(self.queue))
        answer = self.ask_lock(participant.partition("#")[0], participant, ticket, "leave")
        assert answer.word == "left"
        self.queue.remove((participant, ticket))
        self.spent.append((participant, ticket))

    @precondition(lambda self: self.holder is not None)
    @rule()
    def leave_after_the_grant(self) -> None:
        assert self.holder is not None
        participant, ticket = self.holder
        answer = self.ask_lock(participant.partition("#")[0], participant, ticket, "leave")
        assert answer == ("granted", (b"%d" % self.token,))

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        participant, ticket = data.draw(st.sampled_from(self.queue))
        assert interrupt(self.store, participant, ticket, incident="i1")
        assert interrupt(self.store, participant, ticket, incident="i1"), "twice is once"
        self.queue.remove((participant, ticket))
        member = participant.partition("#")[0]
        assert self.ask_lock(member, participant, ticket, "wait") == ("interrupted", (b"i1",))

    @precondition(lambda self: self.spent or self.holder)
    @rule(data=st.data())
    def interrupt_too_late(self, data: st.DataObject) -> None:
        ended = self.spent + ([self.holder] if self.holder else [])
        participant, ticket = data.draw(st.sampled_from(ended))
        assert not interrupt(self.store, participant, ticket, incident="late")

    @rule(member=members)
    def register(self, member: str) -> None:
        boot = new_boot()
        facts = {"role": "agent", "pid": 1, "host": "here", "boot": boot}
        registered = register(self.store, member, **facts)  # type: ignore[arg-type]
        assert register(self.store, member, **facts).incarnation == registered.incarnation  # type: ignore[arg-type]
        self.voided(member, registered.incarnation)

    @rule(member=members)
    def fence(self, member: str) -> None:
        fenced = fence(self.store, member, self.incarnations[member], why="test")
        assert fenced.done
        assert not fence(self.store, member, self.incarnations[member], why="test").done
        self.voided(member, fenced.incarnation)

    def voided(self, member: str, incarnation: int) -> None:
        assert incarnation == self.incarnations[member] + 1
        self.incarnations[member] = incarnation
        mine = f"{member}#"
        self.queue = [wait for wait in self.queue if not wait[0].startswith(mine)]
        self.spent = [wait for wait in self.spent if not wait[0].startswith(mine)]
        if self.holder is not None and self.holder[0].startswith(mine):
            self.pass_on()

    @rule(member=members, thread=threads)
    def an_old_incarnation_is_refused(self, member: str, thread: str) -> None:
        current = self.incarnations[member]
        if current < 2:
            return
        who = (member, current - 1, f"{member}#{current - 1}{thread}")
        fenced = ("fenced", (b"%d" % current,))
        assert self.twice("lock_acquire", "x", *who, next(self.tickets), "wait") == fenced
        assert self.twice("lock_release", "x", *who, self.token) == fenced
        assert self.twice("heartbeat", *who[:2]) == fenced

    @invariant()
    def redis_says_what_the_model_says(self) -> None:
        key = self.store.key
        holder = self.store.command("HMGET", key("lock", "x"), "holder", "ticket", "token")
        expected = (None, None) if self.holder is None else (self.holder[0].encode(), b"%d" % self.holder[1])
        assert (holder[0], holder[1], int(holder[2] or 0)) == (*expected, self.token)
        queued = self.store.command("LRANGE", key("lockq", "x"), 0, -1)
        assert queued == [f"{participant}|{ticket}".encode() for participant, ticket in self.queue]

    @invariant()
    def exactly_the_queued_stand_and_exactly_the_holder_is_recorded(self) -> None:
        asked = self.queue + self.spent + ([self.holder] if self.holder else [])
        stands = standing(self.store, asked)
        assert [wait for wait in asked if stands[wait]] == self.queue
        for member in MEMBERS:
            waits = self.store.command("HLEN", self.store.key("waits", member))
            assert waits == sum(who.startswith(f"{member}#") for who, _ in self.queue)
            held = self.store.command("SMEMBERS", self.store.key("held", member))
            holds = self.holder is not None and self.holder[0].startswith(f"{member}#")
            assert set(held) == ({b"x"} if holds else set())


def test_a_lock_is_its_model(redis_url: str) -> None:
    LockMachine.url = redis_url
    run_state_machine_as_test(
        LockMachine,
        settings=settings(
            max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
