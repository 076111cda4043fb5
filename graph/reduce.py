"""Who can go on: the least fixpoint over the conditions of all waits, by counting down.

Start from those that run. Whoever can go on pays its weight into the groups that it helps; a group whose need
is paid is met, a condition whose groups are met is served, a clause with k served conditions is met, and a
participant whose clauses are all met can go on in turn. Each listed helper is looked at once, so this is
linear (unit propagation in Horn formulas, Dowling and Gallier 1984). The *least* fixpoint matters: in the
greatest one a ring would support itself.

The net is built once and solved several times under different assumptions: whether unknown helpers count,
whether deadlines let a waiter go, whether sources with missing records can be trusted to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from unknot.graph.needs import Condition, Group, Need


@dataclass(slots=True)
class Net:
    """All conditions as arrays of counters, linked from helper to group, condition, clause and waiter."""

    needs: Mapping[str, tuple[Need, ...]]
    _group: list[Group] = field(default_factory=list)
    _condition_of: list[int] = field(default_factory=list)
    _groups_in: list[int] = field(default_factory=list)
    _clauses_of: list[list[int]] = field(default_factory=list)
    _clause_k: list[int] = field(default_factory=list)
    _waiter_of: list[str] = field(default_factory=list)
    _clauses_in: dict[str, int] = field(default_factory=dict)
    _helps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _known: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pid, clauses in self.needs.items():
            self._clauses_in[pid] = len(clauses)
            for clause in clauses:
                self._add_clause(pid, clause)

    def _add_clause(self, pid: str, clause: Need) -> None:
        number = len(self._clause_k)
        self._clause_k.append(clause.k)
        self._waiter_of.append(pid)
        for condition in clause.of:
            self._clauses_of[self._add_condition(condition)].append(number)

    def _add_condition(self, condition: Condition) -> int:
        known = self._known.get(id(condition))
        if known is not None:
            return known
        number = self._known[id(condition)] = len(self._groups_in)
        self._groups_in.append(len(condition.groups))
        self._clauses_of.append([])
        for group in condition.groups:
            for helper, weight in group.weights.items():
                self._helps.setdefault(helper, []).append((len(self._group), weight))
            self._group.append(group)
            self._condition_of.append(number)
        return number

    def solve(self, start: Iterable[str], *, unknown_help: bool) -> set[str]:
        """Everybody who can go on if those in `start` can; `unknown_help`: whether open groups are met."""
        return _Solution(self, unknown_help=unknown_help).run(start)


class _Solution:
    """One run of the counters."""

    def __init__(self, net: Net, *, unknown_help: bool) -> None:
        self._net = net
        self._live: set[str] = set()
        self._todo: list[str] = []
        self._unknown_help = unknown_help
        self._group_left = [group.need if group.never is None else -1 for group in net._group]
        self._condition_left = list(net._groups_in)
        self._clause_left = list(net._clause_k)
        self._wait_left = dict(net._clauses_in)

    def run(self, start: Iterable[str]) -> set[str]:
        for pid in start:
            self._goes_on(pid)
        self._served_now()
        while self._todo:
            for group, weight in self._net._helps.get(self._todo.pop(), ()):
                left = self._group_left[group]
                if left > 0:
                    self._group_left[group] = max(0, left - weight)
                    if left <= weight:
                        self._met(group)
        return self._live

    def _served_now(self) -> None:
        for pid, clauses in self._wait_left.items():
            if not clauses:
                self._goes_on(pid)
        for number, k in enumerate(self._net._clause_k):
            if k == 0:
                self._clause_met(number)
        for number, groups in enumerate(self._net._groups_in):
            if groups == 0:
                self._served(number)
        for number, group in enumerate(self._net._group):
            if self._unknown_help and group.open and self._group_left[number] > 0:
                self._group_left[number] = 0
                self._met(number)

    def _goes_on(self, pid: str) -> None:
        if pid not in self._live:
            self._live.add(pid)
            self._todo.append(pid)

    def _met(self, group: int) -> None:
        condition = self._net._condition_of[group]
        self._condition_left[condition] -= 1
        if self._condition_left[condition] == 0:
            self._served(condition)

    def _served(self, condition: int) -> None:
        for clause in self._net._clauses_of[condition]:
            self._clause_left[clause] -= 1
            if self._clause_left[clause] == 0:
                self._clause_met(clause)

    def _clause_met(self, clause: int) -> None:
        pid = self._net._waiter_of[clause]
        self._wait_left[pid] -= 1
        if self._wait_left[pid] == 0:
            self._goes_on(pid)


def group_met(group: Group, live: set[str], *, unknown_help: bool) -> bool:
    """Whether the helpers in `live` pay the group's need."""
    if group.never is not None:
        return False
    if group.open and unknown_help:
        return True
    return sum(weight for pid, weight in group.weights.items() if pid in live) >= group.need


class View:
    """What is not met under one assumption. Shared conditions are looked at once, however many wait for them."""

    def __init__(self, live: set[str], *, unknown_help: bool) -> None:
        self._live = live
        self._unknown_help = unknown_help
        self._lacking: dict[int, list[Group]] = {}

    def lacking(self, condition: Condition) -> list[Group]:
        """The groups of `condition` that are not met."""
        known = self._lacking.get(id(condition))
        if known is None:
            met = (group_met(group, self._live, unknown_help=self._unknown_help) for group in condition.groups)
            known = [group for group, is_met in zip(condition.groups, met, strict=True) if not is_met]
            self._lacking[id(condition)] = known
        return known

    def unmet(self, needs: Iterable[Need]) -> list[Condition]:
        """The conditions that keep a waiter: those of every clause that is not met, in order."""
        found = []
        for clause in needs:
            bad = [condition for condition in clause.of if self.lacking(condition)]
            if len(clause.of) - len(bad) < clause.k:
                found += bad
        return found


def unmet(needs: Iterable[Need], view: View) -> list[tuple[Condition, Group]]:
    """The groups that keep a waiter, each with its condition."""
    return [(condition, group) for condition in view.unmet(needs) for group in view.lacking(condition)]
