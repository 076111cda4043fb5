"""How one wait is told in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unknot.graph.events import Atom
from unknot.graph.ids import parse, shown
from unknot.graph.needs import Compiler
from unknot.graph.resources import FIELDS, ResourceState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import CurrentWait, Participant

NAMED = 4


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


class Words:
    """Tells the waits of one state of a graph at `now` seconds."""

    def __init__(self, graph: LiveGraph, now: float) -> None:
        self._graph = graph
        self._now = now
        self._compiler = Compiler(graph)

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
        site = one.wait.site or self.fold(one)[1].site
        parts = self._parts(one)
        where = f" ({site})" if site else ""
        limit = self._limit(self.fold(one)[1])
        return f"{pid} waits {age(self._now - one.wait.t)}{where} {parts}{limit}."

    def _limit(self, wait: CurrentWait) -> str:
        if wait.deadline is not None:
            return f"; it goes on by itself in {age(wait.deadline - self._now)}"
        return f"; killed by its time limit in {age(wait.limit - self._now)}" if wait.limit is not None else ""

    def _parts(self, one: Participant) -> str:
        teller, wait = self.fold(one)
        clauses = []
        for clause in wait.needs:
            told = self._peers(clause.of) or [self.atom(teller, wait, atom) for atom in clause.of]
            if clause.k == len(clause.of) or len(told) == 1:
                clauses += told
            elif clause.k == 1:
                clauses.append("needing any of: " + "; or ".join(told) + " — none can come")
            else:
                clauses.append(f"needing {clause.k} of: " + "; ".join(told))
        return clauses[0] if len(clauses) == 1 else "needing all of: " + "; and ".join(clauses)

    def _peers(self, atoms: tuple[Atom, ...]) -> list[str]:
        """Many participants that are waited for together are told in one go."""
        names = [atom.p for atom in atoms if atom.p is not None]
        return [f"for {listed(names)} to answer"] if len(names) == len(atoms) > 1 else []

    def atom(self, one: Participant, wait: CurrentWait, atom: Atom) -> str:
        """What one atom waits for, and who could end it."""
        if atom.external is not None:
            return f"for {wait.label or atom.external}, outside the run" + (", where nobody can help" if atom.closed else "")
        if atom.p is not None:
            return f"for {atom.p} to answer{self._fate(atom.p)}"
        state = self._graph.resources[atom.r or ""]
        if state.type == "collective":
            return self._collective(state, atom)
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

    def _of(self, one: Participant, state: ResourceState, atom: Atom) -> str:
        groups = self._compiler._condition(one, atom).groups
        named = shown(state.id)
        thing = {"recv": f"a message in {named}", "send": f"room in {named}"}.get(atom.op or "", named)
        if atom.units > 1:
            thing = f"{atom.units} units of {named}"
        helpers = [pid for group in groups for pid in group.weights]
        gone = [f"{pid} ({self.fate(pid)})" for group in groups for pid in group.gone]
        if any(group.never == "too many" for group in groups):
            return f"for {thing}, more than exist ({state.capacity()})"
        if any(group.via == "hold" for group in groups):
            return f"for {thing}, held by {listed([*gone, *dict.fromkeys(helpers)])}"
        if any(group.via == "queue" for group in groups):
            return f"for {thing}, behind {listed(helpers)}"
        verb = {"recv": "send", "send": "make"}.get(atom.op or "", "bring")
        if any(group.open for group in groups):
            return f"for {thing}; who could {verb} it is not known"
        if helpers:
            return f"for {thing}, which only {listed(helpers, 'or')} could {verb}"
        return f"for {thing}, which nobody is left to {verb}" + (f": {listed(gone)}" if gone else "")

    def _collective(self, state: ResourceState, atom: Atom) -> str:
        assert state.declared is not None
        seq, members = atom.seq or 0, state.declared.members or ()
        head = f"in {self.operation(state, seq)} #{seq} of {shown(state.id)}"
        if state.mismatched(seq):
            return f"{head}, where the ranks disagree: {self.disagreement(state, seq)}"
        arrived = [m for m in members if any(state.arrivals[p] >= seq for p in self._compiler.issuing(state, m))]
        missing = [self._missing(state, m) for m in members if m not in arrived]
        told = f"{len(arrived)} of {len(members)} ranks arrived"
        return f"{head}: {told}" + (f"; missing {listed(missing)}" if missing else "")

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

    def operation(self, state: ResourceState, seq: int) -> str:
        """The name of operation `seq`, as far as anybody has said it."""
        return next((name for by in [self._operations(state, seq)] for name in by.values() if name), "operation")

    def _operations(self, state: ResourceState, seq: int) -> dict[str, str]:
        match = (state.declared.match if state.declared is not None else None) or FIELDS
        issued = state.signatures.get(seq, {})
        if "op" not in match:
            return dict.fromkeys(issued, "")
        return {pid: str(signature[match.index("op")] or "") for pid, signature in issued.items()}

    def disagreement(self, state: ResourceState, seq: int) -> str:
        """Who issued what as operation `seq`, the rarest first."""
        match = (state.declared.match if state.declared is not None else None) or FIELDS
        by: dict[str, list[str]] = {}
        for pid, signature in state.signatures.get(seq, {}).items():
            told = ", ".join(f"{k} {v}" if k != "op" else str(v) for k, v in zip(match, signature, strict=True) if v is not None)
            by.setdefault(told or "nothing known", []).append(pid)
        parts = sorted(by.items(), key=lambda item: (len(item[1]), item[0]))
        return "; ".join(f"{listed(pids)} issued {told}" for told, pids in parts)
