"""Builders of scenes: short words for events, a graph that validates itself after every event."""

from __future__ import annotations

from typing import Any

from unknot.graph import events as ev
from unknot.graph.live import LiveGraph


def atom(what: str, **more: Any) -> ev.Atom:
    """`lock:a`, `mbox:q` with op, `coll:g` with seq; `p=NAME` and `ext=LABEL` for the rest."""
    kind, _, name = what.partition("=")
    if kind == "p":
        return ev.Atom(p=name, **more)
    if kind == "ext":
        return ev.Atom(external=name, **more)
    return ev.Atom(r=what, **more)


def all_of(*atoms: ev.Atom) -> tuple[ev.Clause, ...]:
    return tuple(ev.Clause(k=1, of=(one,)) for one in atoms)


def any_of(*atoms: ev.Atom, k: int = 1) -> tuple[ev.Clause, ...]:
    return (ev.Clause(k=k, of=atoms),)


class Scene:
    """A graph fed in true order, with a ticket counter."""

    def __init__(self) -> None:
        self.graph = LiveGraph()
        self.tickets = 0
        self.t = 0.0

    def put(self, *events: ev.Event) -> Scene:
        for event in events:
            self.graph.apply(event)
            self.graph.validate()
        return self

    def resource(self, r: str, kind: Any, **more: Any) -> Scene:
        return self.put(ev.Resource(r=r, type=kind, **more))

    def start(self, *pids: str) -> Scene:
        return self.put(*(ev.Start(p=pid) for pid in pids))

    def hold(self, p: str, r: str, **more: Any) -> Scene:
        return self.put(ev.Hold(p=p, r=r, **more))

    def wait(self, p: str, *needs: ev.Clause | ev.Atom, **more: Any) -> Scene:
        self.tickets += 1
        self.t += 1
        clauses = tuple(one if isinstance(one, ev.Clause) else ev.Clause(k=1, of=(one,)) for one in needs)
        more = {"t": self.t, "ticket": self.tickets, **more}
        return self.put(ev.Wait(p=p, needs=clauses, **more))

    def end(self, p: str, how: Any = "exit") -> Scene:
        return self.put(ev.End(p=p, how=how))


DEMO_CORE = ("agent/b#1", "trainer/0#1", "trainer/0#1/queue:policy", "trainer/1#1")


def demo() -> Scene:
    """A trainer holds a lock in a collective; the other needs a sample of an agent that needs the lock."""
    scene = Scene()
    scene.resource("coll:policy@g1", "collective", members=("trainer/0#1", "trainer/1#1"))
    scene.resource("mbox:raw", "mailbox", capacity=8, senders=("agent/b",))
    scene.resource("lock:weights", "lock")
    scene.start("driver/main#1", "trainer/0#1", "trainer/1#1", "agent/b#1")
    scene.hold("trainer/0#1", "lock:weights")
    scene.put(ev.Arrive(p="trainer/0#1", r="coll:policy@g1", seq=41, op="all_reduce"))
    scene.wait("driver/main#1", *all_of(atom("p=trainer/0#1"), atom("p=trainer/1#1")))
    scene.wait("trainer/0#1/queue:policy", atom("coll:policy@g1", seq=41))
    scene.wait("trainer/0#1", atom("p=trainer/0#1/queue:policy"), site="train.py:88")
    scene.wait("trainer/1#1", atom("mbox:raw", op="recv"), site="main.py:30")
    return scene.wait("agent/b#1", atom("lock:weights"), site="agents.py:31", interruptible=True)
