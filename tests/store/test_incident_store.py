from __future__ import annotations

import msgspec
import pytest

from unknot.recovery.errors import ConfigError, LeaseLost
from unknot.supervisor.incidents import Action, Incident, Line
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.leader import Lease
from unknot.supervisor.store.redis_store import RedisStore


def incident(name: str, opened_at: float = 1000.5) -> Incident:
    return Incident(
        id=name,
        run="r",
        cause="deadlock",
        kind="cycle",
        state="open",
        headline="two wait for each other",
        lines=(Line(participant="agent/a#1", resource="lock:x", text="waits", culprit=True),),
        culprits=("agent/a#1",),
        victims=(),
        core=("agent/a#1", "agent/b#1"),
        stuck=("agent/a#1", "agent/b#1"),
        tickets={"agent/a#1": 3, "agent/b#1": 4},
        opened_at=opened_at,
        actions=(Action(remedy="interrupt", target="agent/a#1", at=1001.0),),
        stacks={"agent/a#1": ("train.py:3",)},
    )


@pytest.fixture
def token(store: RedisStore) -> int:
    return Lease(store).acquire() or 0


def test_an_incident_comes_back_as_it_was_put(store: RedisStore, token: int) -> None:
    incidents = IncidentStore(store)
    assert incidents.get("7f3a") is None
    incidents.put(incident("7f3a"), token)
    assert incidents.get("7f3a") == incident("7f3a")


def test_incidents_are_listed_in_the_order_of_opening_and_open_ones_alone_if_asked(
    store: RedisStore, token: int
) -> None:
    incidents = IncidentStore(store)
    for name, at in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        incidents.put(incident(name, at), token)
    incidents.put(msgspec.structs.replace(incident("b", 2.0), state="resolved", resolution="gone"), token)
    assert [found.id for found in incidents.list()] == ["a", "b", "c"]
    assert [found.id for found in incidents.list(open_only=True)] == ["a", "c"]
    assert [found.id for found in incidents.list(newest=2)] == ["b", "c"]


def test_only_the_present_leader_writes(store: RedisStore) -> None:
    incidents = IncidentStore(store)
    old, new = Lease(store), Lease(store, holder="the new one")
    before = old.acquire() or 0
    incidents.put(incident("7f3a"), before)
    old.release()
    assert new.acquire() == before + 1
    changed = msgspec.structs.replace(incident("7f3a"), state="confirmed")
    with pytest.raises(LeaseLost, match="the lead is now with the new one; stop acting for it"):
        incidents.put(changed, before)
    assert incidents.get("7f3a") == incident("7f3a")


def test_an_incident_is_found_by_the_beginning_of_its_id(store: RedisStore, token: int) -> None:
    incidents = IncidentStore(store)
    with pytest.raises(ConfigError, match="this run has none"):
        incidents.find("7")
    for name in ("7f3a", "7f40", "9b", "9b2c"):
        incidents.put(incident(name), token)
    assert incidents.find("7f3").id == "7f3a"
    assert incidents.find("9b").id == "9b", "a whole id is meant, also when it begins another"
    with pytest.raises(ConfigError, match=r"2 incidents begin with '7f'; give more of the id: 7f3a, 7f40"):
        incidents.find("7f")
    with pytest.raises(ConfigError, match="no incident begins with 'x'; known are 7f3a"):
        incidents.find("x")
