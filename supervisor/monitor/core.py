"""The monitor's decisions: records, members, the store's word, acknowledgements and time in; instructions out. No I/O, no clock.

A finding of the graph becomes a candidate and is confirmed by double collection; a confirmed one becomes a case. A case first
collects stacks (evidence before any remedy), then climbs the ladder: one remedy, a hold in which its component is left alone, the next
one if the same waits still stand. It is closed once a wait of its core has ended. Slow and outside waits, members that died or do
not answer are cases without remedies: people are told.

Time that the monitor itself missed (it was stopped, or Redis was) says nothing about anybody. After such a gap all questions are asked
anew, remedies get the time that was missed, and nobody is called silent before a whole lease has been watched.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import msgspec

from unknot.graph.confirm import Answered, Confirm, Tick
from unknot.graph.events import Beat, Event, Record
from unknot.graph.finding import Finding, SlowChain, Verdict
from unknot.graph.ids import parse
from unknot.graph.live import STORE, LiveGraph
from unknot.graph.slow import slow_chains
from unknot.graph.verdict import evaluate
from unknot.recovery.checkpoint_wishes import FailedSave
from unknot.recovery.registration import MemberInfo
from unknot.supervisor.config import Config
from unknot.supervisor.incidents import Incident
from unknot.supervisor.monitor import telling
from unknot.supervisor.monitor.candidates import Candidates
from unknot.supervisor.monitor.case import Case, Stage
from unknot.supervisor.monitor.circling import Progress
from unknot.supervisor.monitor.instructions import (
    AskRound,
    BreakGroup,
    CollectStacks,
    Instruction,
    InterruptWait,
    Put,
    RestartMember,
)
from unknot.supervisor.monitor.ladder import Remedy, next_remedy
from unknot.supervisor.monitor.rests import Place, Rests
from unknot.supervisor.monitor.roster import Roster
from unknot.supervisor.monitor.truth import Answers, Questions, StoreTruth
from unknot.supervisor.monitor.usual import UsualWaits

_EVIDENCE_LIMIT_S = 0.5
_ACTION_LIMIT_S = 5.0
_START_LIMIT_S = 120.0
_SLOW_EVERY_S = 1.0
# Silent for so many leases is told, whoever waits; after one, nothing that was told before counts any more.
_SILENT_LEASES = 2.0


class MonitorCore:
    """All decisions of one leader. Each input returns the instructions that follow from it."""

    def __init__(self, *, run: str, config: Config, rounds: Iterator[int] | None = None) -> None:
        self.graph = LiveGraph()
        self.cases: dict[str, Case] = {}
        self.verdict: Verdict | None = None
        self._run = run
        self._config = config
        self._rounds = rounds if rounds is not None else itertools.count(1)
        self._candidates = Candidates(self._rounds, answer_limit_s=config.answer_limit_s)
        self._roster = Roster()
        self._truth = StoreTruth()
        self._rests = Rests()
        self._usual = UsualWaits()
        self._progress = Progress(config.livelock_after_s)
        self._keys: dict[str, str] = {}
        self._changed = True
        self._now: float | None = None
        self._watched_since = 0.0
        self._led_since = 0.0
        self._next_slow = 0.0

    # --- inputs ---

    def record(self, record: Record, now: float) -> list[Instruction]:
        """A record of a process or of the store has arrived."""
        self._pass(now)
        self.graph.absorb(record)
        self._changed = True
        self._absorb([*self._truth.after(self.graph, record), *self._roster.after(self.graph, record.src)])
        told: list[Instruction] = []
        for event in record.events:
            if isinstance(event, Beat) and event.round is not None:
                answer = Answered(source=event.src, round_id=event.round, n=event.n, tickets=event.tickets)
                told += self._feed(answer, now)
        return told + self._evaluate(now)

    def questions(self) -> Questions:
        """What to ask the store, before the next records are taken in (docs/design.md: the count of a mailbox)."""
        return self._truth.questions(self.graph)

    def answered(self, answers: Answers, now: float) -> list[Instruction]:
        """The store's word on all questions at one instant."""
        self._pass(now)
        self._absorb(self._truth.events(self.graph, answers))
        again = self._truth.stand_again(answers)
        told: list[Instruction] = [AskRound(again, next(self._rounds))] if again else []
        return told + self._feed(Tick(now), now) + self._evaluate(now)

    def members(self, members: Iterable[MemberInfo], now: float) -> list[Instruction]:
        """The members as the store has them now."""
        self._pass(now)
        self._absorb(self._roster.update(self.graph, members, now))
        self._candidates.forget(self._roster.is_over)
        told: list[Instruction] = []
        for member in self._roster.dead():
            told += self._tell(telling.death(member, run=self._run, now=now))
        for member in self._roster.crashed(now):
            told += self._tell(telling.crash(member, run=self._run, now=now))
        told += self._circles(now)
        return told + self._missing() + self._silences(now) + self._evaluate(now)

    def checkpoints(self, failed: Iterable[FailedSave], now: float) -> list[Instruction]:
        """The groups whose newest save has failed, as the store has them now; a commit takes a group off them."""
        self._pass(now)
        found = {one.id: one for one in (telling.checkpoint_failed(f, run=self._run, now=now) for f in failed)}
        told: list[Instruction] = []
        for case in [c for c in self.cases.values() if c.incident.cause == "checkpoint"]:
            newer = found.pop(case.incident.id, None)
            if newer is None:
                told += self._close(case, now, telling.resolution(case.incident))
            elif newer.headline != case.incident.headline:
                case.incident = msgspec.structs.replace(newer, opened_at=case.incident.opened_at)
                told.append(Put(case.incident))
        for incident in found.values():
            told += self._tell(incident)
        return told

    def acknowledged(self, key: str, outcome: str, now: float) -> list[Instruction]:
        """A process says how a command ended."""
        self._pass(now)
        case = self.cases.get(self._keys.get(key, ""))
        if case is None:
            return []
        awaited = key in case.pending
        case.pending.discard(key)
        if "/stacks/" in key:
            self._keep_stacks(case, key, outcome)
            if not awaited:
                return [Put(case.incident)]
        elif not awaited:
            return []
        elif outcome in ("gone", "unsupported", "stale-leader") or outcome.startswith(("failed", "refused")):
            case.failures.append(f"{key.split('/', 2)[2]}: {outcome}")
        return self._move(case, now) if not case.pending else []

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed."""
        self._pass(now)
        told = self._evaluate(now) + self._feed(Tick(now), now)
        told += self._candidates.overdue(now)
        for case in list(self.cases.values()):
            if now >= case.until:
                told += self._move(case, now)
        return told + self._old_waits(now)

    def adopt(self, incident: Incident, now: float) -> None:
        """An open incident of an earlier leader: continued if its waits still stand, else closed at the next look."""
        self._pass(now)
        grace = now + self._config.confirm_hold_s
        case = Case(
            incident, None, Stage.HOLDING, until=grace, tried=_targets(incident), seen_at=now, settled_at=grace
        )  # fmt: skip
        self.cases[incident.id] = case

    def store_read_up_to(self, n: int) -> None:
        """Records of the store itself up to number `n` are known by what they led to: do not wait for them."""
        if n > 0:
            self.graph.absorb(Record(src=STORE, n=n, t=0.0, full=True))

    def validate(self) -> None:
        """Raise AssertionError unless all parts agree."""
        self.graph.validate()
        self._candidates.validate()
        for key, case in self.cases.items():
            assert case.incident.id == key, "a case under another id"
            assert key not in self._candidates, "a candidate for what is confirmed"
            case.validate()
        assert set(self._keys.values()) <= set(self.cases), "commands of an incident that is closed"

    # --- evaluation ---

    def _pass(self, now: float) -> None:
        """Note that it is `now`; deal with time in which the monitor saw nothing."""
        gap = now - self._now if self._now is not None else float("inf")
        if self._now is None:
            self._led_since = now
        if gap > self._longest_gap_s():
            self._watched_since = now
            self._candidates.clear()
            self._changed = True
            for case in self.cases.values():
                case.until += gap if self._now is not None else 0.0
        self._now = now if self._now is None else max(now, self._now)

    def _longest_gap_s(self) -> float:
        return min(1.0, self._config.answer_limit_s / 2)

    def _absorb(self, events: list[Event]) -> None:
        if events:
            self.graph.absorb(Record(src=STORE, n=0, t=0.0, events=tuple(events)))
            self._changed = True

    def _evaluate(self, now: float) -> list[Instruction]:
        if not self._changed:
            return []
        self._changed = False
        self.verdict = evaluate(self.graph, now)
        patience_s = self._config.external_after_s
        named = ((telling.incident_id(self._run, f.key), f) for f in self.verdict.findings)
        found = {id_: f for id_, f in named if id_ in self.cases or telling.is_worth_telling(f, now, patience_s)}
        told: list[Instruction] = []
        for case in self.cases.values():
            case.finding = found.get(case.incident.id)
        for incident, finding in found.items():
            if incident not in self.cases and incident not in self._candidates:
                told += self._candidates.begin(incident, finding, self.graph, now)
        return told + self._close_gone(found, now)

    def _feed(self, value: Answered | Tick, now: float) -> list[Instruction]:
        before = len(self._candidates)
        asks, ended = self._candidates.feed(value, self.graph, now)
        # What was dropped may come again at once, in another shape.
        self._changed = self._changed or len(self._candidates) < before
        told: list[Instruction] = list(asks)
        for key, finding, how in ended:
            if isinstance(how, Confirm):
                told += self._open(key, how.finding, now)
            else:
                told += self._unresponsive(finding, how.sources, now)
        return told

    def _close_gone(self, found: dict[str, Finding], now: float) -> list[Instruction]:
        told: list[Instruction] = []
        for incident, case in list(self.cases.items()):
            if telling.is_found(case.incident) and incident not in found and self._is_over(case, now):
                told += self._close(case, now, telling.resolution(case.incident))
        return told

    def _is_over(self, case: Case, now: float) -> bool:
        """Whether a case that is not found any more is over: not while a record of its core is missing."""
        core = (parse(pid).source for pid in case.incident.core)
        untold = any(self.graph.is_unknown(source) and not self._roster.is_over(source) for source in core)
        return now >= case.settled_at and not untold

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
            self._rests.begin(case.incident.core, target=case.tried[-1], until=case.until)
            return [Put(case.incident)]
        left_alone_until = self._rests.until(case.incident.core)
        if case.stage is Stage.EVIDENCE and now < left_alone_until and telling.is_found(case.incident):
            case.pending.clear()
            case.go(Stage.HOLDING, until=left_alone_until)
            return [Put(case.incident)]
        return self._next_rung(case, now)

    def _next_rung(self, case: Case, now: float) -> list[Instruction]:
        case.pending.clear()
        finding = case.finding
        if finding is None and telling.is_found(case.incident):
            return self._not_found_now(case, now)
        if finding is None:
            return self._leave(case, {})
        places = {pid: self._place(finding, pid) for pid in finding.interruptible}
        vain = self._rests.in_vain(places, now)
        tried, spare = (*case.tried, *vain), self._rests.targets(finding.core)
        remedy = next_remedy(self.graph, finding, tried=tried, highest=self._config.on_deadlock, spare=spare)
        if remedy is None:
            return self._leave(case, vain)
        case.started(remedy, at=now)
        if remedy.rung == "interrupt":
            place = places[remedy.target]
            self._rests.strike(remedy.target, place, now=now, rest_s=self._config.confirm_hold_s)
        self._rests.begin(finding.core, target=remedy.target, until=now + self._config.confirm_hold_s)
        case.go(Stage.ACTING, until=now + _ACTION_LIMIT_S)
        return [Put(case.incident), self._carry_out(case, remedy, finding)]

    def _place(self, finding: Finding, participant: str) -> Place:
        resources = {edge.resource for edge in finding.edges if edge.participant == participant}
        return Place(tuple(sorted(resources)), self.graph.participants[participant].last_progress)

    def _leave(self, case: Case, vain: dict[str, float]) -> list[Instruction]:
        """To people, for good or until whoever was interrupted in vain is tried once more."""
        case.incident = telling.with_vain(case.incident, list(vain))
        case.go(Stage.WAITING, until=min(vain.values(), default=float("inf")))
        return [Put(case.incident)]

    def _not_found_now(self, case: Case, now: float) -> list[Instruction]:
        if self._is_over(case, now):
            return self._close(case, now, telling.resolution(case.incident))
        case.until = now + self._config.confirm_hold_s
        return []

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
        self._keys = {key: incident for key, incident in self._keys.items() if incident != case.incident.id}
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
            if not self._roster.is_over(source) and self._silent_case(source) is None:
                told += self._tell(telling.unresponsive(self.graph, finding, source, run=self._run, now=now))
        return told

    def _missing(self) -> list[Instruction]:
        """Records that were written and never came: nothing is believed of their source until it has sent another."""
        missing = tuple(sorted(self._roster.behind(self.graph)))
        for source in missing:
            self.graph.lose(source)
            self._changed = True
        return [AskRound(missing, next(self._rounds))] if missing else []

    def _silences(self, now: float) -> list[Instruction]:
        """Members without a sign of life: after one lease their records are void, after two people are told."""
        told: list[Instruction] = []
        watched_s = now - self._watched_since
        for member in self._roster.silent(now):
            if watched_s > member.lease_s and not self.graph.is_unknown(member.source):
                self.graph.lose(member.source)
                self._changed = True
        for member in self._roster.silent(now, leases=_SILENT_LEASES):
            if watched_s > _SILENT_LEASES * member.lease_s:
                told += self._tell_silent(member, now)
        return told

    def _tell_silent(self, member: MemberInfo, now: float) -> list[Instruction]:
        """People are told, unless they were when it did not answer a round; and the driver replaces its process if it is stopped."""
        known = self._silent_case(member.source)
        driver = self._roster.driver()
        if self._config.on_silent == "alert" or member.source == driver or not driver:
            return [] if known else self._tell(telling.silent(self.graph, member, run=self._run, now=now))
        if known is None:
            incident = telling.silent(self.graph, member, run=self._run, now=now)
            case = self.cases[incident.id] = Case(incident, None, Stage.EVIDENCE, until=now)
            return self._replace(case, member, driver, now)
        return self._replace(known, member, driver, now) if known.stage is Stage.WAITING and not known.tried else []

    def _replace(self, case: Case, member: MemberInfo, driver: str, now: float) -> list[Instruction]:
        is_new = case.stage is Stage.EVIDENCE
        key = f"{case.incident.id}/restart/{member.source}"
        case.started(Remedy(rung="restart", target=member.source, why="its process is replaced if it is stopped"), at=now)
        case.go(Stage.ACTING, until=now + _ACTION_LIMIT_S)
        self._expect(case, {member.source: key})
        order = RestartMember(
            key=key, incident=case.incident.id, driver=driver, member=member.member, reason=case.incident.headline
        )
        return [Put(case.incident, alert=is_new), order]

    def _silent_case(self, source: str) -> Case | None:
        cases = (case for case in self.cases.values() if case.incident.cause == "unresponsive")
        return next((case for case in cases if case.incident.culprits == (source,)), None)

    def _circles(self, now: float) -> list[Instruction]:
        """Members that run and get nowhere; over once they mark progress again, or end."""
        still = {telling.circle_id(self._run, one) for one in self._roster.all() if one.state == "alive"}
        told: list[Instruction] = []
        for case in [c for c in self.cases.values() if c.incident.cause == "livelock"]:
            if case.incident.id not in still:
                told += self._close(case, now, telling.resolution(case.incident))
        for circle in self._progress.circles(self.graph, self._roster.all(), since=self._led_since, now=now):
            told += self._tell_slow(telling.circle(circle, run=self._run, now=now), now)
        return told

    def _old_waits(self, now: float) -> list[Instruction]:
        self._usual.observe(self.graph.waiting(), now)
        told = self._close_answered(now)
        shortest_s = min(self._config.slow_after_s, self._config.external_after_s)
        if now < self._next_slow:
            return told
        self._next_slow = now + min(_SLOW_EVERY_S, shortest_s / 4)
        for chain in slow_chains(self.graph, now, shortest_s):
            told += self._slow(chain, now)
        return told + self._close_moved_on(now)

    def _slow(self, chain: SlowChain, now: float) -> list[Instruction]:
        graph = self.graph
        if telling.is_ordinary(graph, chain) or telling.age_of(graph, chain, now) < self._limit_s(chain):
            return []
        known = self._case_of(chain)
        if known is not None:
            known.seen_at = now
            return []
        usual_s = self._usual.of(graph.participants[chain.by])
        return self._tell_slow(telling.of_chain(graph, chain, run=self._run, now=now, usual_s=usual_s), now)

    def _limit_s(self, chain: SlowChain) -> float:
        """From which age a chain is told; while things start, everything takes longer than it will."""
        limit_s = self._config.slow_after_s if chain.kind == "running" else self._config.external_after_s
        if telling.is_start(self.graph, chain):
            return max(self._config.slow_after_s, _START_LIMIT_S)
        has_begun = telling.has_begun(self.graph, chain.by)
        return limit_s if has_begun or chain.kind == "external" else max(limit_s, _START_LIMIT_S)

    def _case_of(self, chain: SlowChain) -> Case | None:
        """The open case of the same straggler: a slow one makes many waits, and is told once."""
        roots = tuple(chain.roots or (chain.resource,))
        same = (c for c in self.cases.values() if c.incident.cause in telling.OLD_WAITS)
        return next((c for c in same if c.incident.culprits == roots), None)

    def _tell_slow(self, incident: Incident, now: float) -> list[Instruction]:
        """With the stacks of whoever is waited for: where it is now."""
        if incident.id in self.cases:
            self.cases[incident.id].seen_at = now
            return []
        case = Case(incident, None, Stage.EVIDENCE, until=now + _EVIDENCE_LIMIT_S, seen_at=now)
        self.cases[incident.id] = case
        sources = sorted({parse(pid).source for pid in incident.culprits if pid in self.graph.participants})
        keys = {source: f"{incident.id}/stacks/{source}" for source in sources}
        self._expect(case, keys)
        return [Put(incident, alert=True), CollectStacks(incident=incident.id, keys=keys)]

    def _close_moved_on(self, now: float) -> list[Instruction]:
        """Slow and outside waits that are not found any more."""
        told: list[Instruction] = []
        for case in list(self.cases.values()):
            held_s = 0.0 if case.incident.cause == "external" else self._config.slow_after_s
            if case.incident.cause in telling.OLD_WAITS and now - case.seen_at > held_s:
                told += self._close(case, now, telling.resolution(case.incident))
        return told

    def _close_answered(self, now: float) -> list[Instruction]:
        """Members that answer again, and those that were replaced or have ended."""
        told: list[Instruction] = []
        for case in list(self.cases.values()):
            incident = case.incident
            if incident.cause == "unresponsive":
                over = telling.answers_again(self.graph, incident) or self._roster.is_over(incident.culprits[0])
            elif incident.kind == "crash":
                over = self._roster.is_back(incident.culprits[0])
            else:
                over = incident.kind == "member" and self._roster.is_replaced(incident.culprits[0])
            if over and incident.kind == "crash" and self._roster.has_died(incident.culprits[0]):
                case.ended(outcome="failed", note="the process that took its place has died too")
                told += self._close(case, now, "its restart failed")
            elif over:
                told += self._close(case, now, telling.resolution(incident))
        self._rests.forget(self.graph.participants)
        return told


def _targets(incident: Incident) -> tuple[str, ...]:
    return tuple(action.target for action in incident.actions)
