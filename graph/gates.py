"""Who can go on, kept true change by change: a network of counting gates with well-founded support.

The model. Every participant and every thing that it needs is a node. A node counts the weights of those of its
inputs that are *in*, and is in itself once they reach its `need`: all blockers of a lock (an AND), one sender
of a mailbox (an OR), units that a semaphore lacks (weights). Those that run are in without inputs. The set of
nodes that are in must be the *least* one that obeys all gates: under the greatest one a ring would support
itself. Full reduction finds it in one pass (unit propagation in Horn formulas, Dowling and Gallier 1984).

The change. When a node comes in, counters fall and others follow: easy. When one goes out, counters alone
mislead, since two nodes may go on holding each other up. Three ways were weighed:

- *Delete and re-derive* (Gupta, Mumick and Subrahmanian 1993): take out whatever may have used the lost node,
  then bring back what still has support. Right, but it takes out everything within reach of a change.
- *A list of witnesses at each node*: cuts the reach, costs a list per wait and its upkeep at each change.
- *Ranks*, chosen here: every node that is in carries the time at which it was derived. An input supports a
  node only if it was derived earlier, and `left` counts nothing else. So the witnesses of a node are its
  inputs of lower rank, known without a list, and no ring can hold itself up: ranks fall along support, to
  those that run, whose rank is 0. A node is deleted only when earlier inputs no longer suffice, and re-derived
  at the end if later ones do. A *plain* node (it needs all of its inputs) has no choice and needs no second look.

What a change costs is proportional to the nodes that go out or come in and their edges, not to the graph.
A participant that runs, is waited for, and starts to wait for somebody who can go on is the one case in which
a lot could go out only to come back. So it first tries to take a rank between those that it relies on and
those that rely on it (`_slip_in`).

Objects with slots are used instead of arrays with interned numbers: measured the same to walk, no number has
to be given back, and a change of the facts patches one object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

OUT = -1.0
RUNNING, TIMED, UNTOLD, OPEN, FREED = 1, 2, 4, 8, 16
_MANY = 12


class Node:
    """A participant (`pid` is set) or a gate. `at`: rank, OUT if it cannot go on. `free`: why it needs no input.

    `left`: what its earlier inputs lack to reach `need`; of a node that is out, what all inputs lack.
    `outs`: the nodes that count it. `weights`: None if all inputs weigh 1. `home`: to whom a gate belongs.
    `mark`: what a full reduction has still to count.
    """

    __slots__ = ("at", "free", "home", "ins", "left", "mark", "need", "outs", "pid", "plain", "weights")

    def __init__(self, pid: str | None = None, home: Any = None) -> None:
        self.at = OUT
        self.free = 0
        self.home = home
        self.ins: tuple[Node, ...] = ()
        self.left = 1
        self.mark = 0
        self.need = 1
        self.outs: Collection[Node] = ()
        self.pid = pid
        self.plain = False
        self.weights: Mapping[Node, int] | None = None

    def weight(self, of: Node) -> int:
        """How much the input `of` counts."""
        return 1 if self.weights is None else self.weights[of]

    def lacks(self) -> int:
        """What all inputs that are in lack to reach the need."""
        if len(self.ins) == 1 and self.weights is None:
            return self.need - (self.ins[0].at >= 0.0)
        if self.weights is None:
            return self.need - sum(1 for one in self.ins if one.at >= 0.0)
        return self.need - sum(self.weights[one] for one in self.ins if one.at >= 0.0)

    def lacks_before(self, rank: float) -> int:
        """What the inputs of a lower rank lack to reach the need."""
        if len(self.ins) == 1 and self.weights is None:
            return self.need - (0.0 <= self.ins[0].at < rank)
        if self.weights is None:
            return self.need - sum(1 for one in self.ins if 0.0 <= one.at < rank)
        return self.need - sum(self.weights[one] for one in self.ins if 0.0 <= one.at < rank)


class Net:
    """All nodes. Call `rewire` and `drop` for what has changed, then `settle`; `out` is true from then on."""

    def __init__(self) -> None:
        self.out: set[Node] = set()
        self.visits = 0
        self._clock = 1.0
        self._lost: list[Node] = []
        self._check: list[Node] = []
        self._dropped: list[Node] = []

    def rewire(
        self, node: Node, need: int, ins: tuple[Node, ...], *, weights: Mapping[Node, int] | None = None, free: int = 0
    ) -> None:
        """Give `node` new inputs (each once) and a new need; `free`: bits that say why it is in whatever they do."""
        if ins != node.ins:
            for one in node.ins:
                _unlink(one, node)
            for one in ins:
                _link(one, node)
            node.ins = ins
        node.need, node.weights, node.free = need, weights, free
        node.plain = not free and weights is None and need == len(ins)
        if free:
            self._set_free(node)
        elif node.at < 0.0:
            self._found_out(node)
        else:
            self._found_in(node)

    def run(self, node: Node) -> None:
        """Let `node` be in without inputs: a participant that runs."""
        for one in node.ins:
            _unlink(one, node)
        node.ins, node.need, node.weights, node.free, node.plain = (), 0, None, RUNNING, False
        if node.outs:
            self._set_free(node)
        elif node.at != 0.0:
            if node.at < 0.0:
                self.out.discard(node)
            node.at = 0.0

    def spare(self, node: Node, one: Node) -> None:
        """Let the plain `node` do without its input `one`, which has done its part."""
        node.ins = tuple(other for other in node.ins if other is not one)
        _unlink(one, node)
        node.need -= 1
        if one.at < 0.0:
            node.left -= 1
            if not node.left:
                self._check.append(node)

    def drop(self, node: Node) -> None:
        """Forget a node that nobody counts."""
        assert not node.outs, "a node that somebody counts"
        for one in node.ins:
            _unlink(one, node)
        node.ins, node.need, node.free, node.plain, node.weights = (), -1, 0, False, None
        node.at = OUT
        self.out.discard(node)
        self._dropped.append(node)

    def settle(self) -> None:
        """Let everything follow from what was rewired."""
        lost, check = self._lost, self._check
        if lost:
            self._lost = []
            self._lose(lost, check)
            self.out.update(lost)
        if check:
            self._check = []
            self._regain(check)
        if self._dropped:
            self.out.difference_update(self._dropped)
            self._dropped = []

    def out_without(self, nodes: Iterable[Node], why: int) -> set[Node]:
        """Who would be out if the bits `why` set none of `nodes` free. Nothing is changed in the end."""
        concerned = [node for node in nodes if node.free and not node.free & ~why]
        kept = [(node.free, node.need) for node in concerned]
        for node in concerned:
            node.free, node.need = 0, 1 if node.free & RUNNING else node.need
        self._lost += concerned
        self._check += concerned
        self.settle()
        found = set(self.out)
        for node, (free, need) in zip(concerned, kept, strict=True):
            node.free, node.need = free, need
            self._set_free(node)
        self.settle()
        return found

    def out_with(self, freed: Iterable[Node]) -> set[Node]:
        """Who would still be out if the nodes `freed` went on. Nothing is changed in the end."""
        concerned = [node for node in freed if not node.free]
        for node in concerned:
            node.free, node.plain = FREED, False
            self._set_free(node)
        self.settle()
        found = set(self.out)
        for node in concerned:
            self.rewire(node, node.need, node.ins, weights=node.weights)
        self.settle()
        return found

    # --- one node ---

    def _set_free(self, node: Node) -> None:
        at = node.at
        if at < 0.0:
            if node.outs:
                self._check.append(node)
            else:
                node.at = 0.0
                self.out.discard(node)
        elif at > 0.0:
            node.at = 0.0
            for gate in node.outs:  # those that did not count it, since it came later than they did
                if not gate.plain and 0.0 < gate.at <= at:
                    gate.left -= gate.weight(node)

    def _found_out(self, node: Node) -> None:
        left = node.left = node.lacks()
        if left > 0:
            self.out.add(node)
        elif node.outs:
            self._check.append(node)
        else:
            self._clock += 1.0
            node.at = self._clock
            self.out.discard(node)

    def _found_in(self, node: Node) -> None:
        left = node.lacks_before(node.at)
        if left <= 0:
            node.left = left
        elif not node.outs:
            node.at = OUT
            self._found_out(node)
        else:
            node.left = node.lacks()
            if node.left > 0 or not self._slip_in(node):
                self._lost.append(node)
                self._check.append(node)

    def _slip_in(self, node: Node) -> bool:
        """Take a rank above all inputs in use and below all that count the node; whether there is one."""
        if not node.plain:
            return False
        above = min((gate.at for gate in node.outs if gate.at > node.at), default=self._clock + 1.0)
        below = 0.0
        for one in node.ins:
            if one is node or (one.at >= above and not self._lower(one, above, node)):
                return False
            below = max(below, one.at)
        rank = (below + above) / 2
        if not below < rank < above:
            return False
        node.at, node.left = rank, 0
        return True

    def _lower(self, gate: Node, above: float, counted: Node) -> bool:
        """Give `gate` a rank under `above`, if those that it relies on have lower ones and `counted` is none of them."""
        if not gate.plain or gate.pid is not None or counted in gate.ins:
            return False
        below = max((one.at for one in gate.ins), default=0.0)
        rank = (below + above) / 2
        if not below < rank < above:
            return False
        for other in gate.outs:
            if not other.plain and rank < other.at <= gate.at:
                other.left -= other.weight(gate)
        gate.at = rank
        return True

    # --- what follows ---

    def _lose(self, lost: list[Node], check: list[Node]) -> None:
        """Take out `lost`, which grows, and whatever had no other support that came earlier."""
        append = lost.append
        for node in lost:
            at = node.at
            if at < 0.0:
                continue
            node.at = OUT
            for gate in node.outs:
                left = gate.left
                if gate.plain:
                    gate.left = left + 1
                    if left == 0:
                        append(gate)
                elif gate.at > at or gate.at < 0.0:
                    now = left + (1 if gate.weights is None else gate.weights[node])
                    gate.left = now
                    if left <= 0 < now:
                        append(gate)
                        check.append(gate)
        self.visits += len(lost)

    def _regain(self, check: list[Node]) -> None:
        """Bring back what is supported after all, and whatever follows from it."""
        gained = []
        for node in check:
            if node.at >= 0.0:
                continue
            if not node.free and not node.plain:
                node.left = node.lacks()
            if node.free or node.left <= 0:
                gained.append(node)
            else:
                self.out.add(node)
        if gained:
            self._gain(gained)
            self.out.difference_update(gained)

    def _gain(self, gained: list[Node]) -> None:
        append, clock = gained.append, self._clock
        for node in gained:
            if node.at >= 0.0:
                continue
            clock += 1.0
            at = node.at = 0.0 if node.free else clock
            for gate in node.outs:
                left = gate.left
                if gate.plain:
                    gate.left = left - 1
                    if left == 1:
                        append(gate)
                elif gate.at < 0.0 or gate.at > at:
                    now = left - (1 if gate.weights is None else gate.weights[node])
                    gate.left = now
                    if now <= 0 < left and gate.at < 0.0:
                        append(gate)
        self._clock = clock
        self.visits += len(gained)


def _link(source: Node, gate: Node) -> None:
    outs = source.outs
    if isinstance(outs, dict):
        outs[gate] = None
    elif not isinstance(outs, list):
        source.outs = [gate]
    elif len(outs) < _MANY:
        outs.append(gate)
    else:
        many = dict.fromkeys(outs)
        many[gate] = None
        source.outs = many


def _unlink(source: Node, gate: Node) -> None:
    outs = source.outs
    if len(outs) == 1:
        source.outs = ()
    elif isinstance(outs, dict):
        del outs[gate]
    elif isinstance(outs, list):
        outs.remove(gate)


def from_scratch(nodes: Iterable[Node]) -> set[Node]:
    """All of `nodes` that are in by full reduction, whatever their ranks say: linear in nodes and edges."""
    live: list[Node] = []
    append = live.append
    for node in nodes:
        node.mark = need = 0 if node.free else node.need
        if need <= 0:
            append(node)
    for node in live:
        for gate in node.outs:
            before = gate.mark
            if before > 0:
                gate.mark = now = before - (1 if gate.weights is None else gate.weights[node])
                if now <= 0:
                    append(gate)
    return set(live)
