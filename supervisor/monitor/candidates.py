"""Candidates on their way to being confirmed: one double collection each, asked again while it is not answered.

Publish/subscribe forgets what nobody heard, so a question may be lost with a connection. The same round is therefore asked
again a few times within its limit, of those who have not answered; an answer that comes twice counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from unknot.graph.confirm import Answered, Ask, Confirm, Confirmation, Instruction, Tick, Unresponsive
from unknot.graph.finding import Finding
from unknot.graph.live import LiveGraph
from unknot.supervisor.monitor.instructions import AskRound

_ASKED_IN_ALL = 4
Ended = Confirm | Unresponsive


@dataclass(slots=True)
class _Candidate:
    confirmation: Confirmation
    round_id: int = -1
    again_at: float = float("inf")
    silent: set[str] = field(default_factory=set)


class Candidates:
    """All candidates of a leader, by incident id. `answer_limit_s`: seconds that a round may take."""

    def __init__(self, rounds: Iterator[int], *, answer_limit_s: float) -> None:
        self._rounds = rounds
        self._limit_s = answer_limit_s
        self._all: dict[str, _Candidate] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._all

    def __len__(self) -> int:
        return len(self._all)

    def forget(self, is_over: Callable[[str], bool]) -> None:
        """Forget those that would have to ask a source that is over: their waits have ended with it."""
        self._all = {
            key: one for key, one in self._all.items() if not any(map(is_over, one.confirmation.sources))
        }  # fmt: skip

    def clear(self) -> None:
        """Forget all: what was asked may have been lost."""
        self._all.clear()

    def begin(self, key: str, finding: Finding, graph: LiveGraph, now: float) -> list[AskRound]:
        """A finding that is not known yet."""
        confirmation = Confirmation(finding, self._rounds, answer_limit_s=self._limit_s)
        self._all[key] = _Candidate(confirmation)
        asks = self._asks(key, confirmation.begin(graph, now), now)
        if confirmation.done:
            del self._all[key]
        return asks

    def feed(
        self, value: Answered | Tick, graph: LiveGraph, now: float
    ) -> tuple[list[AskRound], list[tuple[str, Finding, Ended]]]:
        """An input for all of them: what to ask now, and which of them have ended how."""
        asks: list[AskRound] = []
        ended: list[tuple[str, Finding, Ended]] = []
        for key, candidate in list(self._all.items()):
            told = candidate.confirmation.feed(value, graph)
            if isinstance(value, Answered) and value.round_id == candidate.round_id:
                candidate.silent.discard(value.source)
            asks += self._asks(key, told, now)
            ended += [(key, candidate.confirmation.finding, one) for one in told if isinstance(one, Ended)]
            if candidate.confirmation.done:
                del self._all[key]
        return asks, ended

    def overdue(self, now: float) -> list[AskRound]:
        """Rounds to ask again, of those who have not answered."""
        asks = []
        for candidate in self._all.values():
            if candidate.silent and now >= candidate.again_at:
                candidate.again_at = now + self._limit_s / _ASKED_IN_ALL
                asks.append(AskRound(tuple(sorted(candidate.silent)), candidate.round_id))
        return asks

    def validate(self) -> None:
        """Raise AssertionError unless all parts agree."""
        for candidate in self._all.values():
            candidate.confirmation.validate()
            assert not candidate.confirmation.done, "a candidate that has ended is kept"
            assert candidate.silent <= set(candidate.confirmation.sources), "a stranger is asked"

    def _asks(self, key: str, told: tuple[Instruction, ...], now: float) -> list[AskRound]:
        asks = []
        for one in told:
            if isinstance(one, Ask):
                candidate = self._all[key]
                candidate.round_id, candidate.silent = one.round_id, set(one.sources)
                candidate.again_at = now + self._limit_s / _ASKED_IN_ALL
                asks.append(AskRound(one.sources, one.round_id))
        return asks
