"""Writes a run into Redis as its processes and its monitor would, for the command to read."""

from __future__ import annotations

import msgspec

from unknot.graph.events import Arrive, Atom, Clause, Hold, Record, Resource, Wait
from unknot.supervisor.incidents import Action, Incident, Line
from unknot.supervisor.store.redis_store import RedisStore


class Scene:
    """One run. Every method writes at once."""

    def __init__(self, store: RedisStore, *, state: str = "live") -> None:
        self.store = store
        self.now = store.time()
        self.run_state(state)

    def run_state(self, state: str) -> None:
        key = self.store.key("run")
        self.store.command("HSET", key, "state", state, "driver_name", "42@here", "started_at", self.now - 60)

    def member(
        self, name: str, *, state: str = "alive", incarnation: int = 1, beat_ago_s: float = 0.2, **more: str
    ) -> None:
        self.store.command("SADD", self.store.key("members"), name)
        fields: dict[str, str | float] = {
            "incarnation": incarnation,
            "role": name.partition("/")[0],
            "state": state,
            "pid": "4711",
            "host": "node-a",
            "beat_at": self.now - beat_ago_s,
            "lease_s": 60.0,
            **more,
        }
        flat = [part for pair in fields.items() for part in pair]
        self.store.command("HSET", self.store.key("member", name), *flat)

    def record(self, source: str, *events: Wait | Hold | Resource | Arrive) -> None:
        record = Record(src=source, n=1, t=self.now, full=True, events=events)
        full = msgspec.msgpack.encode(record)
        self.store.command("HSET", self.store.key("proc", source), "n", 1, "full", full, "at", self.now)

    def incident(self, incident: Incident) -> None:
        self.store.command("SET", self.store.key("incident", incident.id), msgspec.json.encode(incident))
        self.store.command("ZADD", self.store.key("incidents"), incident.opened_at, incident.id)

    def knot(self) -> Incident:
        """Two agents that hold one lock each and want the other's, found by the monitor."""
        for one, (mine, other) in {"agent/a": ("lock:x", "lock:y"), "agent/b": ("lock:y", "lock:x")}.items():
            self.member(one)
            self.record(f"{one}#1", *lock_wait(f"{one}#1", mine=mine, other=other, at=self.now - 42))
        found = deadlock(self.store.run, at=self.now)
        self.incident(found)
        return found


def lock_wait(who: str, *, mine: str, other: str, at: float) -> tuple[Resource | Hold | Wait, ...]:
    needs = (Clause(k=1, of=(Atom(r=other),)),)
    return (
        Resource(r=mine, type="lock"),
        Resource(r=other, type="lock"),
        Hold(p=who, r=mine),
        Wait(p=who, t=at, ticket=7, needs=needs, site="agents.py:31"),
    )


def deadlock(
    run: str, *, at: float, name: str = "inc_a1", cause: str = "deadlock", state: str = "confirmed"
) -> Incident:
    """An incident of a ring of two. `at`: now, in seconds since the epoch."""
    ring = (("agent/a#1", "lock:y", "agent/b#1"), ("agent/b#1", "lock:x", "agent/a#1"))
    lines = tuple(
        Line(
            participant=who,
            resource=what,
            text=f"{who} waits for {what}, held by {holder}",
            site="agents.py:31",
            since=at - 42,
            helpers=(holder,),
            culprit=who == "agent/b#1",
        )
        for who, what, holder in ring
    )
    return msgspec.convert(
        {
            "id": name,
            "run": run,
            "cause": cause,
            "kind": "cycle",
            "state": state,
            "headline": f"DEADLOCK in run {run}: agent/a → lock:y → agent/b → lock:x → agent/a (standing for 42 s)",
            "lines": lines,
            "culprits": ("agent/b#1",),
            "victims": ("agent/a#1",),
            "core": ("agent/a#1", "agent/b#1"),
            "stuck": ("agent/a#1", "agent/b#1"),
            "tickets": {"agent/a#1": 7, "agent/b#1": 7},
            "opened_at": at - 41,
            "closing_wait_at": at - 42,
            "confirmed_at": at - 41,
            "actions": (Action(remedy="interrupt", target="agent/b#1", at=at - 40, outcome="pending"),),
            "stacks": {"agent/a#1": ("agents.py:31 in act", "agents.py:9 in run")},
        },
        Incident,
        from_attributes=True,
    )
