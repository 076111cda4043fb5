"""A mailbox in order of origin and takes from it against a model: relays in any order, crashes, repeats, origins that end.

Origins send into `raw`, judges relay from there to `scored`, which a reader and a trainer group consume.
"""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from unknot.recovery.answers import Answer, ask
from unknot.recovery.registration import end, new_boot, register
from unknot.supervisor.store.redis_store import RedisStore

ORIGINS = ("agent/a", "agent/b", "agent/c")
JUDGES = ("judge/0", "judge/1")
READER, RANK = "trainer/reader", "trainer/0"
CAPACITY = 2
_runs = itertools.count(1)

origins = st.sampled_from(ORIGINS)
judges = st.sampled_from(JUDGES)
Turn = tuple[int, int]  # number of the origin, its place


class OriginMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.store = RedisStore.connect(self.url, f"origin-model-{os.getpid()}-{next(_runs)}")
        self.tickets = itertools.count(1)
        self.incarnations: dict[str, int] = {}
        self.sent = dict.fromkeys(ORIGINS, 0)
        self.ended: set[str] = set()
        self.raw: list[tuple[int, Turn]] = []  # seq, turn; in order of sending
        self.raw_held: dict[str, list[tuple[int, Turn]]] = {judge: [] for judge in JUDGES}
        self.raw_seq = 0
        self.scored: dict[Turn, int] = {}  # queued: turn -> seq
        self.scored_seq = 0
        self.scored_held: dict[Turn, int] = {}
        self.turn: Turn = (1, 0)
        self.delivered: list[Turn] = []
        self.skipped = False
        self.takes: dict[tuple[int, int], list[Turn]] = {}
        self.place = (0, 0)
        for member in (*ORIGINS, *JUDGES, READER, RANK):
            self.join(member)
        declare = ("mbox_declare", "raw", "100", "", "", "step", "arrival", "")
        assert ask(self.store, *declare).word == "ok"
        listed = json.dumps(ORIGINS)
        assert ask(self.store, "mbox_declare", "scored", str(CAPACITY), "", "", "manifest", "origin", listed).word == "ok"
        for origin in (*reversed(ORIGINS), *reversed(ORIGINS)):
            self.send(origin)

    def teardown(self) -> None:
        self.store.close()

    def join(self, member: str) -> None:
        facts = {"role": member.partition("/")[0], "pid": 1, "host": "here", "boot": new_boot()}
        self.incarnations[member] = register(self.store, member, **facts).incarnation  # type: ignore[arg-type]

    def who(self, member: str, ticket: int | None = None) -> tuple[str, int, str, int]:
        incarnation = self.incarnations[member]
        return member, incarnation, f"{member}#{incarnation}", next(self.tickets) if ticket is None else ticket

    def twice(self, script: str, *args: Any) -> Answer:
        first = ask(self.store, script, *args)
        assert ask(self.store, script, *args) == first
        return first

    # The model.

    def may_still_come(self, turn: Turn) -> bool:
        origin = ORIGINS[turn[1]]
        alive = [t for _, t in self.raw] + [t for held in self.raw_held.values() for _, t in held]
        if turn in alive:
            return True
        return self.sent[origin] < turn[0] and origin not in self.ended

    def is_due(self, turn: Turn) -> bool:
        before = itertools.takewhile(lambda t: t < turn, _turns_from(self.turn))
        return not any(self.may_still_come(t) for t in before)

    def next_due(self) -> Turn | None:
        first = min(self.scored, default=None)
        return first if first is not None and self.is_due(first) else None

    def deliver(self) -> tuple[Turn, int]:
        turn = min(self.scored)
        self.skipped = self.skipped or any(t not in self.delivered for t in _turns_before(turn))
        if turn not in self.delivered:
            self.delivered.append(turn)
        if turn >= self.turn:
            self.turn = (turn[0], turn[1] + 1) if turn[1] + 1 < len(ORIGINS) else (turn[0] + 1, 0)
        return turn, self.scored.pop(turn)

    # Origins and judges.

    @rule(origin=origins)
    def send_again(self, origin: str) -> None:
        self.send(origin)

    @rule(origin=origins)
    def send(self, origin: str) -> None:
        if origin in self.ended:
            return
        answer = self.twice("mbox_send", "raw", *self.who(origin), "wait", "", b"value")
        assert answer.word == "granted"
        self.sent[origin] += 1
        self.raw_seq += 1
        self.raw.append((self.raw_seq, (self.sent[origin], ORIGINS.index(origin))))

    @rule(origin=origins)
    def an_origin_ends(self, origin: str) -> None:
        if origin not in self.ended:
            end(self.store, origin, self.incarnations[origin], state="done")
            self.ended.add(origin)

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def an_origin_comes_back(self, data: st.DataObject) -> None:
        origin = data.draw(st.sampled_from(sorted(self.ended)))
        self.join(origin)
        self.ended.discard(origin)

    @rule(judge=judges)
    def a_judge_receives(self, judge: str) -> None:
        answer = self.twice("mbox_receive", "raw", *self.who(judge), "try", "")
        if not self.raw:
            assert answer.word == "empty"
            return
        item = self.raw.pop(0)
        assert answer.number() == item[0]
        self.raw_held[judge].append(item)

    @rule(judge=judges, data=st.data(), passes_on=st.sampled_from([True, True, True, False]))
    def a_judge_commits(self, judge: str, data: st.DataObject, *, passes_on: bool) -> None:
        if not self.raw_held[judge]:
            return
        seq, turn = data.draw(st.sampled_from(self.raw_held[judge]))
        origin = ORIGINS[turn[1]]
        send = {"box": "scored", "to": "", "origin": origin, "number": turn[0], "sub": ""}
        plan = {"acks": [f"raw/{seq}"], "sends": [send] if passes_on else [], "writes": [], "publishes": [], "locks": []}
        ticket = next(self.tickets)
        step = int(self.store.command("HGET", self.store.key("step", judge), "committed") or 0)
        room = len(self.scored) < CAPACITY or (self.is_due(turn) and self.next_due() is None)
        args = (*self.who(judge, ticket), "wait", step, 16, json.dumps(plan), *([b"scored"] if passes_on else []))
        answer = self.twice("step_commit", *args)
        if passes_on and not room:
            assert answer.word == "queued"
            assert self.twice("step_commit", *args[:4], "leave", *args[5:]).word == "left"
            return
        assert answer.word == "committed"
        self.raw_held[judge].remove((seq, turn))
        if passes_on:
            self.scored_seq += 1
            self.scored[turn] = self.scored_seq

    @rule(judge=judges, data=st.data(), items=st.integers(1, 3))
    def a_judge_works(self, judge: str, data: st.DataObject, items: int) -> None:
        for _ in range(items):
            self.a_judge_receives(judge)
        for _ in range(items):
            self.a_judge_commits(judge, data, passes_on=True)

    @rule(judge=judges, data=st.data())
    def a_judge_works_too(self, judge: str, data: st.DataObject) -> None:
        self.a_judge_works(judge, data, items=2)

    @rule(judge=judges)
    def a_judge_crashes(self, judge: str) -> None:
        self.join(judge)
        self.raw = sorted(self.raw + self.raw_held[judge])
        self.raw_held[judge] = []

    # Consumers.

    @rule()
    def read(self) -> None:
        answer = self.twice("mbox_receive", "scored", *self.who(READER), "try", "")
        if self.next_due() is None:
            assert answer.word == "empty"
            return
        turn, seq = self.deliver()
        assert answer.number() == seq
        self.scored_held[turn] = seq

    @rule()
    def read_all(self) -> None:
        while self.next_due() is not None:
            self.read()

    @rule()
    def the_reader_puts_back(self) -> None:
        who = self.who(READER)[:2]
        assert ask(self.store, "mbox_requeue", *who, "scored", "") == ("ok", (len(self.scored_held),))
        self.scored |= self.scored_held
        self.scored_held = {}

    @rule()
    def the_reader_acknowledges(self) -> None:
        ids = [f"scored/{seq}" for seq in self.scored_held.values()]
        if ids:
            assert ask(self.store, "mbox_ack", *self.who(READER)[:2], *ids).number() == len(ids)
        self.scored_held = {}

    @rule(n=st.sampled_from([1, 2, 3]), again=st.booleans())
    def the_group_takes(self, n: int, *, again: bool) -> None:
        """A new take, or once more one that was made."""
        if again and self.takes:
            place = max(self.takes)
        elif len(self.takes.get(self.place, [])) == self.wanted(self.place):
            place = (self.place[0] + 1, 0) if n == 1 else (self.place[0], self.place[1] + 1)
        else:
            place = self.place
        self.place = place
        taken = self.takes.setdefault(place, [])
        wanted = self.wanted(place)
        while len(taken) < wanted and self.next_due() is not None:
            turn, seq = self.deliver()
            taken.append((turn[0] * 100 + turn[1], seq))
        args = ("policy", *place, "scored", wanted, "", *self.who(RANK), "try")
        answer = ask(self.store, "take", *args)
        assert ask(self.store, "take", *args) == answer
        if len(taken) < wanted:
            assert answer == ("empty", (b"%d" % len(taken),))
        else:
            assert [int(seq) for seq in answer.rest[1::3]] == [seq for _, seq in taken]

    def wanted(self, place: tuple[int, int]) -> int:
        return 1 + (place[0] + place[1]) % 3

    @rule()
    def the_group_settles(self) -> None:
        """A manifest covers what was taken in earlier steps."""
        complete = [p for p, taken in self.takes.items() if p[0] < self.place[0] and len(taken) == self.wanted(p)]
        consumed = sum(len(self.takes.pop(place)) for place in complete)
        incomplete = [p for p in self.takes if p[0] < self.place[0]]
        assert incomplete == []
        assert ask(self.store, "take_settle", "policy", self.place[0], "manifest", "", "").number() == consumed

    # What must hold.

    @invariant()
    def redis_says_what_the_model_says(self) -> None:
        command, key = self.store.command, self.store.key
        queued = [int(rank.rpartition(b"!")[2]) for rank in command("ZRANGE", key("mboxo", "scored"), 0, -1)]
        assert queued == [self.scored[turn] for turn in sorted(self.scored)]
        assert [int(seq) for seq in command("LRANGE", key("mboxq", "raw"), 0, -1)] == [seq for seq, _ in self.raw]
        round_, place = command("HMGET", key("mbox", "scored"), "round", "place")
        assert (int(round_), int(place)) == self.turn
        kept = sum(len(taken) for taken in self.takes.values())
        assert sum(int(n) for n in command("HVALS", key("kept", "policy"))) == kept
        stored = len(self.scored) + len(self.scored_held) + kept
        assert command("HLEN", key("mboxi", "scored")) == 2 * stored

    @invariant()
    def every_item_in_a_queue_or_in_hand_is_known_by_its_origin_and_no_other(self) -> None:
        in_raw = [*self.raw, *(item for held in self.raw_held.values() for item in held)]
        here = [(f"raw/{seq}", turn) for seq, turn in in_raw]
        here += [(f"scored/{seq}", turn) for turn, seq in (*self.scored.items(), *self.scored_held.items())]
        for place, origin in enumerate(ORIGINS):
            told = self.store.command("ZRANGE", self.store.key("origin", origin), 0, -1)
            assert sorted(one.decode() for one in told) == sorted(item for item, turn in here if turn[1] == place)

    @invariant()
    def what_was_delivered_is_in_the_order_of_turns_unless_a_turn_was_passed_over(self) -> None:
        if not self.skipped:
            assert self.delivered == sorted(self.delivered)

    @invariant()
    def a_full_mailbox_exceeds_its_capacity_by_the_due_item_alone(self) -> None:
        assert len(self.scored) <= CAPACITY + 1 + len(self.delivered)
        if not self.delivered:
            assert len(self.scored) <= CAPACITY + 1


def _turns_from(turn: Turn) -> Any:
    number, place = turn
    while True:
        yield number, place
        number, place = (number, place + 1) if place + 1 < len(ORIGINS) else (number + 1, 0)


def _turns_before(turn: Turn) -> list[Turn]:
    return list(itertools.takewhile(lambda t: t < turn, _turns_from((1, 0))))


def test_order_of_origin_and_takes_are_their_model(redis_url: str) -> None:
    OriginMachine.url = redis_url
    run_state_machine_as_test(
        OriginMachine,
        settings=settings(
            max_examples=25, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
