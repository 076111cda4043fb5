"""The double collection: from a candidate to a confirmed finding, as a state machine over values.

Claim. If a candidate is confirmed, there was one instant at which every member of its closed set was blocked
for ever.

1. Order at the source. A thread announces its wait before it blocks and withdraws it after it woke; a hold is
   recorded after it is acquired, a release after it is released. So a process that answers "p stands in
   ticket t" in both rounds had p in that one wait from its first answer to its second: tickets are never
   reused.
2. Round 2 is asked after *all* answers to round 1 have come. Take the instant i at which round 2 is asked:
   every first answer was given before i, every second one after it. At i every member stood in the wait that
   the graph has.
3. A blocked thread acquires, releases, sends and issues nothing. What it holds, has sent and has issued was
   therefore fixed before i, and was in its process's records up to the number in its second answer. The graph
   has absorbed those. So for every *member* the facts in the graph are those of the instant i.
4. What of everybody else? The set is closed: each atom that a member lacks can be served only by members, or
   by participants that have ended. A lock that a stranger claims to hold, a message that a stranger may have
   sent: a stranger that could help would keep the member out of the stuck set by rule, so no fact about a
   stranger is part of the proof, with one exception (5). The end of a participant is final, and if a fence
   passed on what it held, then that fence stands in the stream of records before any answer that was given
   after it.
5. The exception is what the store did for a member that has not woken yet: a message sent by a stranger that
   has ended or lost its right, a grant whose wake-up is on its way. Hence `needs_store_counts`: before it
   feeds the last answer, the caller reads these mailboxes from their owner, the store, and lets the graph
   absorb their counts, and a `Wake` (source `store`, number 0) for each member that no longer stands in
   the store's queue under its ticket.
6. At i the members were blocked in waits that only members could end. None of them can go on first, so none
   ever will; being stuck is stable (deadlines, whose waits are not stuck by definition, are excluded), so it
   holds now.

Who is asked? The closure of the core: the core and everybody that it depends on, since 4 needs all of them.
Not those dragged along: nothing about them is part of the proof that the core is stuck, and a driver that
does not answer must not keep the knot of its trainers from being cut. They are listed as dragged along
because they wait, by their last record, for somebody who is stuck.

When the answers are in, the set is worked out anew. If the graph's members now lean on somebody who was not
asked, the old proof does not cover it: the candidate is dropped and comes again with the right closure. A
timed ring is confirmed the same way; the claim then is that nothing but its deadline ends it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from unknot.graph.analysis import Analysis, neighbours
from unknot.graph.components import reach
from unknot.graph.finding import Finding
from unknot.graph.ids import parse

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph


class Phase(enum.Enum):
    """Where a confirmation stands."""

    NEW = "new"
    FIRST = "first round"
    SECOND = "second round"
    ABSORBING = "reading up to the answers"
    UNKNOWN = "a record is missing"
    CONFIRMED = "confirmed"
    DISSOLVED = "dissolved"
    UNRESPONSIVE = "unresponsive"


LEGAL: Mapping[Phase, frozenset[Phase]] = {
    Phase.NEW: frozenset({Phase.FIRST, Phase.UNKNOWN, Phase.DISSOLVED}),
    Phase.FIRST: frozenset({Phase.SECOND, Phase.UNKNOWN, Phase.DISSOLVED, Phase.UNRESPONSIVE}),
    Phase.SECOND: frozenset({Phase.ABSORBING, Phase.UNKNOWN, Phase.DISSOLVED, Phase.UNRESPONSIVE}),
    Phase.ABSORBING: frozenset({Phase.CONFIRMED, Phase.UNKNOWN, Phase.DISSOLVED}),
    Phase.UNKNOWN: frozenset({Phase.FIRST, Phase.DISSOLVED}),
    Phase.CONFIRMED: frozenset(),
    Phase.DISSOLVED: frozenset(),
    Phase.UNRESPONSIVE: frozenset(),
}


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A publisher's answer: its record number then, and the ticket of each of its participants or None."""

    source: str
    round_id: int
    n: int
    tickets: dict[str, int | None]


class Tick(msgspec.Struct, frozen=True):
    """Time has passed, or records were absorbed. `now` in seconds on a monotonic clock."""

    now: float


class Lost(msgspec.Struct, frozen=True):
    """Records of `source` are known to be lost; call `graph.lose(source)` too."""

    source: str


class Ask(msgspec.Struct, frozen=True):
    """Ask the publishers of `sources` for their tickets, under `round_id`."""

    sources: tuple[str, ...]
    round_id: int


class Confirm(msgspec.Struct, frozen=True):
    """The finding is real."""

    finding: Finding


class Drop(msgspec.Struct, frozen=True):
    """The candidate is none; `reason` for people."""

    reason: str


class Unresponsive(msgspec.Struct, frozen=True):
    """These sources did not answer within the limit."""

    sources: tuple[str, ...]


Input = Answered | Tick | Lost
Instruction = Ask | Confirm | Drop | Unresponsive


def needs_store_counts(finding: Finding) -> tuple[str, ...]:
    """Mailboxes whose counts the caller reads from the store and absorbs before the last answer is fed."""
    return finding.mailboxes


@dataclass(slots=True)
class Confirmation:
    """One candidate on its way. Call `begin`, then `feed` for every input; each returns instructions.

    `rounds` gives round ids, never the same twice among all confirmations of a run. `answer_limit_s`: seconds
    from a question to the last answer, and from the last answer to the reading of the records it names.
    """

    finding: Finding
    rounds: Iterator[int]
    answer_limit_s: float = 2.0
    phase: Phase = Phase.NEW
    _sources: tuple[str, ...] = ()
    _round_id: int = -1
    _asked_at: float = 0.0
    _now: float = 0.0
    _answers: dict[str, Answered] = field(default_factory=dict)
    _first_n: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._sources = tuple(sorted({parse(pid).source for pid in self.finding.closure}))

    @property
    def sources(self) -> tuple[str, ...]:
        """Whom it asks."""
        return self._sources

    @property
    def round_id(self) -> int:
        """The number of the round that it asks now, -1 before the first."""
        return self._round_id

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not LEGAL[self.phase]

    def begin(self, graph: LiveGraph, now: float) -> tuple[Instruction, ...]:
        """Ask the first round. `now` in seconds on the clock of `Tick`."""
        self._now = now
        return self._check(graph) or self._ask(Phase.FIRST)

    def feed(self, value: Input, graph: LiveGraph) -> tuple[Instruction, ...]:
        """Take one input; `graph` has absorbed everything that came before it. Nothing happens once done."""
        if self.done:
            return ()
        if isinstance(value, Tick):
            self._now = max(self._now, value.now)
        if isinstance(value, Lost) and value.source in self._sources:
            return self._go(Phase.UNKNOWN) if self.phase is not Phase.UNKNOWN else ()
        told = self._check(graph)
        if told or self.done or self.phase is Phase.UNKNOWN:
            return told
        if isinstance(value, Answered):
            self._note(value)
        return _STEPS[self.phase](self, graph)

    def validate(self) -> None:
        """Raise AssertionError unless the state is one that the table allows."""
        assert set(self._answers) <= set(self._sources), "an answer of a stranger"
        assert all(one.round_id == self._round_id for one in self._answers.values()), (
            "an answer to another round"
        )
        if self.phase in (Phase.ABSORBING, Phase.CONFIRMED):
            assert set(self._answers) == set(self._sources), "second round not complete"
            assert set(self._first_n) == set(self._sources), "first round not complete"

    # --- steps ---

    def _check(self, graph: LiveGraph) -> tuple[Instruction, ...]:
        """What may happen at any time: a wait has changed, a record is missing, or it came at last."""
        if any(graph.ticket(pid) != self.finding.tickets[pid] for pid in self.finding.closure):
            if any(graph.is_unknown(source) for source in self._sources):
                return self._unknown()
            return self._end(Phase.DISSOLVED, Drop("a wait of it has ended"))
        if any(graph.is_unknown(source) for source in self._sources):
            return self._unknown()
        return self._ask(Phase.FIRST) if self.phase is Phase.UNKNOWN else ()

    def _unknown(self) -> tuple[Instruction, ...]:
        return () if self.phase is Phase.UNKNOWN else self._go(Phase.UNKNOWN)

    def _note(self, answer: Answered) -> None:
        if answer.round_id == self._round_id and answer.source in self._sources:
            self._answers.setdefault(answer.source, answer)

    def _collect(self, _: LiveGraph) -> tuple[Instruction, ...]:
        for pid in self.finding.closure:
            answer = self._answers.get(parse(pid).source)
            if answer is not None and answer.tickets.get(pid) != self.finding.tickets[pid]:
                return self._end(
                    Phase.DISSOLVED, Drop(f"{pid} no longer stands in ticket {self.finding.tickets[pid]}")
                )
        missing = tuple(source for source in self._sources if source not in self._answers)
        if missing:
            late = self._now - self._asked_at > self.answer_limit_s
            return self._end(Phase.UNRESPONSIVE, Unresponsive(missing)) if late else ()
        if self.phase is Phase.FIRST:
            self._first_n = {source: answer.n for source, answer in self._answers.items()}
            return self._ask(Phase.SECOND)
        self._asked_at = self._now
        self._go(Phase.ABSORBING)
        return ()

    def _collect_last(self, graph: LiveGraph) -> tuple[Instruction, ...]:
        told = self._collect(graph)
        return self._absorb(graph) if self.phase is Phase.ABSORBING else told

    def _absorb(self, graph: LiveGraph) -> tuple[Instruction, ...]:
        behind = [
            s for s, answer in self._answers.items() if graph.absorbed(s) < max(answer.n, self._first_n[s])
        ]
        if behind:
            late = self._now - self._asked_at > self.answer_limit_s
            return (
                self._end(Phase.DISSOLVED, Drop(f"records of {', '.join(behind)} did not come"))
                if late
                else ()
            )
        if not holds_still(self.finding, graph):
            return self._end(Phase.DISSOLVED, Drop("somebody can help after all"))
        return self._end(Phase.CONFIRMED, Confirm(self.finding))

    # --- moves ---

    def _ask(self, phase: Phase) -> tuple[Instruction, ...]:
        self._go(phase)
        self._round_id, self._asked_at = next(self.rounds), self._now
        self._answers = {}
        if phase is Phase.FIRST:
            self._first_n = {}
        return (Ask(self._sources, self._round_id),)

    def _end(self, phase: Phase, instruction: Instruction) -> tuple[Instruction, ...]:
        self._go(phase)
        return (instruction,)

    def _go(self, phase: Phase) -> tuple[Instruction, ...]:
        assert phase in LEGAL[self.phase], f"{self.phase} to {phase}"
        self.phase = phase
        return ()


_STEPS: dict[Phase, Callable[[Any, Any], tuple[Instruction, ...]]] = {
    Phase.FIRST: Confirmation._collect,
    Phase.SECOND: Confirmation._collect_last,
    Phase.ABSORBING: Confirmation._absorb,
}


def holds_still(finding: Finding, graph: LiveGraph) -> bool:
    """Whether the core is still stuck in `graph`, in the same waits, and leans on nobody else."""
    if any(graph.ticket(pid) != finding.tickets[pid] for pid in finding.closure):
        return False
    state = Analysis(graph)
    live = state.live_without_deadlines if finding.kind == "timed" else state.live
    stuck = state.waiting.keys() - live
    if not stuck.issuperset(finding.closure):
        return False
    leans = neighbours(state.blockers(stuck, live))
    return reach(leans, finding.core) <= set(finding.closure)
