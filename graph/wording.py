"""How one wait is told in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unknot.graph.events import Atom, Clause
from unknot.graph.ids import WEIGHTS, parse, shown
from unknot.graph.needs import Compiler, Group
from unknot.graph.resources import ResourceState
from unknot.graph.unmatched import unmatched

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import CurrentWait, Participant

NAMED = 4
Phrase = tuple[str, str]
_VERBS = {
    "recv": "send", "send": "make", "event": "set", "condition": "signal", "latch": "count down",
}  # fmt: skip


def age(seconds: float) -> str:
    """A duration for people: `0.4 s`, `42 s`, `3 min`, `2.5 h`."""
    if seconds < 1:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 180:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def listed(names: Iterable[str], joint: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`; from the fifth on only their number."""
    known = list(names)
    if len(known) > NAMED:
        known = [*known[: NAMED - 1], f"{len(known) - NAMED + 1} more"]
    return f" {joint} ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)


def bare(participant: str) -> str:
    """A participant for headlines: without its incarnation."""
    own = parse(participant)
    return f"{own.member}/{own.thread}" if own.thread and not own.is_queue else own.member


def stray_rights(graph: LiveGraph, state: ResourceState, atom: Atom) -> str:
    """That nobody matches the list of those who could bring what `atom` waits for, in words; '' where somebody does."""
    own = state.declared
    if own is None or own.type not in ("mailbox", "event"):
        return ""
    if own.type == "event":
        what, names = ("publishers" if state.id.startswith(WEIGHTS) else "setters"), own.setters
    else:
        what, names = ("receivers", own.receivers) if atom.op == "send" else ("senders", own.senders)
    return unmatched(what, names, graph.members)


class Words:
    """Tells the waits of one state of a graph at `now` seconds."""

    def __init__(self, graph: LiveGraph, now: float) -> None:
        self._graph = graph
        self._now = now
        self._compiler = Compiler(graph)
        self._disagreements: set[tuple[str, int]] = set()

    def fold(self, one: Participant) -> tuple[Participant, CurrentWait]:
        """Who really says why `one` waits: its own group queue if it only waits for that, else itself."""
        assert one.wait is not None
        atoms = [atom for clause in one.wait.needs for atom in clause.of]
        queue = self._graph.participants.get(atoms[0].p or "") if len(atoms) == 1 else None
        if queue is not None and queue.is_queue and queue.source == one.source and queue.wait is not None:
            return queue, queue.wait
        return one, one.wait

    def sentence(self, pid: str) -> str:
        """The whole wait of `pid` as one sentence."""
        one = self._graph.participants[pid]
        assert one.wait is not None
        teller, wait = self.fold(one)
        site = one.wait.site or wait.site
        head, tail = self._needs(teller, wait)
        where = f" ({site})" if site else ""
        return f"{pid} waits {age(self._now - one.wait.t)} {head}{where}{tail}{self._limit(wait)}."

    def _limit(self, wait: CurrentWait) -> str:
        if wait.deadline is not None:
            return f"; it goes on by itself in {age(wait.deadline - self._now)}"
        if wait.limit is not None:
            return f"; ended by its time limit in {age(wait.limit - self._now)}"
        return ""

    def _needs(self, teller: Participant, wait: CurrentWait) -> Phrase:
        """A single need keeps its two halves, so that the call site can stand between them."""
        atoms = [atom for clause in wait.needs for atom in clause.of]
        peers = [atom.p for atom in atoms if atom.p is not None]
        if all(clause.k == len(clause.of) for clause in wait.needs) and len(peers) == len(atoms) > 1:
            return self._peers(list(dict.fromkeys(peers)))
        clauses = [self._clause(teller, wait, clause) for clause in wait.needs]
        if len(clauses) == 1:
            return clauses[0]
        return "for all of these", ": " + "; and ".join(head + tail for head, tail in clauses)

    def _peers(self, peers: list[str]) -> Phrase:
        """All of them are needed: those who can still answer, or never will, are named."""
        people = self._graph.participants
        left = [pid for pid in peers if pid not in people or people[pid].how != "exit"]
        if len(left) == len(peers):
            told = [f"{pid} (which {self.fate(pid)})" if self._fate(pid) else pid for pid in peers]
            return f"for {listed(told)} to answer", ""
        named = [f"{pid} (which {self.fate(pid)})" if self._fate(pid) else pid for pid in left]
        return f"for all of {len(peers)} answers", f": {len(peers) - len(left)} came; missing {listed(named)}"

    def _clause(self, teller: Participant, wait: CurrentWait, clause: Clause) -> Phrase:
        told = [self.atom(teller, wait, atom) for atom in clause.of]
        if len(told) == 1:
            return told[0]
        parts = [head + tail for head, tail in told]
        if clause.k == len(told):
            return "for all of these", ": " + "; and ".join(parts)
        if clause.k == 1:
            return "for any of these", ": " + "; or ".join(parts) + " — none can come"
        return f"for {clause.k} of these", ": " + "; ".join(parts) + " — too few can come"

    def atom(self, one: Participant, wait: CurrentWait, atom: Atom) -> Phrase:
        """What one atom waits for, and who could end it."""
        if atom.external is not None:
            tail = ", where nobody can help" if atom.closed else ", outside the run"
            return f"for {wait.label or atom.external}", tail
        if atom.p is not None:
            return f"for {atom.p} to answer", self._fate(atom.p)
        state = self._graph.resources[atom.r or ""]
        if state.type == "collective":
            return self._collective(one, state, atom)
        return self._of(one, state, atom)

    def _fate(self, pid: str) -> str:
        known = self._graph.participants.get(pid)
        return f", which {self.fate(pid)}" if known is not None and known.how is not None else ""

    def fate(self, pid: str) -> str:
        """How a participant ended."""
        known = self._graph.participants.get(pid)
        if known is None or known.how is None:
            return "was never heard of"
        ago = f" {age(self._now - known.ended_at)} ago" if known.ended_at is not None else ""
        return {"exit": "ended", "crash": "crashed", "fence": "was replaced"}[known.how] + ago

    def _of(self, one: Participant, state: ResourceState, atom: Atom) -> Phrase:
        groups = self._compiler.condition(one, atom).groups
        named = shown(state.id)
        thing = {"recv": f"a message in {named}", "send": f"room in {named}"}.get(atom.op or "", named)
        if state.type == "rwlock":
            thing = f"{named} to {'write' if state.exclusive(atom.mode) else 'read'}"
        if atom.units > 1:
            thing = f"{atom.units} units of {named}"
        return f"for {thing}", self._source_of(state, atom, groups)

    def _source_of(self, state: ResourceState, atom: Atom, groups: tuple[Group, ...]) -> str:
        """Who could bring it."""
        helpers = list(dict.fromkeys(pid for group in groups if group.via != "queue" for pid in group.weights))
        queued = (pid for group in groups if group.via == "queue" for pid in group.weights)
        ahead = list(dict.fromkeys(pid for pid in queued if pid not in helpers))
        gone = [f"{pid} ({self.fate(pid)})" for group in groups for pid in group.gone]
        vias = {group.via for group in groups}
        if any(group.never == "too many" for group in groups):
            return f", more than exist ({state.capacity()})"
        if "hold" in vias:
            behind = f", behind {listed(ahead)}" if ahead else ""
            return f", held by {listed([*gone, *(self._holder(state, pid) for pid in helpers)])}{behind}"
        if ahead:
            return f", behind {listed(ahead)}"
        verb = "publish" if state.id.startswith(WEIGHTS) else _VERBS.get(atom.op or state.type, "end it")
        if any(group.open for group in groups):
            return f", and who could {verb} is not known"
        stray = stray_rights(self._graph, state, atom)
        told = f"; {stray}" if stray else ""
        if helpers:
            return f", which only {listed(helpers, 'or')} could {verb}{told}"
        return f", which nobody is left to {verb}" + (f": {listed(gone)}" if gone else "") + told

    def _holder(self, state: ResourceState, pid: str) -> str:
        at, site = state.taken.get(pid, (0.0, ""))
        if not site or pid not in state.holders:
            return pid
        return f"{pid} (which took it {age(self._now - at)} ago at {site})"

    def _collective(self, one: Participant, state: ResourceState, atom: Atom) -> Phrase:
        seq, members = atom.seq or 0, state.declared_members
        head = f"in {self.operation(state, seq, of=one.id)} #{seq} of {shown(state.id)}"
        if state.mismatched(seq):
            told = self.disagreement_once(state, seq)
            return head, ", where the ranks disagree" + (f": {told}" if told else "")
        issuing = {member: self._compiler.issuing(state, member) for member in members}
        missing = [m for m in members if not any(state.arrivals[pid] >= seq for pid in issuing[m])]
        told = f": {len(members) - len(missing)} of {len(members)} ranks arrived"
        named = listed([self._missing(state, member) for member in missing])
        return head, told + (f"; missing {named}" if missing else "")

    def _missing(self, state: ResourceState, member: str) -> str:
        """One rank that has not arrived, and what it does instead."""
        for pid in self._compiler.issuing(state, member) or [member]:
            known = self._graph.participants.get(pid)
            if known is not None and known.how is not None:
                return f"{pid} ({self.fate(pid)})"
            if known is not None and known.wait is not None:
                return f"{pid} ({self._instead(known)})"
            if known is not None:
                return f"{pid} (running)"
        return member

    def _instead(self, one: Participant) -> str:
        _, wait = self.fold(one)
        atom = next(atom for clause in wait.needs for atom in clause.of)
        what = shown(atom.r) if atom.r is not None else atom.p or wait.label or atom.external
        site = f" at {wait.site}" if wait.site else ""
        return f"waiting for {what} since {age(self._now - wait.t)}{site}"

    def operation(self, state: ResourceState, seq: int, *, of: str) -> str:
        """The name of operation `seq`: what `of` issued, or else anybody, as far as it was said."""
        if "op" not in state.fields():
            return "operation"
        place = state.fields().index("op")
        issued = state.signatures.get(seq, {})
        told = (issued[pid][place] for pid in ([of] if of in issued else []) + list(issued))
        return next((str(name) for name in told if name), "operation")

    def disagreement_once(self, state: ResourceState, seq: int) -> str:
        """Who issued what as operation `seq`, the rarest first; nothing the second time."""
        if (state.id, seq) in self._disagreements:
            return ""
        self._disagreements.add((state.id, seq))
        return self._disagreement(state, seq)

    def _disagreement(self, state: ResourceState, seq: int) -> str:
        by: dict[str, list[str]] = {}
        for pid, signature in state.signatures.get(seq, {}).items():
            pairs = zip(state.fields(), signature, strict=False)
            told = ", ".join(str(v) if k == "op" else f"{k} {v}" for k, v in pairs if v is not None)
            site = state.sites.get(seq, {}).get(pid)
            by.setdefault((told or "nothing known") + (f" ({site})" if site else ""), []).append(pid)
        parts = sorted(by.items(), key=lambda item: (len(item[1]), item[0]))
        return "; ".join(f"{listed(pids)} issued {told}" for told, pids in parts)
