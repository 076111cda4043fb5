"""A live run into a trace: follows the stream of records as a monitor does, and writes what it takes in.

It decides nothing and touches nobody, with one exception: a deadlock in a trace is a candidate until everybody in it has
answered twice, and answers exist only where somebody asks. So it asks rounds of its own when it sees a candidate, as a monitor
would, one at a time: the next one after all have answered, or after `ROUND_S`. That rounds do not overlap is what makes the
answers in the trace a proof for whoever replays it (graph/proof.py). Answers to the rounds of monitors are left out for the same reason.

What only the store knows (items in mailboxes, holders of locks, waits that are over) is asked at the same places as in the
monitor, and written as events of the source `store`.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from unknot.graph.events import Beat, Event, Record
from unknot.graph.finding import Finding
from unknot.graph.ids import parse
from unknot.graph.live import STORE, Absorbed, LiveGraph
from unknot.graph.trace import SCHEMA, Header, encode, encode_header
from unknot.graph.unfold import Unfolder
from unknot.graph.verdict import evaluate
from unknot.recovery.registration import members
from unknot.supervisor.clock import RunClock
from unknot.supervisor.monitor.roster import Roster
from unknot.supervisor.monitor.stream import Stream, full_record
from unknot.supervisor.monitor.truth import StoreTruth
from unknot.supervisor.recorder import commands
from unknot.supervisor.store.redis_store import RedisStore

ROUND_S = 2.0
_TICK_MS = 50
_MEMBERS_EVERY_S = 0.5
_ROUNDS_FOR_EACH = 6
_ROUNDS_KEPT = 1000


@dataclass(slots=True)
class _Rounds:
    """The round that is being asked, and how many each candidate has had. `base` keeps the numbers apart from a monitor's."""

    base: int = field(default_factory=lambda: secrets.randbits(40) << 20)
    number: int = 0
    missing: set[str] = field(default_factory=set)
    until: float = 0.0
    had: dict[str, int] = field(default_factory=dict)

    def mine(self, beat: Beat) -> bool:
        """Whether it answers the present round."""
        return self.number > 0 and beat.round == self.base + self.number

    def next(self, findings: Iterable[Finding], now: float) -> tuple[str, ...]:
        """Whom to ask in a new round, nobody if none is due. `now`: monotonic seconds."""
        if self.missing and now < self.until:
            return ()
        due = [one for one in findings if self.had.get(one.key, 0) < _ROUNDS_FOR_EACH]
        if not due:
            self.missing = set()
            return ()
        for one in due:
            self.had[one.key] = self.had.get(one.key, 0) + 1
        self.had = dict(itertools.islice(reversed(self.had.items()), _ROUNDS_KEPT))
        self.number += 1
        self.missing = {parse(pid).source for one in due for pid in one.closure}
        self.until = now + ROUND_S
        return tuple(sorted(self.missing))


class Tape:
    """Records one run. `turn` is one turn of the loop; `write` takes whole lines.

    Attributes: `events`, how many were written; `bad_records`, how many entries of the stream could not be read.
    """

    def __init__(self, store: RedisStore, write: Callable[[bytes], object]) -> None:
        self.events = 0
        self._store = store
        self._write = write
        self._graph = LiveGraph()
        self._unfolder = Unfolder()
        self._truth = StoreTruth()
        self._roster = Roster()
        self._rounds = _Rounds()
        self._stream = Stream(store)
        self._clock = RunClock()
        self._next_members = 0.0
        self._changed = False
        self._last_record_at = 0.0

    @property
    def bad_records(self) -> int:
        """Entries of the stream that could not be read."""
        return self._stream.bad_records

    def start(self) -> None:
        """Write the header, and what is known now. Raises StoreUnavailable."""
        self._clock.align(self._store.time)
        self._write(encode_header(Header(schema=SCHEMA, run=self._store.run, order="arrival")))
        self._stream.from_now()
        self._members()
        for member in members(self._store):
            for record in self._stream.readable(full_record(self._store, member.source), where=member.source):
                self._take(record)

    def turn(self) -> bool:
        """Read what is new, ask what is due; False once the run has ended. Raises StoreUnavailable."""
        records = self._stream.new_records(_TICK_MS)
        self._ask_the_store()
        for record in records:
            self._take(record)
        now = time.monotonic()
        if now >= self._next_members:
            self._next_members = now + _MEMBERS_EVERY_S
            self._members()
            if not records and self._store.command("HGET", self._store.key("run"), "state") == b"closed":
                return False
        self._ask_round()
        return True

    # --- taking in ---

    def _take(self, record: Record) -> None:
        answers = {event.src for event in record.events if isinstance(event, Beat) and self._rounds.mine(event)}
        kept = tuple(event for event in map(self._renumbered, record.events) if event is not None)
        if record.src == STORE:
            record = msgspec.structs.replace(record, n=0)
        self._absorb(msgspec.structs.replace(record, events=kept))
        self._tell([*self._truth.after(self._graph, record), *self._roster.after(self._graph, record.src)])
        self._rounds.missing -= answers

    def _renumbered(self, event: Event) -> Event | None:
        if not isinstance(event, Beat):
            return event
        if not self._rounds.mine(event):
            return None
        return msgspec.structs.replace(event, round=self._rounds.number)

    def _tell(self, events: list[Event]) -> None:
        if events:
            self._absorb(Record(src=STORE, n=0, t=self._clock(), events=tuple(events)))

    def _absorb(self, record: Record) -> None:
        if self._graph.absorb(record) is not Absorbed.APPLIED:
            return
        self._changed = True
        lines = self._unfolder.unfold(record)
        self.events += len(lines)
        if lines:
            self._write(b"".join(map(encode, lines)))

    def _members(self) -> None:
        self._tell(self._roster.update(self._graph, members(self._store), self._clock()))
        for source in self._roster.behind(self._graph):
            self._graph.lose(source)

    # --- asking ---

    def _ask_the_store(self) -> None:
        asked = self._truth.questions(self._graph)
        if asked:
            self._tell(self._truth.events(self._graph, self._stream.truth(asked)))

    def _ask_round(self) -> None:
        if not self._changed and not self._rounds.missing:
            return
        self._changed = bool(self._rounds.missing)
        sources = self._rounds.next(evaluate(self._graph, self._clock()).findings, time.monotonic())
        if sources:
            self._changed = True
            number = self._rounds.base + self._rounds.number
            self._store.publish("ask", commands.encode(commands.Ask(number, sources)))
