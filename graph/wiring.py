"""From facts to gates: which node stands for which need, and which of them a changed fact concerns.

The meaning of a wait is written twice: in `needs`, as conditions that carry their explanation, compiled for a
few participants whenever somebody asks why; and here, as gates that are kept from event to event. The tests
(and `validate`) hold one against the other after every event.

Events only mark what they touch; `settle` looks at the marked nodes once, whatever happened to them in between.
A record that tells the whole picture of a process anew therefore costs a look at its nodes, and nothing
follows from it where nothing has changed. Gates that many waits share (the holders of a lock, the senders of a
mailbox, an operation of a group) are one node: a lock that changes hands is one changed gate, however many wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from unknot.graph.gates import OPEN, TIMED, UNTOLD, Net, Node
from unknot.graph.ids import is_pattern, matches, parse
from unknot.graph.queues import ahead, concerned, stands_for_all
from unknot.graph.resources import UNITS
from unknot.graph.rights import Rights, Suppliers

if TYPE_CHECKING:
    from unknot.graph.events import Atom, Clause
    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import CurrentWait, Participant
    from unknot.graph.resources import ResourceState

Key = tuple[Any, ...]
Wired = tuple[int, tuple[Node, ...], dict[Node, int] | None, int]
_LOCKED: Key = ("held", "x", "")
_KEPT_LISTS = 1024


class Wiring:
    """The nodes of one live graph. The graph says what it has changed; `settle` makes `net` agree with it."""

    def __init__(self, graph: LiveGraph) -> None:
        self.graph = graph
        self.net = Net()
        self.anybody = Node(home="anybody")
        self.net.rewire(self.anybody, 1, (), free=OPEN)
        self.open = {self.anybody}
        self.rights: dict[tuple[str, ...], Node] = {}
        self._followers: dict[tuple[str, ...], dict[Node, None]] = {}
        self._resolver: Rights | None = None
        self._dirty: dict[Node, None] = {}
        self._spared: list[tuple[Node, Node]] = []
        self._awaited: dict[str, dict[Node, None]] = {}
        self._waits_noted, self._waits_kept = 0, _KEPT_LISTS
        self._named: dict[str, dict[tuple[str, ...], None]] = {}
        self._patterns: dict[str, dict[tuple[str, ...], None]] = {}

    # --- what has changed ---

    def wait(self, one: Participant) -> None:
        """Its wait, or whether it is free, has changed."""
        self._dirty[one.node] = None

    def resource(self, state: ResourceState) -> None:
        """What decides over all waits for it has changed."""
        if state.gates:
            for gate in state.gates.values():
                self._dirty[gate] = None

    def arrived(self, state: ResourceState, one: Participant, seq: int) -> None:
        """`one` has issued operation `seq` of a group and those before it."""
        members = state.declared_members
        direct = not state.by_threads and one.id in members and one.member not in members and not state.mismatched(seq)
        for key, gate in state.gates.items() if state.gates else ():
            if direct and gate.plain and key[0] == "seq" and gate not in self._dirty:
                if key[1] <= seq and one.node in gate.ins:
                    self._spared.append((gate, one.node))
            else:
                self._dirty[gate] = None

    def waits_for(self, state: ResourceState) -> None:
        """Its very meaning has changed: everybody who waits for it looks again."""
        self.resource(state)
        for pid in state.waiters:
            self._dirty[self.graph.participants[pid].node] = None

    def holders(self, state: ResourceState, one: Participant) -> None:
        """What `one` holds of it has changed."""
        if state.gates:
            for gate in state.gates.values():
                self._dirty[gate] = None
        if one.wait is not None and one.id in state.waiters:
            self._dirty[one.node] = None

    def queue(self, state: ResourceState, place: int) -> None:
        """Whoever stands at `place` of its queue or behind has others ahead now."""
        queue, people = state.queue, self.graph.participants
        fair = state.declared is not None and state.declared.policy != "writer-pref"
        if fair and place >= len(queue):
            return
        if fair and stands_for_all(self.graph, state, queue[place]):
            self._dirty[people[queue[place]].node] = None
            return
        for pid in concerned(self.graph, state, place):
            self._dirty[people[pid].node] = None

    def person(self, one: Participant) -> None:
        """A participant has begun, ended or vanished."""
        for node in one.node.outs:
            self._look_again(node)
        for node in self._awaited.pop(one.id, ()):
            self._look_again(node)
        for r in one.issued:
            self.resource(self.graph.resources[r])
        self.member(one.member)
        if one.role == "driver":
            self._dirty.update(dict.fromkeys(self.rights.values()))

    def member(self, member: str) -> None:
        """Who of a member lives has changed, or whether anything was heard of it."""
        for names in self._named.get(member, ()):
            self._dirty[self.rights[names]] = None
        for pattern, lists in self._patterns.items():
            if matches(member, pattern):
                for names in lists:
                    self._dirty[self.rights[names]] = None

    def gone(self, one: Participant) -> None:
        """A participant has vanished: nothing may lead to its node any more."""
        self.person(one)
        self._dirty[one.node] = None

    def _look_again(self, node: Node) -> None:
        """A node, or where it stands for part of one wait, its waiter."""
        if node.home.__class__ is str and node is not self.anybody:
            waiter = self.graph.participants.get(node.home)
            if waiter is not None:
                self._dirty[waiter.node] = None
        else:
            self._dirty[node] = None

    # --- making it so ---

    def settle(self) -> Net:
        """The net, true to the facts of this moment."""
        if not self._dirty and not self._spared:
            return self.net
        if self._spared:
            for gate, node in self._spared:
                if node in gate.ins and gate.plain:
                    self.net.spare(gate, node)
            self._spared = []
        if self._dirty:
            self._look()
        self.net.settle()
        return self.net

    def _look(self) -> None:
        """Look at each marked node once: participants first, since they make and forget gates."""
        dirty, self._dirty = self._dirty, {}
        gates = []
        for node in dirty:
            if node.pid is None:
                gates.append(node)
            else:
                self._wire(node)
        for node in gates:
            if node.need >= 0:
                self._refresh(node)
                if self._followers and node.home[0] is None:
                    gates += self._followers.get(node.home[1], ())
        self._resolver = None

    def _wire(self, node: Node) -> None:
        assert node.pid is not None
        one = self.graph.participants.get(node.pid)
        old = node.ins
        if one is None or one.node is not node or one.wait is None:
            self.net.run(node)
        else:
            free = 0 if one.wait.deadline is None else TIMED
            if self.graph.sources and self.graph.is_unknown(one.source):
                free |= UNTOLD
            need, ins = self._wait(one, one.wait)
            self.net.rewire(node, need, ins, free=free)
        for gate in old:
            if not gate.outs:
                self._release(gate)

    def _refresh(self, gate: Node) -> None:
        """Work a shared gate out anew."""
        state, key = gate.home
        if key is _LOCKED and self._changes_hands(gate, state):
            return
        old = gate.ins
        self._put(gate, self._suppliers(key) if state is None else _GATES[key[0]](self, state, key))
        for one in old:
            if not one.outs:
                self._release(one)

    def _changes_hands(self, gate: Node, state: ResourceState) -> bool:
        """The most common change, without a detour: a plain lock is free, or one other that runs or waits has it."""
        own, holders = state.declared, state.holders
        if own is None or own.type != "lock" or own.setters or len(holders) > 1:
            return False
        ins: tuple[Node, ...] = ()
        for pid in holders:
            holder = self.graph.participants[pid]
            if holder.how is not None:
                return False
            ins = (holder.node,)
        self.net.rewire(gate, len(ins), ins)
        return True

    def _put(self, gate: Node, wired: Wired) -> None:
        need, ins, weights, free = wired
        self.net.rewire(gate, need, ins, weights=weights, free=free)
        if free:
            self.open.add(gate)
        else:
            self.open.discard(gate)

    def _release(self, gate: Node) -> None:
        """Forget a gate that nobody counts any more; rights lists are kept for the next who asks."""
        home = gate.home
        if gate.pid is not None or gate is self.anybody or gate.need < 0:
            return
        if home.__class__ is not str:
            state, key = home
            if state is None:
                if len(self.rights) <= _KEPT_LISTS or key in self._followers:
                    return
                self._forget_list(key)
            else:
                del state.gates[key]
                if not state.gates:
                    state.gates = None
                if self._followers:
                    self._unfollow(gate)
        old = gate.ins
        self.open.discard(gate)
        self.net.drop(gate)
        for one in old:
            if not one.outs:
                self._release(one)

    # --- waits ---

    def _wait(self, one: Participant, wait: CurrentWait) -> tuple[int, tuple[Node, ...]]:
        """How many nodes the wait of `one` needs, and which: all of them, or it never ends."""
        if wait.simple:
            found = self._atom(one, wait, wait.needs[0].of[0])
            return (1, ()) if found is None else (len(found), found)
        needed: dict[Node, None] = {}
        never = 0
        for clause in wait.needs:
            every = clause.k == len(clause.of)
            for part in (self._atom(one, wait, a) for a in clause.of) if every else (self._choice(one, wait, clause),):
                if part is None:
                    never = 1
                else:
                    needed.update(dict.fromkeys(part))
        return len(needed) + never, tuple(needed)

    def _choice(self, one: Participant, wait: CurrentWait, clause: Clause) -> tuple[Node, ...] | None:
        """`k` of the atoms, as one node of this wait alone; None if too few can ever be served."""
        k, counted = clause.k, dict[Node, int]()
        for atom in clause.of if k else ():
            part = self._atom(one, wait, atom)
            if part == ():
                k -= 1
            elif part is not None:
                node = part[0] if len(part) == 1 else self._own_gate(one, len(part), part)
                counted[node] = counted.get(node, 0) + 1
        total = sum(counted.values())
        if k <= 0 or total < k:
            for node in counted:
                if not node.outs:
                    self._release(node)
            return () if k <= 0 else None
        weights = counted if total > len(counted) else None
        return (self._own_gate(one, k, tuple(counted), weights),)

    def _own_gate(
        self, one: Participant, need: int, ins: tuple[Node, ...], weights: dict[Node, int] | None = None
    ) -> Node:
        gate = Node(home=one.id)
        self.net.rewire(gate, need, ins, weights=weights)
        return gate

    def _atom(self, one: Participant, wait: CurrentWait, atom: Atom) -> tuple[Node, ...] | None:
        """The nodes that must all come in for `atom` to be served; none if it is, None if it never can be."""
        r = atom.r
        if r is None:
            return self._peer(one, atom.p) if atom.p is not None else None if atom.closed else (self.anybody,)
        state = self.graph.resources[r]
        own = state.declared
        if own is None:
            return (self.anybody,)
        if wait.passed and r in wait.passed:
            return ()
        return _ATOMS[own.type](self, one, state, atom)

    def _peer(self, one: Participant, pid: str) -> tuple[Node, ...] | None:
        known = self.graph.participants.get(pid)
        if known is not None and known.how is None:
            return (known.node,)
        self._await(pid, one.node)
        if known is None or known.how == "fence":
            return (self.anybody,)
        return () if known.how == "exit" else None

    def _await(self, pid: str, node: Node) -> None:
        """Let `node` look again once `pid` begins, ends or vanishes."""
        self._awaited.setdefault(pid, {})[node] = None
        self._waits_noted += 1
        if self._waits_noted > 2 * self._waits_kept:
            self._prune()

    def _prune(self) -> None:
        """Forget who no longer waits for somebody that is not there; often enough for the rest to be the most."""
        kept = {pid: {node: None for node in nodes if self._awaits(node, pid)} for pid, nodes in self._awaited.items()}
        self._awaited = {pid: nodes for pid, nodes in kept.items() if nodes}
        self._waits_noted = sum(map(len, self._awaited.values()))
        self._waits_kept = max(_KEPT_LISTS, self._waits_noted)

    def _awaits(self, node: Node, pid: str) -> bool:
        if node.pid is None:
            return node.need >= 0
        one = self.graph.participants.get(node.pid)
        wait = one.wait if one is not None and one.node is node else None
        return wait is not None and any(atom.p == pid for clause in wait.needs for atom in clause.of)

    def _gate(self, state: ResourceState, key: Key) -> Node:
        """The gate of a resource that is called `key`, made now if nobody has waited for it yet."""
        gates = state.gates
        if gates is None:
            gates = state.gates = {}
        gate = gates.get(key)
        if gate is None:
            gate = gates[key] = Node(home=(state, key))
            self._put(gate, _GATES[key[0]](self, state, key))
        return gate

    # --- locks and units ---

    def _lock_atom(self, one: Participant, state: ResourceState, atom: Atom) -> tuple[Node, ...] | None:
        own = state.declared
        assert own is not None
        mode = "x" if own.type == "lock" else atom.mode
        if own.reentrant and one.id in state.holders:  # it need not queue again
            return (self._gate(state, ("held", mode, one.id)),)
        held = self._gate(state, _LOCKED if mode == "x" else ("held", mode, ""))
        return (held, *self._places(one, state, atom)) if state.queue else (held,)

    def _places(self, one: Participant, state: ResourceState, atom: Atom) -> list[Node]:
        queue, people = state.queue, self.graph.participants
        if len(queue) == 1:
            return []
        own = state.declared
        if own is not None and own.type != "rwlock" and own.policy != "any" and queue[-1] == one.id:
            last = queue[-2]  # mostly that is all: who asks for nothing else stands for those before
            return [people[last].node] if stands_for_all(self.graph, state, last) else self._all_places(one, state, atom)
        return self._all_places(one, state, atom)

    def _all_places(self, one: Participant, state: ResourceState, atom: Atom) -> list[Node]:
        return [self.graph.participants[pid].node for pid in ahead(self.graph, one, state, atom)]

    def _blockers(self, state: ResourceState, mode: str, spared: str) -> list[str]:
        if state.declared is not None and state.declared.type == "lock":
            return [pid for pid in state.holders if pid != spared]
        return [
            pid
            for pid, modes in state.holders.items()
            if pid != spared and any(state.excludes(mode, held) for held in modes)
        ]

    def _held_gate(self, state: ResourceState, key: Key) -> Wired:
        own, holders = state.declared, state.holders
        if len(holders) == 1 and own is not None and own.type == "lock" and not own.setters:  # the common one
            (pid,) = holders
            holder = self.graph.participants[pid]
            if pid != key[2]:
                return (1, (holder.node,), None, 0) if holder.how is None else (1, (), None, 0)
        blockers = self._blockers(state, key[1], key[2])
        if not blockers:
            return 0, (), None, 0
        return self._freed(state, len(blockers), dict.fromkeys(blockers, 1))

    def _units_atom(self, one: Participant, state: ResourceState, atom: Atom) -> tuple[Node, ...] | None:
        own, capacity = state.declared, state.capacity()
        assert own is not None
        if capacity is None:
            return (self.anybody,)
        if atom.units > capacity and own.setters is None:
            return None
        held = self._gate(state, ("units", atom.units))
        return (held, *self._places(one, state, atom)) if state.queue else (held,)

    def _units_gate(self, state: ResourceState, key: Key) -> Wired:
        lacking = key[1] - ((state.capacity() or 0) - state.held())
        if lacking <= 0:
            return 0, (), None, 0
        return self._freed(state, lacking, {pid: sum(modes.values()) for pid, modes in state.holders.items()})

    def _freed(self, state: ResourceState, need: int, held: dict[str, int]) -> Wired:
        """Those who hold and live, by weight; or any one of those who may free it without holding."""
        people = self.graph.participants
        weights = {people[pid].node: units for pid, units in held.items() if people[pid].how is None}
        setters = state.declared.setters if state.declared is not None else None
        if setters:
            weights[self._rights_gate(setters)] = need
        same = all(units == 1 for units in weights.values())
        return need, tuple(weights), None if same else weights, 0

    # --- what is owed ---

    def _mailbox_atom(self, one: Participant, state: ResourceState, atom: Atom) -> tuple[Node, ...] | None:
        op = atom.op or "recv"
        meeting = state.declared is not None and state.declared.capacity == 0
        return (self._gate(state, ("box", op, one.id if meeting else "")),)

    def _box_gate(self, state: ResourceState, key: Key) -> Wired:
        own, op = state.declared, key[1]
        assert own is not None
        ready = [pid for pid in state.waiters if self.graph.meets(pid, state.id, op)] if len(state.waiters) > 1 else ()
        room = own.capacity is None or state.count < own.capacity
        if state.closed or (state.count > 0 if op == "recv" else room) or (own.capacity == 0 and any(pid != key[2] for pid in ready)):
            return 0, (), None, 0
        ins = dict.fromkeys(self.graph.participants[pid].node for pid in ready)
        names = own.senders if op == "recv" else own.receivers
        if op != "recv" or not state.returners or names is None or state.doubtful:
            return self._owed(state, names, tuple(ins))
        return self._returned(state, key, names, ins)

    def _returned(self, state: ResourceState, key: Key, names: tuple[str, ...], ins: dict[Node, None]) -> Wired:
        """Those who owe, and those who have messages in hand and may put them back, if they need not be served here first."""
        self._rights_gate(state.returners)
        self._followers.setdefault(state.returners, {})[(state.gates or {})[key]] = None
        back = self._found(state.returners)
        for pid in back.alive:
            if not self.graph.waits_only_for(pid, state.id):
                ins[self.graph.participants[pid].node] = None
        need, inputs, weights, _ = self._owed(state, names, tuple(ins))
        return need, inputs, weights, OPEN if back.open else 0

    def _owed(self, state: ResourceState, names: tuple[str, ...] | None, others: tuple[Node, ...] = ()) -> Wired:
        """One of those who have the right, or may close; an absent list means anybody."""
        if names is None or state.doubtful:
            return 1, others, None, OPEN
        closers = (state.declared.closers if state.declared is not None else None) or ()
        return 1, (self._rights_gate((*names, *closers)), *others), None, 0

    def _event_atom(self, _: Participant, state: ResourceState, __: Atom) -> tuple[Node, ...] | None:
        return (self._gate(state, ("set",)),)

    def _set_gate(self, state: ResourceState, _: Key) -> Wired:
        own = state.declared
        assert own is not None
        if state.is_set or (own.type == "latch" and state.count <= 0):
            return 0, (), None, 0
        return self._owed(state, own.setters)

    # --- operations of groups ---

    def _collective_atom(self, _: Participant, state: ResourceState, atom: Atom) -> tuple[Node, ...] | None:
        if state.declared is None or state.declared.members is None or atom.seq is None:
            return (self.anybody,)
        return (self._gate(state, ("seq", atom.seq)),)

    def _seq_gate(self, state: ResourceState, key: Key) -> Wired:
        seq = key[1]
        if state.mismatched(seq):
            return 1, (), None, 0
        need, ins, gates = 0, dict[Node, None](), state.gates or {}
        people, arrivals, others = self.graph.participants, state.arrivals, False
        for name in state.declared_members:
            if state.by_threads or name not in arrivals:
                others = True
            elif arrivals[name] < seq:
                if people[name].how is None:
                    ins[people[name].node] = None
                else:
                    need += 1
        for name, issuing in state.issuing(people).items() if others else ():
            if (name in arrivals and not state.by_threads) or any(arrivals[pid] >= seq for pid in issuing):
                continue
            node = self._arriving(state, name, issuing, waiting=gates[key])
            if node is None:
                need += 1
            else:
                ins[node] = None
        return need + len(ins), tuple(ins), None, 0

    def _arriving(self, state: ResourceState, name: str, issuing: list[str], *, waiting: Node) -> Node | None:
        """Who may bring the arrival of the member `name`, for which the gate `waiting` waits; None if nobody can."""
        people = self.graph.participants
        if not issuing:
            known = people.get(name)
            if known is not None:
                return known.node if known.how is None else None
            self._await(name, waiting)
            return self._rights_gate((name,))
        alive = [people[pid].node for pid in issuing if people[pid].how is None]
        if not alive:
            return None
        return alive[0] if len(alive) == 1 else self._gate(state, ("any", name))

    def _any_gate(self, state: ResourceState, key: Key) -> Wired:
        people = self.graph.participants
        issuing = state.issuing(people).get(key[1], [])
        return 1, tuple(people[pid].node for pid in issuing if people[pid].how is None), None, 0

    # --- rights ---

    def _rights_gate(self, names: tuple[str, ...]) -> Node:
        gate = self.rights.get(names)
        if gate is None:
            gate = self.rights[names] = Node(home=(None, names))
            for name in names:
                index = self._patterns if is_pattern(name) else self._named
                index.setdefault(name if is_pattern(name) else parse(name).member, {})[names] = None
            self._put(gate, self._suppliers(names))
        return gate

    def _suppliers(self, names: tuple[str, ...]) -> Wired:
        found = self._found(names)
        people = self.graph.participants
        return 1, tuple(people[pid].node for pid in found.alive), None, OPEN if found.open else 0

    def _found(self, names: tuple[str, ...]) -> Suppliers:
        if self._resolver is None:
            self._resolver = Rights(self.graph)
        return self._resolver.suppliers(names)

    def _unfollow(self, gate: Node) -> None:
        """Forget that `gate` depends on rights lists that are no inputs of it."""
        for names in [names for names, gates in self._followers.items() if gate in gates]:
            del self._followers[names][gate]
            if not self._followers[names]:
                del self._followers[names]
                if not self.rights[names].outs:
                    self._release(self.rights[names])

    def _forget_list(self, names: tuple[str, ...]) -> None:
        del self.rights[names]
        for name in names:
            index = self._patterns if is_pattern(name) else self._named
            key = name if is_pattern(name) else parse(name).member
            if key in index:
                index[key].pop(names, None)
                if not index[key]:
                    del index[key]


def all_nodes(graph: LiveGraph) -> Iterable[Node]:
    """Every node of the wiring of `graph`, each once."""
    wiring = graph.wiring
    yield wiring.anybody
    yield from wiring.rights.values()
    for state in graph.resources.values():
        if state.gates:
            yield from state.gates.values()
    for one in graph.participants.values():
        yield one.node
        yield from _own(one.node)


def _own(node: Node) -> Iterable[Node]:
    for gate in node.ins:
        if gate.home.__class__ is str and gate.home == node.pid:
            yield gate
            yield from (one for one in gate.ins if one.home.__class__ is str and one.home == node.pid)


_ATOMS: dict[str, Callable[[Wiring, Participant, ResourceState, Atom], tuple[Node, ...] | None]] = {
    "lock": Wiring._lock_atom, "rwlock": Wiring._lock_atom, **dict.fromkeys(sorted(UNITS), Wiring._units_atom),
    "mailbox": Wiring._mailbox_atom, "event": Wiring._event_atom, "condition": Wiring._event_atom,
    "latch": Wiring._event_atom, "external": Wiring._event_atom, "collective": Wiring._collective_atom,
}  # fmt: skip
_GATES: dict[str, Callable[[Wiring, ResourceState, Key], Wired]] = {
    "held": Wiring._held_gate, "units": Wiring._units_gate, "box": Wiring._box_gate, "set": Wiring._set_gate,
    "seq": Wiring._seq_gate, "any": Wiring._any_gate,
}  # fmt: skip
