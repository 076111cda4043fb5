"""Double collection from recorded answers: which candidates of a trace were confirmed by what it holds.

The same state machine as live (`confirm.py`) decides; only the asking differs, since a reader can't ask. The last answer of
each source is its second one. Its first is the last one that stands above all second answers, and is of a round with a
smaller number than any of these where rounds are numbered. That is as good as a question that was put after all first
answers had come, since a trace keeps the rule that rounds do not overlap (docs/trace_format.md).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from unknot.graph.confirm import Answered, Confirmation, Phase
from unknot.graph.events import Beat
from unknot.graph.finding import Finding
from unknot.graph.ids import parse
from unknot.graph.live import LiveGraph

_KEPT = 4
_NEVER_LATE = float("inf")


@dataclass(frozen=True, slots=True)
class _Answer:
    beat: Beat
    line: int

    @property
    def round(self) -> int:
        """The number of its round, 0 where none was told."""
        return self.beat.round or 0


@dataclass(slots=True)
class Proofs:
    """The recorded answers of a trace, and the findings (by key) that they have confirmed."""

    _answers: dict[str, deque[_Answer]] = field(default_factory=dict)
    _proved: set[str] = field(default_factory=set)
    _tried: set[str] = field(default_factory=set)
    _rounds: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def answered(self, beat: Beat, line: int) -> None:
        """A recorded answer, on line `line`."""
        self._answers.setdefault(beat.src, deque(maxlen=_KEPT)).append(_Answer(beat, line))
        self._tried.clear()

    def proved(self, findings: list[Finding], graph: LiveGraph, now: float) -> list[Finding]:
        """Those of `findings` that are confirmed by now. What is found no more is forgotten."""
        found = {one.key: one for one in findings}
        self._proved &= found.keys()
        self._tried &= found.keys()
        for key, finding in found.items():
            if key not in self._proved and key not in self._tried and self._confirms(finding, graph, now):
                self._proved.add(key)
        self._tried = {key for key, one in found.items() if not _is_unknown(one, graph)}
        return [finding for key, finding in found.items() if key in self._proved]

    def _confirms(self, finding: Finding, graph: LiveGraph, now: float) -> bool:
        machine = Confirmation(finding, self._rounds, answer_limit_s=_NEVER_LATE)
        pairs = self._pairs(machine.sources)
        if pairs is None or not self._stood(finding, pairs[0]):
            return False
        machine.begin(graph, now)
        for phase, answers in zip((Phase.FIRST, Phase.SECOND), pairs, strict=True):
            round_id = machine.round_id
            for answer in answers if machine.phase is phase else ():
                beat = answer.beat
                told = Answered(source=beat.src, round_id=round_id, n=beat.n, tickets=beat.tickets)
                machine.feed(told, graph)
        return machine.phase is Phase.CONFIRMED

    def _stood(self, finding: Finding, first: list[_Answer]) -> bool:
        """Whether no answer since the first one says that somebody stood elsewhere in between."""
        since = {answer.beat.src: answer.line for answer in first}
        for pid in finding.closure:
            source = parse(pid).source
            later = (a.beat.tickets.get(pid) for a in self._answers[source] if a.line >= since[source])
            if any(ticket != finding.tickets[pid] for ticket in later):
                return False
        return True

    def _pairs(self, sources: tuple[str, ...]) -> tuple[list[_Answer], list[_Answer]] | None:
        """The first and the second answer of each source, None if one is missing."""
        known = [self._answers.get(source) for source in sources]
        second = [answers[-1] for answers in known if answers]
        if len(second) < len(sources):
            return None
        line = min(answer.line for answer in second)
        rounds = [answer.round for answer in second if answer.round]
        below = min(rounds, default=0)
        first = []
        for answers in known:
            fit = (a for a in reversed(answers or ()) if a.line < line and (not below or a.round < below))
            found = next(fit, None)
            if found is None:
                return None
            first.append(found)
        return first, second


def _is_unknown(finding: Finding, graph: LiveGraph) -> bool:
    return any(graph.is_unknown(graph.participants[pid].source) for pid in finding.closure if pid in graph.participants)
