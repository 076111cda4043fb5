"""A recorded trace fed to the live graph, and what came of it: incidents with their lines, the end, the hazards.

In a trace of order `total` every finding is an incident at once. In one of order `arrival` a finding is a candidate, and
the recorded answers to collection rounds (`beat`) decide: the reader can't ask, so it takes the last answer of each
source as its first round, and answers that stand below all of these, of a round with a larger number where rounds are
numbered, as its second. Whoever writes such a trace asks a round only after all answers to the one before have come.

One standstill is one incident. A finding goes on as the incident with which it shares a wait of its core, so a ring to
which another one is joined does not end and begin anew; a ring that a deadline will cut never goes on as one that none
will. A mismatch is one incident per group, from the first index at which ranks disagree, whether or not anybody waits.

The whole graph is looked at only when the answer can have changed: while something is found or a record is missing, after every
event; else when somebody may have become stuck (triggers.py). Most events of a healthy trace cost little more than their `apply`.

Memory: the live graph, the open incidents, and of those that are over at most `KEPT`; `left_out` counts the rest.
"""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field

import msgspec

from unknot.graph import events as ev
from unknot.graph.advice import advice, mismatch_advice
from unknot.graph.call_sites import CallSites, Mixing
from unknot.graph.errors import TraceError
from unknot.graph.explain import headline, mismatch_headline, mismatch_text, sentences, text
from unknot.graph.finding import Finding, Mismatch, Verdict
from unknot.graph.hazards import Hazard, LockOrder
from unknot.graph.live import LiveGraph
from unknot.graph.notes import Activity, Note, notes
from unknot.graph.proof import Proofs
from unknot.graph.trace import Header, Line, at_line
from unknot.graph.triggers import Triggers
from unknot.graph.verdict import evaluate

KEPT = 10_000
_SAYS_NOTHING = (ev.Progress,)


class Incident(msgspec.Struct, kw_only=True):
    """One standstill of a trace. Lines count from 1, the header; `deadline_in_s`: seconds from its opening."""

    id: str
    cause: str
    kind: str
    core: tuple[str, ...]
    stuck: tuple[str, ...]
    opened_line: int
    resolved_line: int | None = None
    deadline_in_s: float | None = None
    text: str = ""


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """Who is stuck, who is the core of it, and who runs, at the last line."""

    stuck: tuple[str, ...]
    core: tuple[str, ...]
    running: tuple[str, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace told.

    `notes`: what keeps others at its end without being a standstill; `left_out`: incidents that are over and were too many
    to keep.
    """

    events: int
    incidents: tuple[Incident, ...]
    final: Final
    hazards: tuple[Hazard, ...]
    mixings: tuple[Mixing, ...] = ()
    notes: tuple[Note, ...] = ()
    left_out: int = 0


@dataclass(slots=True)
class _Open:
    """An incident that is not over, with the waits of its core and the finding that it is now."""

    incident: Incident
    waits: frozenset[str]
    finding: Finding | None


@dataclass
class Replay:
    """Takes the events of one trace. Raises TraceError, with the line, for what cannot be in a trace of order `total`.

    Without `looks` it only feeds the graph.
    """

    header: Header
    looks: bool = True
    graph: LiveGraph = field(default_factory=LiveGraph)
    locks: LockOrder = field(default_factory=LockOrder)
    sites: CallSites = field(default_factory=CallSites)
    activity: Activity = field(default_factory=Activity)
    now: float = 0.0
    events: int = 0
    left_out: int = 0
    _incidents: list[Incident] = field(default_factory=list)
    _open: list[_Open] = field(default_factory=list)
    _mismatched: dict[str, Incident] = field(default_factory=dict)
    _found: bool = False
    _triggers: Triggers = field(init=False)
    _proofs: Proofs = field(default_factory=Proofs)

    def __post_init__(self) -> None:
        self._triggers = Triggers(self.graph)

    def feed(self, line: Line) -> None:
        """Take the next line. After a TraceError nothing of it has changed the graph."""
        event = line.event
        self.now = max(self.now, event.t)
        triggered = self._triggers.before(event)
        if self.header.order == "total":
            self._apply(line)
        else:
            self.graph.absorb(ev.Record(src=line.src, n=line.n, t=event.t, events=(event,)))
            if isinstance(event, ev.Beat):
                self._proofs.answered(event, line.number)
        self.events += 1
        self.locks.observe(self.graph, event)
        self.sites.observe(self.graph, event)
        self.activity.observe(event)
        if self.looks and (self._matters(event) or triggered):
            self._look(line.number)

    def report(self) -> Report:
        """What was found up to here."""
        verdict = evaluate(self.graph, self.now)
        self._retell()
        every = sorted([*self._incidents, *self._mismatched.values()], key=lambda one: one.opened_line)
        return Report(
            events=self.events,
            incidents=tuple(every),
            final=self._final(verdict),
            hazards=self.locks.hazards(),
            mixings=self.sites.warnings(),
            notes=notes(self.graph, self.activity, self.now),
            left_out=self.left_out,
        )

    # --- one line ---

    def _apply(self, line: Line) -> None:
        try:
            self.graph.apply(line.event)
        except TraceError as error:
            raise at_line(error, line.number) from error

    def _matters(self, event: ev.Event) -> bool:
        if isinstance(event, _SAYS_NOTHING):
            return False
        if self._found or self._open or self._mismatched or self.graph.counters["gaps"]:
            return True
        return self._triggers.after(event)

    def _look(self, number: int) -> None:
        verdict = evaluate(self.graph, self.now)
        self._found = bool(verdict.findings)
        findings = [one for one in verdict.findings if one.kind != "mismatch"]
        if self.header.order == "arrival":
            findings = self._proofs.proved(findings, self.graph, self.now)
        self._match(findings, number)
        self._mismatches(verdict, number)

    # --- incidents ---

    def _match(self, findings: list[Finding], number: int) -> None:
        before, self._open = self._open, []
        for finding in findings:
            waits = frozenset(f"{pid}|{finding.tickets[pid]}" for pid in finding.core)
            timed = finding.kind == "timed"
            known = next((o for o in before if o.waits & waits and (o.incident.kind == "timed") == timed), None)
            if known is None:
                incident = self._begin(finding, number)
            else:
                before.remove(known)
                incident = known.incident
                self._go_on(known, finding)
            self._open.append(_Open(incident, waits, finding))
        for gone in before:
            gone.incident.resolved_line = number
        if len(self._incidents) > KEPT + len(self._open):
            self._forget()

    def _begin(self, finding: Finding, number: int) -> Incident:
        incident = Incident(
            id=_id(self.header.run, f"{number}:{finding.key}"),
            cause=finding.cause,
            kind=finding.kind,
            core=finding.core,
            stuck=_everybody(finding),
            opened_line=number,
            deadline_in_s=finding.deadline - self.now if finding.deadline is not None else None,
            text=self._told(finding),
        )
        self._incidents.append(incident)
        return incident

    def _go_on(self, known: _Open, finding: Finding) -> None:
        incident, before = known.incident, known.finding
        if before is None or (before.core, before.kind) != (finding.core, finding.kind):
            incident.cause, incident.kind, incident.core = finding.cause, finding.kind, finding.core
            incident.text = self._told(finding)
        incident.stuck = _everybody(finding)

    def _told(self, finding: Finding) -> str:
        lines = text(sentences(self.graph, finding, self.now))
        head = headline(finding, self.header.run, self.now)
        return f"{head}\n{lines}\nWhat to do: {advice(self.graph, finding)}"

    def _retell(self) -> None:
        """What is open is told as it is now, with its ages."""
        for one in self._open:
            if one.finding is not None:
                one.incident.text = self._told(one.finding)

    def _forget(self) -> None:
        over = [one for one in self._incidents if one.resolved_line is not None]
        drop = {id(one) for one in itertools.islice(over, len(over) // 2)}
        self._incidents = [one for one in self._incidents if id(one) not in drop]
        self.left_out += len(drop)

    # --- mismatches ---

    def _mismatches(self, verdict: Verdict, number: int) -> None:
        first: dict[str, Mismatch] = {}
        for one in verdict.mismatches:
            first.setdefault(one.resource, one)
        stand = {edge.resource: f for f in verdict.findings if f.kind == "mismatch" for edge in f.edges if edge.seq is not None}
        for resource, mismatch in first.items():
            finding = stand.get(resource)
            known = self._mismatched.get(resource)
            if known is None or (finding is not None and finding.core != known.core):
                self._mismatched[resource] = self._mismatch(mismatch, finding, known, number)
        for resource, incident in list(self._mismatched.items()):
            if resource not in first:
                incident.resolved_line = number
                self._incidents.append(self._mismatched.pop(resource))

    def _mismatch(self, found: Mismatch, finding: Finding | None, known: Incident | None, number: int) -> Incident:
        head = mismatch_headline(found, self.header.run)
        return Incident(
            id=_id(self.header.run, f"mismatch:{found.resource}") if known is None else known.id,
            cause="mismatch",
            kind="mismatch",
            core=finding.core if finding is not None else (),
            stuck=_everybody(finding) if finding is not None else (),
            opened_line=number if known is None else known.opened_line,
            text=f"{head}\n{mismatch_text(self.graph, found, finding, self.now)}\nWhat to do: {self._advised(found, finding)}",
        )

    def _advised(self, found: Mismatch, finding: Finding | None) -> str:
        if finding is not None:
            return advice(self.graph, finding)
        stop = f"Stop, and go back to a checkpoint before #{found.seq}."
        return f"{stop} {mismatch_advice(self.graph, found.resource, found.seq)}"

    # --- the end ---

    def _final(self, verdict: Verdict) -> Final:
        if self.header.order == "total":
            return Final(stuck=verdict.stuck, core=verdict.core, running=verdict.running)
        proved = [one.finding for one in self._open if one.finding is not None and one.finding.kind != "timed"]
        return Final(
            stuck=tuple(sorted({pid for one in proved for pid in _everybody(one)})),
            core=tuple(sorted({pid for one in proved for pid in one.core})),
            running=verdict.running,
        )


def _everybody(finding: Finding) -> tuple[str, ...]:
    return tuple(sorted({*finding.core, *finding.stuck}))


def _id(run: str, key: str) -> str:
    return "inc_" + hashlib.sha256(f"{run}\0{key}".encode(errors="surrogatepass")).hexdigest()[:10]
