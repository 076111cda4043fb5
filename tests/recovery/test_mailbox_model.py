"""The mailbox against a model: order, capacity, one consumption per acknowledgement, nothing lost, nothing twice.

Every question is asked twice and must be answered the same twice, since the store asks again when an answer is lost.
"""

from __future__ import annotations

import itertools
import os
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from unknot.recovery.answers import Answer, ask
from unknot.recovery.interrupts import interrupt
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.store.redis_store import RedisStore

MEMBERS = ("agent/a", "agent/b", "judge/c")
THREADS = ("", "/loader")
CAPACITY = 2
_runs = itertools.count(1)

members = st.sampled_from(MEMBERS)
threads = st.sampled_from(THREADS)


class Wait(NamedTuple):
    member: str
    participant: str
    ticket: int
    value: bytes = b""


class MailboxMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.store = RedisStore.connect(self.url, f"mailbox-model-{os.getpid()}-{next(_runs)}")
        self.incarnations = dict.fromkeys(MEMBERS, 0)
        self.tickets = itertools.count(1)
        self.values = itertools.count(1)
        self.queue: list[int] = []
        self.content: dict[int, tuple[str, int, bytes]] = {}
        self.receivers: list[Wait] = []
        self.senders: list[Wait] = []
        self.unacked: dict[str, list[int]] = {member: [] for member in MEMBERS}
        self.numbers = dict.fromkeys(MEMBERS, 0)
        self.served: dict[Wait, int] = {}
        self.sent_values: set[bytes] = set()
        self.consumed: list[bytes] = []
        for member in MEMBERS:
            self.register(member)
        assert ask(self.store, "mbox_declare", "q", str(CAPACITY), "", "", "step", "arrival", "").word == "ok"

    def teardown(self) -> None:
        self.store.close()

    def twice(self, script: str, *args: Any) -> Answer:
        first = ask(self.store, script, *args)
        assert ask(self.store, script, *args) == first
        return first

    def new_wait(self, member: str, thread: str, value: bytes = b"") -> Wait | None:
        """A request of a thread that does not wait already."""
        participant = f"{member}#{self.incarnations[member]}{thread}"
        if any(wait.participant == participant for wait in self.receivers + self.senders):
            return None
        return Wait(member, participant, next(self.tickets), value)

    def ask_receive(self, wait: Wait, mode: str) -> Answer:
        who = (wait.member, self.incarnations[wait.member], wait.participant, wait.ticket)
        return self.twice("mbox_receive", "q", *who, mode, "")

    def ask_send(self, wait: Wait, mode: str, *value: bytes) -> Answer:
        who = (wait.member, self.incarnations[wait.member], wait.participant, wait.ticket)
        return self.twice("mbox_send", "q", *who, mode, "", *value)

    # The model.

    def put_in(self, wait: Wait) -> int:
        self.numbers[wait.member] += 1
        seq = len(self.content) + 1
        self.content[seq] = (f"{wait.member}#{self.incarnations[wait.member]}", self.numbers[wait.member], wait.value)
        self.queue.append(seq)
        return self.numbers[wait.member]

    def pump(self) -> None:
        while True:
            if self.queue and self.receivers:
                self.hand(self.receivers.pop(0))
            elif len(self.queue) < CAPACITY and self.senders:
                sender = self.senders.pop(0)
                self.served[sender] = self.put_in(sender)
            else:
                return

    def hand(self, receiver: Wait) -> int:
        seq = self.queue.pop(0)
        self.unacked[receiver.member].append(seq)
        self.served[receiver] = seq
        return seq

    def put_back(self, member: str) -> None:
        self.queue = sorted(self.queue + self.unacked[member])
        self.unacked[member] = []
        self.pump()

    def item(self, seq: int) -> tuple[bytes, str, int, bytes]:
        return (b"%d" % seq, *self.content[seq])

    def said(self, answer: Answer) -> tuple[bytes, str, int, bytes]:
        sender, number, *_ = answer.text(1).split("|")
        return (answer.rest[0], sender, int(number), answer.rest[2])

    # What threads do.

    @rule(member=members, thread=threads, mode=st.sampled_from(["wait", "wait", "try"]))
    def send(self, member: str, thread: str, mode: str) -> None:
        value = b"v%d" % next(self.values)
        wait = self.new_wait(member, thread, value)
        if wait is None:
            return
        room = len(self.queue) < CAPACITY and not self.senders
        answer = self.ask_send(wait, mode, value)
        if room:
            self.sent_values.add(value)
            number = self.put_in(wait)
            assert answer == ("granted", (b"%d" % number,))
            self.pump()
        elif mode == "wait":
            assert answer == ("queued", ())
            self.senders.append(wait)
            self.sent_values.add(value)
        else:
            assert answer == ("full", ())

    @rule(member=members, thread=threads, mode=st.sampled_from(["wait", "try"]))
    def receive(self, member: str, thread: str, mode: str) -> None:
        wait = self.new_wait(member, thread)
        if wait is None:
            return
        answer = self.ask_receive(wait, mode)
        if self.queue:
            seq = self.hand(wait)
            assert self.said(answer) == self.item(seq)
            self.pump()
        elif mode == "wait":
            assert answer == ("queued", ())
            self.receivers.append(wait)
        else:
            assert answer == ("empty", ())

    @precondition(lambda self: self.senders or self.receivers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        wait = data.draw(st.sampled_from(self.senders + self.receivers))
        if wait in self.senders:
            assert self.ask_send(wait, "leave").word == "left"
            self.senders.remove(wait)
            self.sent_values.discard(wait.value)
        else:
            assert self.ask_receive(wait, "leave").word == "left"
            self.receivers.remove(wait)

    @precondition(lambda self: self.senders or self.receivers)
    @rule(data=st.data())
    def interrupt(self, data: st.DataObject) -> None:
        wait = data.draw(st.sampled_from(self.senders + self.receivers))
        assert interrupt(self.store, wait.participant, wait.ticket, incident="i1")
        if wait in self.senders:
            self.senders.remove(wait)
            self.sent_values.discard(wait.value)
            assert self.ask_send(wait, "wait") == ("interrupted", (b"i1",))
        else:
            self.receivers.remove(wait)
            assert self.ask_receive(wait, "wait") == ("interrupted", (b"i1",))

    @rule(data=st.data(), mode=st.sampled_from(["wait", "leave"]))
    def the_woken_learn_what_they_got_even_when_they_leave(self, data: st.DataObject, mode: str) -> None:
        latest = {wait.participant: wait for wait in self.served}
        held = [
            wait
            for wait in latest.values()
            if wait.value or self.served[wait] in self.unacked[wait.member]
            if not any(other.participant == wait.participant for other in self.senders + self.receivers)
        ]
        if not held:
            return
        wait = data.draw(st.sampled_from(held))
        if wait.value:
            answer = self.ask_send(wait, mode)
            # A later request of the same thread makes the earlier one forgotten: it had its answer.
            assert answer.word in ("granted", "lost", "left")
            if answer.word == "granted":
                assert answer.number() == self.served[wait]
        elif mode == "wait" and self.is_latest_request(wait):
            assert self.said(self.ask_receive(wait, mode)) == self.item(self.served[wait])

    def is_latest_request(self, wait: Wait) -> bool:
        asked = self.store.command("HGET", self.store.key("asked", wait.member), wait.participant)
        return bool(asked == f"{wait.ticket}|granted:{self.served[wait]}".encode())

    @precondition(lambda self: any(self.unacked.values()))
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from([m for m in MEMBERS if self.unacked[m]]))
        seq = data.draw(st.sampled_from(self.unacked[member]))
        who = (member, self.incarnations[member])
        assert ask(self.store, "mbox_ack", *who, f"q/{seq}") == ("ok", (1,))
        assert ask(self.store, "mbox_ack", *who, f"q/{seq}") == ("ok", (0,)), "twice is once"
        self.unacked[member].remove(seq)
        self.consumed.append(self.content[seq][2])

    @rule(member=members)
    def put_all_back(self, member: str) -> None:
        count = len(self.unacked[member])
        answer = ask(self.store, "mbox_requeue", member, self.incarnations[member], "q", "")
        assert answer == ("ok", (count,))
        self.put_back(member)

    @rule(member=members)
    def register(self, member: str) -> None:
        boot = new_boot()
        registered = register(self.store, member, role="agent", pid=1, host="here", boot=boot)
        again = register(self.store, member, role="agent", pid=1, host="here", boot=boot)
        assert (registered.incarnation, again.incarnation) == (self.incarnations[member] + 1,) * 2
        assert registered.items_put_back == len(self.unacked[member])
        for wait in self.senders:
            if wait.member == member:
                self.sent_values.discard(wait.value)
        self.incarnations[member] = registered.incarnation
        self.numbers[member] = 0
        self.senders = [wait for wait in self.senders if wait.member != member]
        self.receivers = [wait for wait in self.receivers if wait.member != member]
        self.served = {wait: got for wait, got in self.served.items() if wait.member != member}
        self.put_back(member)

    @rule(member=members)
    def an_old_incarnation_is_refused(self, member: str) -> None:
        current = self.incarnations[member]
        if current < 2:
            return
        old = (member, current - 1)
        request = (*old, f"{member}#{current - 1}", next(self.tickets), "wait")
        fenced = ("fenced", (b"%d" % current,))
        assert self.twice("mbox_send", "q", *request, "", b"late") == fenced
        assert self.twice("mbox_receive", "q", *request, "") == fenced
        assert self.twice("mbox_ack", *old, "q/1") == fenced
        assert self.twice("mbox_requeue", *old, "", "") == fenced

    # What must hold.

    @invariant()
    def redis_says_what_the_model_says(self) -> None:
        command, key = self.store.command, self.store.key
        assert [int(seq) for seq in command("LRANGE", key("mboxq", "q"), 0, -1)] == self.queue
        assert command("LRANGE", key("mboxr", "q"), 0, -1) == [self.entry(wait) for wait in self.receivers]
        assert command("LRANGE", key("mboxs", "q"), 0, -1) == [self.entry(wait) for wait in self.senders]
        for member in MEMBERS:
            held = command("HKEYS", key("unacked", member))
            assert sorted(held) == sorted(f"q/{seq}".encode() for seq in self.unacked[member])
        sent, taken, acked = command("HMGET", key("mbox", "q"), "sent", "taken", "acked")
        in_hands = sum(len(seqs) for seqs in self.unacked.values())
        assert int(sent or 0) == len(self.content)
        assert int(acked or 0) == len(self.consumed)
        assert int(taken or 0) == len(self.consumed) + in_hands

    @invariant()
    def the_queue_is_in_the_order_of_sending(self) -> None:
        assert self.queue == sorted(self.queue)

    @invariant()
    def nothing_is_lost_and_nothing_is_there_twice(self) -> None:
        here = [self.content[seq][2] for seq in self.queue]
        here += [self.content[seq][2] for seqs in self.unacked.values() for seq in seqs]
        here += [wait.value for wait in self.senders] + self.consumed
        assert sorted(here) == sorted(self.sent_values)
        values = self.store.command("HLEN", self.store.key("mboxi", "q"))
        assert values == 2 * (len(self.content) - len(self.consumed)), "no value is kept after its acknowledgement"
        assert self.store.command("HLEN", self.store.key("mboxw", "q")) == len(self.senders)

    def entry(self, wait: Wait) -> bytes:
        return f"{wait.participant}|{wait.ticket}".encode()


def test_a_mailbox_is_its_model(redis_url: str) -> None:
    MailboxMachine.url = redis_url
    run_state_machine_as_test(
        MailboxMachine,
        settings=settings(
            max_examples=25, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
