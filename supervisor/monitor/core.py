"""The monitor's decisions: records, members, acknowledgements and time in; instructions out. No I/O, no clock.

A finding of the graph becomes a candidate and is confirmed by double collection; a confirmed one becomes a case. A case first
collects stacks (evidence before any remedy), then climbs the ladder: one remedy, a hold in which its component is left alone, the next
one if the same waits still stand. It is closed once its core is no longer found. Slow and outside waits, members that died or do
not answer are cases without remedies: people are told.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Literal

from unknot.graph.confirm import Answered, Confirm, Confirmation, Drop, Tick, Unresponsive, needs_store_counts
from unknot.graph.confirm import Ask as GraphAsk
from unknot.graph.events import Beat, End, Fence, Record
from unknot.graph.finding import Finding, SlowChain, Verdict
from unknot.graph.ids import parse
from unknot.graph.live import LiveGraph
from unknot.graph.slow import slow_chains
from unknot.graph.verdict import evaluate
from unknot.supervisor.config import Config
from unknot.supervisor.incidents import Incident
from unknot.supervisor.members import MemberInfo
from unknot.supervisor.monitor import telling
from unknot.supervisor.monitor.case import Case, Stage
from unknot.supervisor.monitor.instructions import (
    AskRound,
    BreakGroup,
    CollectStacks,
    Instruction,
    InterruptWait,
    Put,
    ReadCounts,
)
from unknot.supervisor.monitor.ladder import Remedy, next_remedy
from unknot.supervisor.monitor.usual import UsualWaits

_EVIDENCE_LIMIT_S = 0.5
_ACTION_LIMIT_S = 5.0
_START_LIMIT_S = 120.0


class MonitorCore:
    """All decisions of one leader. Each input returns the instructions that follow from it."""

    def __init__(self, *, run: str, config: Config, rounds: Iterator[int] | None = None) -> None:
        self.graph = LiveGraph()
        self.cases: dict[str, Case] = {}
        self.verdict: Verdict | None = None
        self._run = run
        self._config = config
        self._rounds = rounds if rounds is not None else itertools.count(1)
        self._candidates: dict[str, Confirmation] = {}
        self._members: dict[str, MemberInfo] = {}
        self._keys: dict[str, str] = {}
        self._usual = UsualWaits()

    # --- inputs ---

    def record(self, record: Record, now: float) -> list[Instruction]:
        """A record of a process or of the store has arrived."""
        self.graph.absorb(record)
        told = self._evaluate(now)
        for event in record.events:
            if isinstance(event, Beat) and event.round is not None:
                answer = Answered(source=event.src, round_id=event.round, n=event.n, tickets=event.tickets)
                for key in list(self._candidates):
                    told += self._feed(key, answer, now)
        return told

    def members(self, members: list[MemberInfo], now: float) -> list[Instruction]:
        """The members as the store has them now."""
        told: list[Instruction] = []
        for member in members:
            before = self._members.get(member.member)
            self._members[member.member] = member
            if before is not None and before.incarnation < member.incarnation:
                self._store_events([Fence(member=member.member, incarnation=member.incarnation, t=now)])
            if member.state in ("done", "dead") and (before is None or before.state != member.state):
                self._end_participants(member, now)
            told += self._death(member, now)
        return told + self._evaluate(now)

    def acknowledged(self, key: str, outcome: str, now: float) -> list[Instruction]:
        """A process says how a command ended."""
        case = self.cases.get(self._keys.get(key, ""))
        if case is None or key not in case.pending:
            return []
        case.pending.discard(key)
        if case.stage is Stage.EVIDENCE:
            self._keep_stacks(case, key, outcome)
        elif outcome in ("gone", "unsupported", "stale-leader"):
            case.failures.append(f"{key.rpartition('/')[2]}: {outcome}")
        return self._move(case, now) if not case.pending else []

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed."""
        told = self._evaluate(now)
        for key in list(self._candidates):
            told += self._feed(key, Tick(now), now)
        for case in list(self.cases.values()):
            if now >= case.until:
                told += self._move(case, now)
        return told + self._old_waits(now)

    def adopt(self, incident: Incident, now: float) -> None:
        """An open incident of an earlier leader: continued if its waits still stand, else closed at the next look."""
        grace = now + self._config.confirm_hold_s
        self.cases[incident.id] = Case(incident, None, Stage.HOLDING, until=grace, tried=_targets(incident))

    def validate(self) -> None:
        """Raise AssertionError unless all parts agree."""
        self.graph.validate()
        for confirmation in self._candidates.values():
            confirmation.validate()
        for case in self.cases.values():
            case.validate()

    # --- evaluation ---

    def _store_events(self, events: list[Fence | End]) -> None:
        self.graph.absorb(Record(src="store", n=0, t=0.0, events=tuple(events)))

    def _end_participants(self, member: MemberInfo, now: float) -> None:
        how: Literal["exit", "crash"] = "crash" if member.state == "dead" else "exit"
        of_member = list(self.graph.by_source.get(member.source, ()))
        self._store_events([End(p=pid, how=how, t=now) for pid in of_member])

    def _evaluate(self, now: float) -> list[Instruction]:
        self.verdict = evaluate(self.graph, now)
        found = {telling.incident_id(self._run, f.key): f for f in self.verdict.findings}
        told: list[Instruction] = []
        for incident, finding in found.items():
            if incident in self.cases:
                self.cases[incident].finding = finding
            elif incident not in self._candidates:
                told += self._begin(incident, finding, now)
        return told + self._close_gone(found, now)

    def _begin(self, key: str, finding: Finding, now: float) -> list[Instruction]:
        confirmation = Confirmation(finding, self._rounds, answer_limit_s=self._config.answer_limit_s)
        self._candidates[key] = confirmation
        return self._translate(key, confirmation.begin(self.graph, now), now)

    def _feed(self, key: str, value: Answered | Tick, now: float) -> list[Instruction]:
        confirmation = self._candidates.get(key)
        if confirmation is None:
            return []
        return self._translate(key, confirmation.feed(value, self.graph), now)

    def _translate(self, key: str, told: tuple[object, ...], now: float) -> list[Instruction]:
        confirmation = self._candidates[key]
        out: list[Instruction] = []
        for one in told:
            if isinstance(one, GraphAsk):
                mailboxes = needs_store_counts(confirmation.finding)
                out += [ReadCounts(mailboxes)] if mailboxes else []
                out.append(AskRound(one.sources, one.round_id))
            elif isinstance(one, Confirm):
                out += self._open(key, one.finding, now)
            elif isinstance(one, Unresponsive):
                out += self._unresponsive(confirmation.finding, one.sources, now)
            else:
                assert isinstance(one, Drop)
        if confirmation.done:
            del self._candidates[key]
        return out

    def _close_gone(self, found: dict[str, Finding], now: float) -> list[Instruction]:
        told: list[Instruction] = []
        for incident, case in list(self.cases.items()):
            if telling.is_found(case.incident) and incident not in found and now >= self._settled(case):
                told += self._close(case, now, telling.resolution(case.incident))
        return told

    def _settled(self, case: Case) -> float:
        """An adopted case waits until the records of its members were read again."""
        return case.until if case.finding is None else 0.0

    # --- cases ---

    def _open(self, key: str, finding: Finding, now: float) -> list[Instruction]:
        incident = telling.of_finding(self.graph, finding, run=self._run, incident_id=key, now=now)
        case = Case(incident, finding, Stage.EVIDENCE, until=now + _EVIDENCE_LIMIT_S)
        self.cases[key] = case
        sources = sorted({parse(pid).source for pid in finding.closure})
        keys = {source: f"{key}/stacks/{source}" for source in sources}
        self._expect(case, keys)
        return [Put(incident, alert=True), CollectStacks(incident=key, keys=keys)]

    def _expect(self, case: Case, keys: dict[str, str]) -> None:
        case.pending = set(keys.values())
        case.failures = []
        self._keys |= dict.fromkeys(keys.values(), case.incident.id)

    def _keep_stacks(self, case: Case, key: str, outcome: str) -> None:
        source = key.split("/stacks/", 1)[1]
        stacks = {**case.incident.stacks, source: tuple(outcome.splitlines())}
        case.incident = telling.with_stacks(case.incident, stacks)

    def _move(self, case: Case, now: float) -> list[Instruction]:
        """The stage's time is up, or everything it waited for has come."""
        if case.stage is Stage.ACTING:
            failed = len(case.pending) + len(case.failures)
            note = "; ".join(case.failures) + (f"; no answer from {len(case.pending)}" if case.pending else "")
            case.pending.clear()
            case.ended(outcome="failed" if failed else "done", note=note)
            case.go(Stage.HOLDING, until=now + self._config.confirm_hold_s)
            return [Put(case.incident)]
        if case.stage in (Stage.EVIDENCE, Stage.HOLDING):
            return self._next_rung(case, now)
        case.until = float("inf")
        return []

    def _next_rung(self, case: Case, now: float) -> list[Instruction]:
        case.pending.clear()
        finding = case.finding
        if finding is None and telling.is_found(case.incident):
            return self._close(case, now, telling.resolution(case.incident))
        remedy = None
        if finding is not None:
            remedy = next_remedy(finding, tried=case.tried, highest=self._config.on_deadlock)
        if remedy is None or finding is None:
            case.go(Stage.WAITING, until=float("inf"))
            return [Put(case.incident)]
        case.started(remedy, at=now)
        case.go(Stage.ACTING, until=now + _ACTION_LIMIT_S)
        return [Put(case.incident), self._carry_out(case, remedy, finding)]

    def _carry_out(self, case: Case, remedy: Remedy, finding: Finding) -> Instruction:
        incident = case.incident.id
        if remedy.rung == "interrupt":
            key = f"{incident}/interrupt/{remedy.target}|{finding.tickets[remedy.target]}"
            self._expect(case, {remedy.target: key})
            return InterruptWait(
                key=key, incident=incident, participant=remedy.target, ticket=finding.tickets[remedy.target]
            )
        name, _, generation = remedy.target.removeprefix("coll:").rpartition("@g")
        members = telling.group_members(self.graph, remedy.target)
        keys = {source: f"{incident}/break/{source}" for source in sorted({parse(p).source for p in members})}
        self._expect(case, keys)
        return BreakGroup(
            incident=incident, group=name, generation=int(generation), keys=keys,
            reason=f"broken to free deadlock {incident}",
        )  # fmt: skip

    def _close(self, case: Case, now: float, how: str) -> list[Instruction]:
        case.resolved(at=now, how=how)
        del self.cases[case.incident.id]
        return [Put(case.incident, alert=True)]

    # --- what needs people, not remedies ---

    def _tell(self, incident: Incident) -> list[Instruction]:
        if incident.id in self.cases:
            return []
        self.cases[incident.id] = Case(incident, None, Stage.WAITING, until=float("inf"))
        return [Put(incident, alert=True)]

    def _unresponsive(self, finding: Finding, sources: tuple[str, ...], now: float) -> list[Instruction]:
        told: list[Instruction] = []
        for source in sources:
            told += self._tell(telling.unresponsive(self.graph, finding, source, run=self._run, now=now))
        return told

    def _death(self, member: MemberInfo, now: float) -> list[Instruction]:
        if member.state == "dead":
            return self._tell(telling.death(member, run=self._run, now=now))
        return []

    def _old_waits(self, now: float) -> list[Instruction]:
        told: list[Instruction] = []
        self._usual.observe(self.graph.waiting(), now)
        for chain in slow_chains(self.graph, now, min(self._config.slow_after_s, self._config.external_after_s)):
            if telling.is_ordinary(self.graph, chain) or telling.age_of(self.graph, chain, now) < self._limit_s(chain):
                continue
            known = self._case_of(chain)
            if known is not None:
                known.seen_at = now
                continue
            usual_s = self._usual.of(self.graph.participants[chain.by])
            told += self._tell_slow(telling.of_chain(self.graph, chain, run=self._run, now=now, usual_s=usual_s), now)
        return told + self._close_ended(now)

    def _limit_s(self, chain: SlowChain) -> float:
        """From which age a chain is told; while things start, everything takes longer than it will."""
        limit_s = self._config.slow_after_s if chain.kind == "running" else self._config.external_after_s
        if telling.is_start(self.graph, chain):
            return max(self._config.slow_after_s, _START_LIMIT_S)
        has_begun = self.graph.participants[chain.by].last_progress is not None
        return limit_s if has_begun or chain.kind == "external" else max(limit_s, _START_LIMIT_S)

    def _case_of(self, chain: SlowChain) -> Case | None:
        """The open case of the same straggler: a slow one makes many waits, and is told once."""
        roots = tuple(chain.roots or (chain.resource,))
        same = (c for c in self.cases.values() if c.incident.cause in ("slow", "external"))
        return next((c for c in same if c.incident.culprits == roots), None)

    def _tell_slow(self, incident: Incident, now: float) -> list[Instruction]:
        """With the stacks of whoever is waited for: where it is now."""
        case = Case(incident, None, Stage.EVIDENCE, until=now + _EVIDENCE_LIMIT_S, seen_at=now)
        self.cases[incident.id] = case
        sources = sorted({parse(pid).source for pid in incident.culprits if pid in self.graph.participants})
        keys = {source: f"{incident.id}/stacks/{source}" for source in sources}
        self._expect(case, keys)
        return [Put(incident, alert=True), CollectStacks(incident=incident.id, keys=keys)]

    def _close_ended(self, now: float) -> list[Instruction]:
        told: list[Instruction] = []
        for case in list(self.cases.values()):
            cause = case.incident.cause
            held_s = self._config.slow_after_s if cause == "slow" else 0.0
            over = cause in ("slow", "external") and now - case.seen_at > held_s
            if cause == "unresponsive":
                over = telling.answers_again(self.graph, case.incident)
            if cause == "dead" and case.incident.kind == "member":
                member = self._members.get(case.incident.culprits[0].partition("#")[0])
                over = member is not None and member.source != case.incident.culprits[0]
            if over:
                told += self._close(case, now, telling.resolution(case.incident))
        return told


def _targets(incident: Incident) -> tuple[str, ...]:
    return tuple(action.target for action in incident.actions)
