from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from unknot.graph.events import Fence, Record, Start
from unknot.graph.live import LiveGraph
from unknot.recovery.errors import ConfigError, FencedError, LeaseLost, StoreCorrupt
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import crashed, end, end_other, expect, fence, heartbeat, members, new_boot, register
from unknot.recovery.run import RunClaim
from unknot.supervisor.store.leader import Lease
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]


def records(store: RedisStore) -> list[Record]:
    entries = store.command("XRANGE", store.key("events"), "-", "+")
    return [msgspec.msgpack.decode(fields[b"r"], type=Record) for _, fields in entries]


def test_each_registration_is_the_next_incarnation_and_the_same_boot_is_the_same(store: RedisStore) -> None:
    boot = new_boot()
    first = register(store, "agent/a", role="agent", pid=11, host="node-1", boot=boot, lease_s=2.5, actor_id="ab12")
    again = register(store, "agent/a", role="agent", pid=11, host="node-1", boot=boot, lease_s=2.5)
    second = register(store, "agent/a", role="agent", pid=12, host="node-2", boot=new_boot())
    assert [first.incarnation, again.incarnation, second.incarnation] == [1, 1, 2]
    assert second.source == "agent/a#2"


def test_every_registration_is_announced_as_a_fence_and_a_start_in_numbered_records(store: RedisStore, join: Join) -> None:
    for member in ("agent/a", "agent/b", "agent/a"):
        join(member)
    seen = records(store)
    assert [(record.src, record.n) for record in seen] == [("store", 1), ("store", 2), ("store", 3)]
    told = [(f.member, f.incarnation, s.p) for f, s in (r.events for r in seen) if isinstance(f, Fence) and isinstance(s, Start)]
    assert told == [("agent/a", 1, "agent/a#1"), ("agent/b", 1, "agent/b#1"), ("agent/a", 2, "agent/a#2")]
    assert all(record.t == event.t > 1e9 for record in seen for event in record.events)


def test_a_member_that_is_expected_counts_as_running_until_it_registers_or_is_said_to_have_ended(
    store: RedisStore, join: Join
) -> None:
    graph = LiveGraph()
    expect(store, "agent/a", role="agent")
    expect(store, "agent/a", role="agent")
    for record in records(store):
        graph.absorb(record)
    assert list(graph.participants) == ["agent/a#0"]
    join("agent/a")
    expect(store, "agent/a", role="agent")
    for record in records(store):
        graph.absorb(record)
    assert [pid for pid, one in graph.participants.items() if one.how is None] == ["agent/a#1"]
    assert [m.state for m in members(store)] == ["alive"]
    expect(store, "agent/b", role="agent")
    end_other(store, "agent/b", state="dead", error="no room")
    assert {m.member: (m.state, m.error) for m in members(store)}["agent/b"] == ("dead", "no room")


def test_a_member_that_ended_and_is_expected_again_gets_a_new_incarnation(store: RedisStore, join: Join) -> None:
    join("agent/a")
    end_other(store, "agent/a", state="done")
    expect(store, "agent/a", role="agent")
    assert [(m.state, m.incarnation) for m in members(store)] == [("starting", 2)]
    assert join("agent/a").incarnation == 2, "the process that was expected takes the incarnation that it was expected as"
    assert join("agent/a").incarnation == 3


def test_a_crash_voids_everything_of_the_process_at_once_and_expects_its_successor(store: RedisStore, join: Join) -> None:
    recorder, other = join("agent/a"), join("agent/b")
    mailbox = Mailbox("raw", store, recorder).declare()
    lock = DistributedLock("x", store, recorder)
    lock.acquire()
    mailbox.send(1)
    mailbox.receive()
    told = crashed(store, "agent/a", 1, how="SIGKILL")
    assert (told.done, told.incarnation, told.locks_freed, told.items_put_back) == (True, 2, 1, 1)
    assert DistributedLock("x", store, other).acquire(timeout_s=0.0) == 2
    with pytest.raises(FencedError):
        lock.release()
    info = members(store)[0]
    assert info.crash is not None
    assert (info.state, info.source, info.crash.incarnation, info.crash.how) == ("starting", "agent/a#2", 1, "SIGKILL")
    assert join("agent/a").incarnation == 2


def test_a_crash_that_is_told_late_or_twice_hurts_no_successor(store: RedisStore, join: Join) -> None:
    join("agent/a")
    assert crashed(store, "agent/a", 1, how="SIGKILL").done
    assert not crashed(store, "agent/a", 1, how="SIGKILL").done
    assert not crashed(store, "agent/a", 2, how="not alive yet").done
    join("agent/a")
    assert not crashed(store, "agent/a", 1, how="SIGKILL").done
    assert [(m.state, m.incarnation) for m in members(store)] == [("alive", 2)]


def test_a_registration_says_what_the_old_incarnation_had_to_give_up(store: RedisStore, join: Join) -> None:
    recorder = join("agent/a")
    mailbox = Mailbox("raw", store, recorder).declare()
    for name in ("x", "y"):
        DistributedLock(name, store, recorder).acquire()
    mailbox.send(1)
    mailbox.receive()
    again = register(store, "agent/a", role="agent", pid=1, host="here", boot=new_boot())
    assert (again.locks_freed, again.items_put_back) == (2, 1)


def test_a_heartbeat_tells_the_state_of_the_run_and_refuses_the_replaced(store: RedisStore) -> None:
    claim = RunClaim.take(store)
    first = register(store, "agent/a", role="agent", pid=1, host="here", boot=new_boot())
    before = members(store)[0].beat_at
    assert heartbeat(store, first) == "live"
    assert members(store)[0].beat_at > before
    claim.closing()
    assert heartbeat(store, first) == "closing"
    register(store, "agent/a", role="agent", pid=1, host="here", boot=new_boot())
    with pytest.raises(FencedError, match="let this process end") as caught:
        heartbeat(store, first)
    assert (caught.value.incarnation, caught.value.current) == (1, 2)


def test_members_are_listed_with_their_facts(store: RedisStore) -> None:
    register(store, "judge/j", role="judge", pid=5, host="node-1", boot=new_boot(), lease_s=2.0, actor_id="ab12")
    register(store, "agent/a", role="agent", pid=6, host="node-2", boot=new_boot())
    first, second = members(store)
    assert (first.member, second.member) == ("agent/a", "judge/j")
    assert (second.role, second.pid, second.host, second.lease_s, second.actor_id) == (
        "judge",
        5,
        "node-1",
        2.0,
        "ab12",
    )
    assert (second.state, second.source, second.ended_at) == ("alive", "judge/j#1", 0.0)
    assert 0 <= second.silent_s < 2
    assert not second.lease_passed
    assert msgspec.structs.replace(second, silent_s=2.1).lease_passed


def test_a_dead_member_keeps_its_locks_visibly_until_it_is_fenced(store: RedisStore, join: Join) -> None:
    recorder = join("agent/a")
    lock = DistributedLock("x", store, recorder)
    lock.acquire()
    end(store, "agent/a", 1, state="dead", error="ValueError: no")
    end(store, "agent/a", 1, state="done")
    info = members(store)[0]
    assert (info.state, info.error) == ("dead", "ValueError: no")
    assert info.ended_at is not None
    assert lock.statistics().holder == "agent/a#1"
    fenced = fence(store, "agent/a", 1, why="not restarted")
    assert (fenced.done, fenced.incarnation, fenced.locks_freed) == (True, 2, 1)
    assert not fence(store, "agent/a", 1, why="again").done
    assert lock.statistics().holder is None
    with pytest.raises(FencedError):
        lock.release()


def test_the_end_of_a_replaced_incarnation_is_refused(store: RedisStore, join: Join) -> None:
    join("agent/a")
    join("agent/a")
    with pytest.raises(FencedError):
        end(store, "agent/a", 1)
    assert members(store)[0].state == "alive"


def test_a_driver_can_end_a_member_for_it(store: RedisStore, join: Join) -> None:
    join("agent/a")
    before = end_other(store, "agent/a", state="dead", error="killed by signal 9")
    assert before is not None
    assert before.state == "alive"
    assert members(store)[0].state == "dead"
    assert end_other(store, "agent/unknown", state="dead").state == "unknown"


def test_a_member_that_registers_after_its_end_is_alive_without_the_old_error(store: RedisStore, join: Join) -> None:
    join("agent/a")
    end(store, "agent/a", 1, state="dead", error="boom")
    join("agent/a")
    info = members(store)[0]
    assert (info.state, info.incarnation, info.error, info.ended_at) == ("alive", 2, "", 0.0)


def test_a_fence_with_the_token_of_an_old_leader_is_refused(store: RedisStore, join: Join) -> None:
    join("agent/a")
    old, new = Lease(store), Lease(store)
    token = old.acquire()
    old.release()
    new.acquire()
    with pytest.raises(LeaseLost, match="the lead is now with token 2"):
        fence(store, "agent/a", 1, why="late", leader_token=token)
    assert fence(store, "agent/a", 1, why="now", leader_token=new.token).done


@pytest.mark.parametrize("member", ["a", "/a", "agent/", "agent/a#1", "agent/a|b", "agent/a b", "agent/a/b"])
def test_a_member_that_is_not_role_and_name_is_refused(store: RedisStore, member: str) -> None:
    with pytest.raises(ConfigError, match="name it role/name"):
        register(store, member, role="agent", pid=1, host="here", boot=new_boot())


@pytest.mark.parametrize("broken", ["unacked", "waits", "held", "sent", "asked"])
def test_a_registration_over_a_broken_key_changes_nothing(store: RedisStore, join: Join, broken: str) -> None:
    recorder = join("agent/a")
    DistributedLock("x", store, recorder).acquire()
    store.command("DEL", store.key(broken, "agent/a"))
    store.command("SET", store.key(broken, "agent/a"), "text")
    with pytest.raises(StoreCorrupt):
        register(store, "agent/a", role="agent", pid=1, host="here", boot=new_boot())
    assert members(store)[0].incarnation == 1
    assert DistributedLock("x", store, recorder).statistics().holder == "agent/a#1"
