"""Random legal histories: hypothesis strategies that draw events which the present state allows."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from unknot.graph import events as ev
from unknot.graph.live import LiveGraph

SCENARIOS = int(os.environ.get("UNKNOT_SCENARIOS", "250"))
PEOPLE = ("a#1", "b#1", "c#1", "d#1")


def scenarios(n: int = SCENARIOS) -> Any:
    return settings(
        max_examples=n, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, database=None
    )


def rights(draw: Any) -> tuple[str, ...]:
    return tuple(sorted(draw(st.sets(st.sampled_from([*PEOPLE, "a", "b", "c", "d"]), max_size=2))))


_KINDS = ("lock", "lock", "rwlock", "semaphore", "mailbox", "event", "latch", "collective")


def resources(draw: Any) -> list[ev.Resource]:
    """Two to four resources of any of the kinds that the oracle knows."""
    kinds = [draw(st.sampled_from(_KINDS)) for _ in range(draw(st.integers(2, 4)))]
    return [ev.Resource(r=f"{kind}:{n}", type=kind, **traits(draw, kind)) for n, kind in enumerate(kinds)]


def traits(draw: Any, kind: str) -> dict[str, Any]:
    if kind == "lock":
        return {"policy": draw(st.sampled_from(["fifo", "any"])), "reentrant": draw(st.booleans())}
    if kind == "rwlock":
        return {"policy": draw(st.sampled_from(["fifo", "fifo-strict", "any", "writer-pref"]))}
    if kind == "semaphore":
        return {"capacity": draw(st.integers(1, 2)), "policy": draw(st.sampled_from(["fifo", "fifo-strict", "any"]))}
    if kind == "mailbox":
        return {"capacity": draw(st.integers(1, 2)), "senders": rights(draw), "receivers": rights(draw)}
    if kind == "event":
        return {"setters": rights(draw)}
    if kind == "latch":
        return {"count": draw(st.integers(0, 2)), "setters": rights(draw)}
    return {"members": tuple(draw(st.permutations(PEOPLE)))[: draw(st.integers(2, 3))]}


def atom_of(draw: Any, kind: ev.Resource) -> ev.Atom:
    if kind.type == "rwlock":
        return ev.Atom(r=kind.r, mode=draw(st.sampled_from(["r", "w"])))
    if kind.type == "semaphore":
        return ev.Atom(r=kind.r, units=draw(st.integers(1, kind.capacity or 1)))
    if kind.type == "mailbox":
        return ev.Atom(r=kind.r, op=draw(st.sampled_from(["recv", "recv", "send"])))
    if kind.type == "collective":
        return ev.Atom(r=kind.r, seq=draw(st.integers(0, 2)))
    return ev.Atom(r=kind.r)


def needs(draw: Any, pid: str, kinds: list[ev.Resource]) -> tuple[ev.Clause, ...]:
    """One need mostly, sometimes several or a choice; never one resource twice."""
    chosen = list(draw(st.permutations(kinds)))[: draw(st.sampled_from([1, 1, 1, 2, 2, 3]))]
    atoms = [atom_of(draw, kind) for kind in chosen]
    if draw(st.integers(0, 3)) == 0:
        atoms[-1] = ev.Atom(p=draw(st.sampled_from([p for p in PEOPLE if p != pid])))
    if len(atoms) > 1 and draw(st.booleans()):
        return (ev.Clause(k=draw(st.integers(1, len(atoms))), of=tuple(atoms)),)
    return tuple(ev.Clause(k=1, of=(atom,)) for atom in atoms)


def grantable(graph: LiveGraph, pid: str, kind: ev.Resource, mode: str) -> bool:
    state = graph.resources[kind.r]
    if kind.type == "semaphore":
        return state.held() < (kind.capacity or 0)
    others = {h: modes for h, modes in state.holders.items() if h != pid or not kind.reentrant}
    return not any(state.excludes(mode, held) for modes in others.values() for held in modes)


def possible(draw: Any, graph: LiveGraph, kinds: list[ev.Resource], ticket: int) -> ev.Event | None:
    """One event by one participant that may happen now, None if the draw fits nothing."""
    pid = draw(st.sampled_from(PEOPLE))
    one = graph.participants[pid]
    if one.how is not None:
        return None
    if one.wait is not None:
        return ev.Wake(p=pid, ticket=one.wait.ticket, how="interrupted") if draw(st.integers(0, 4)) == 0 else None
    act = draw(st.sampled_from(["use", "use", "use", "wait", "wait", "wait", "wait", "end"]))
    if act == "wait":
        deadline = 9.0 if draw(st.integers(0, 7)) == 0 else None
        return ev.Wait(p=pid, ticket=ticket, needs=needs(draw, pid, kinds), deadline=deadline)
    if act == "end":
        how = draw(st.sampled_from(["exit", "crash"]))
        return ev.End(p=pid, how=how) if draw(st.integers(0, 3)) == 0 else None
    return use(draw, graph, pid, draw(st.sampled_from(kinds)))


def may(pid: str, names: tuple[str, ...] | None) -> bool:
    return names is None or pid in names or pid.partition("#")[0] in names


def use(draw: Any, graph: LiveGraph, pid: str, kind: ev.Resource) -> ev.Event | None:
    state = graph.resources[kind.r]
    if kind.type in ("lock", "rwlock", "semaphore"):
        if state.holders.get(pid) and draw(st.integers(0, 2)) == 0:
            return ev.Release(p=pid, r=kind.r)
        mode = draw(st.sampled_from(["r", "w"])) if kind.type == "rwlock" else "x"
        return ev.Hold(p=pid, r=kind.r, mode=mode) if grantable(graph, pid, kind, mode) else None
    if kind.type == "mailbox":
        what = draw(st.sampled_from(["send", "recv", "close"]))
        if not may(pid, kind.receivers if what == "recv" else kind.senders):
            return None
        if what == "close":
            return ev.Close(p=pid, r=kind.r) if draw(st.integers(0, 3)) == 0 else None
        if what == "send":
            return ev.Send(p=pid, r=kind.r) if state.count < (kind.capacity or 0) else None
        return ev.Recv(p=pid, r=kind.r) if state.count > 0 else None
    if kind.type in ("event", "latch") and not may(pid, kind.setters):
        return None
    if kind.type == "event":
        return ev.Set(p=pid, r=kind.r) if draw(st.booleans()) else ev.Clear(p=pid, r=kind.r)
    if kind.type == "latch":
        n = draw(st.sampled_from([1, -1]))
        return ev.Add(p=pid, r=kind.r, n=n) if 0 <= state.count + n <= 2 else None
    op = draw(st.sampled_from(["sum", "sum", "sum", "max"]))
    seq = state.arrivals.get(pid, -1) + 1
    return ev.Arrive(p=pid, r=kind.r, seq=seq, op=op) if pid in (kind.members or ()) and seq <= 2 else None
