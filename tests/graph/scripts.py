"""Random legal histories over every type of resource: events that the present state allows, out of `Chances`."""

from __future__ import annotations

import os
from typing import Any, Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.detection import is_hypothesis_test

from tests.graph.chances import Chances
from unknot.graph import events as ev
from unknot.graph.ids import parse
from unknot.graph.live import LiveGraph
from unknot.graph.resources import HELD, UNITS

SCENARIOS = int(os.environ.get("UNKNOT_SCENARIOS", "5000"))
PEOPLE = ("a#1", "b#1", "c#1", "d#1")
KINDS: tuple[ev.ResourceType, ...] = (
    "lock", "lock", "rwlock", "semaphore", "slots", "reservation", "mailbox", "mailbox", "event", "condition", "latch",
    "external", "collective", "collective",
)  # fmt: skip
_POLICIES = ("fifo", "fifo-strict", "any", "writer-pref")
_CUSTOM = {"is": ("x",), "sx": ("sx", "x"), "x": ("x",)}


def scenarios(n: int = SCENARIOS) -> Any:
    """A test of `n` histories; each is one string of bytes, unless the test says with `given` what it draws.

    The same histories each time, so that a suite that has passed passes again; with a number of one's own, other ones each time.
    """

    def wrap(test: Any) -> Any:
        quiet = settings(
            max_examples=n, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, database=None,
            derandomize="UNKNOT_SCENARIOS" not in os.environ,
        )  # fmt: skip
        drawn = is_hypothesis_test(test)  # one that says itself what it draws
        return quiet(test if drawn else given(st.binary(min_size=90, max_size=180).map(Chances))(test))

    return wrap


def rights(c: Chances) -> tuple[str, ...] | None:
    if c.rarely(12):
        return None
    names = [*PEOPLE, "a", "b", "c", "d", "a#1/t", "[ab]", "late", "late#1"]
    return tuple(sorted(c.some(names[: len(names) if c.rarely(3) else 8], 2)))


def resources(c: Chances) -> list[ev.Resource]:
    """Two to four resources."""
    kinds = [c.pick(KINDS) for _ in range(c.number(2, 4))]
    return [ev.Resource(r=f"{kind}:{n}", type=kind, **traits(c, kind)) for n, kind in enumerate(kinds)]


def traits(c: Chances, kind: str) -> dict[str, Any]:
    if kind == "lock":
        return {"policy": c.pick(_POLICIES), "reentrant": c.rarely(3), "setters": rights(c) if c.rarely(8) else None}
    if kind == "rwlock":
        conflicts = _CUSTOM if c.rarely(4) else None
        return {"policy": c.pick(_POLICIES), "reentrant": c.rarely(4), "conflicts": conflicts}
    if kind in UNITS:
        return {"capacity": c.number(1, 2), "policy": c.pick(_POLICIES[:3])}
    if kind == "mailbox":
        closers = rights(c) if c.rarely(5) else None
        capacity = c.pick([1, 2, 1, None, 0])
        told = {"capacity": capacity, "senders": rights(c), "receivers": rights(c), "closers": closers}
        return {**told, "returners": rights(c)} if c.rarely(5) else told
    if kind in ("event", "condition", "external"):
        return {"setters": rights(c)}
    if kind == "latch":
        return {"count": c.number(0, 2), "setters": rights(c)}
    names = [*PEOPLE, *(("a", "b", "late#1") if c.rarely(3) else ())]
    members = [names.pop(c.number(0, len(names) - 1)) for _ in range(c.number(2, 3))]
    return {"members": tuple(members) if not c.rarely(12) else None}


def modes(kind: ev.Resource) -> tuple[str, ...]:
    if kind.type != "rwlock":
        return ("x",)
    return tuple(_CUSTOM) if kind.conflicts else ("r", "w")


def atom_of(c: Chances, kind: ev.Resource, pid: str) -> ev.Atom:
    """What `pid` may ask of a resource: nobody waits to do what a rights list forbids it."""
    if kind.type in ("lock", "rwlock"):
        return ev.Atom(r=kind.r, mode=c.pick(modes(kind)))
    if kind.type in UNITS:
        return ev.Atom(r=kind.r, units=c.number(1, (kind.capacity or 1) + c.rarely(12)))
    if kind.type == "mailbox":
        allowed = [op for op, names in _sides(kind) if may(pid, names)]
        return ev.Atom(r=kind.r, op=c.pick(allowed)) if allowed else ev.Atom(external="approval")
    if kind.type == "collective":
        return ev.Atom(r=kind.r, seq=c.number(0, 2))
    return ev.Atom(r=kind.r)


def _sides(kind: ev.Resource) -> tuple[tuple[Literal["recv", "send"], tuple[str, ...] | None], ...]:
    return ("recv", kind.receivers), ("recv", kind.receivers), ("send", kind.senders)


def needs(c: Chances, pid: str, kinds: list[ev.Resource], people: list[str]) -> tuple[ev.Clause, ...]:
    """One need mostly, sometimes several or a choice; never one resource twice."""
    chosen = list(kinds)
    while len(chosen) > c.pick([1, 1, 1, 2, 2, 3]):
        chosen.pop(c.number(0, len(chosen) - 1))
    atoms = [atom_of(c, kind, pid) for kind in chosen]
    if c.rarely(3):
        others = [p for p in [*people, "late#1"] if p != pid or c.rarely(8)]
        atoms[-1] = ev.Atom(p=c.pick(others))
    elif c.rarely(16):
        atoms[-1] = ev.Atom(external="approval", closed=c.rarely(2))
    if len(atoms) > 1 and c.rarely(2):
        return (ev.Clause(k=c.number(1, len(atoms)), of=tuple(atoms)),)
    if len(atoms) > 2 and c.rarely(2):
        return (ev.Clause(k=1, of=tuple(atoms[:2])), ev.Clause(k=1, of=tuple(atoms[2:])))
    return tuple(ev.Clause(k=1, of=(atom,)) for atom in atoms)


def grantable(graph: LiveGraph, pid: str, kind: ev.Resource, mode: str) -> bool:
    state = graph.resources[kind.r]
    if kind.type in UNITS:
        return state.held() < (kind.capacity or 0)
    others = {h: modes for h, modes in state.holders.items() if h != pid or not kind.reentrant}
    return not any(state.excludes(mode, held) for modes in others.values() for held in modes)


def possible(c: Chances, graph: LiveGraph, kinds: list[ev.Resource], ticket: int) -> ev.Event | None:
    """One event by one participant that may happen now, None if the choice fits nothing."""
    pid = c.pick([*PEOPLE, *(pid for pid in graph.participants if pid not in PEOPLE and "queue" not in pid)])
    one = graph.participants.get(pid)
    if one is None or one.how is not None:
        return None
    if one.wait is not None:
        return ev.Wake(p=pid, ticket=one.wait.ticket, how="interrupted") if c.rarely(4) else None
    act = c.pick(["wait", "wait", "use", "use", "wait", "wait", "use", "end"])
    if act == "wait":
        deadline = 9.0 if c.rarely(8) else None
        asked = needs(c, pid, kinds, list(PEOPLE))
        return ev.Wait(p=pid, ticket=ticket, needs=asked, deadline=deadline, bypass=not c.rarely(4))
    if act == "end":
        return ev.End(p=pid, how=c.pick(["exit", "crash"])) if c.rarely(2) else None
    return use(c, graph, pid, c.pick(kinds))


def upheaval(c: Chances, graph: LiveGraph) -> ev.Event:
    """Somebody comes or is replaced: threads, drivers, late members, fences."""
    born = [p for p in ("a#1/t", "late#1", "driver/m#1", "a#2", "a#1/queue:g") if p not in graph.participants]
    born = [p for p in born if parse(p).incarnation >= graph.fences.get(parse(p).member, 0)]
    if born and not c.rarely(3):
        return ev.Start(p=c.pick(born))
    return ev.Fence(member=c.pick(["a", "b", "late"]), incarnation=2)


def may(pid: str, names: tuple[str, ...] | None) -> bool:
    return names is None or pid in names or parse(pid).member in names or parse(pid).source in names


def use(c: Chances, graph: LiveGraph, pid: str, kind: ev.Resource) -> ev.Event | None:
    state = graph.resources[kind.r]
    if kind.type in HELD:
        if state.holders.get(pid) and c.rarely(3):
            return ev.Release(p=pid, r=kind.r)
        mode = c.pick(modes(kind))
        return ev.Hold(p=pid, r=kind.r, mode=mode) if grantable(graph, pid, kind, mode) else None
    if kind.type == "mailbox":
        return box(c, graph, pid, kind)
    if kind.type == "collective":
        op = c.pick(["sum", "sum", "sum", "max"])
        seq = state.arrivals.get(pid, -1) + 1
        return ev.Arrive(p=pid, r=kind.r, seq=seq, op=op) if may(pid, kind.members or ()) and seq <= 2 else None
    if not may(pid, kind.setters):
        return None
    if kind.type == "condition":
        return ev.Signal(p=pid, r=kind.r, n=c.pick([1, "all", 2]))
    if kind.type == "latch":
        n = c.pick([1, -1])
        return ev.Add(p=pid, r=kind.r, n=n) if 0 <= state.count + n <= 2 else None
    return ev.Set(p=pid, r=kind.r) if c.rarely(2) else ev.Clear(p=pid, r=kind.r)


def box(c: Chances, graph: LiveGraph, pid: str, kind: ev.Resource) -> ev.Event | None:
    state, what = graph.resources[kind.r], c.pick(["send", "recv", "close"])
    if not may(pid, kind.receivers if what == "recv" else kind.senders):
        return None
    if what == "close":
        return ev.Close(p=pid, r=kind.r) if c.rarely(4) else None
    if what == "send":
        room = 2 if kind.capacity is None else kind.capacity
        return ev.Send(p=pid, r=kind.r) if state.count < room else None
    return ev.Recv(p=pid, r=kind.r) if state.count > 0 else None
