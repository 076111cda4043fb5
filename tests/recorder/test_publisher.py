"""When the publisher writes, what it does when it cannot, and that nobody waits for it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest

from tests.recorder.members import Member
from tests.recorder.puppets import Clock, Puppet, lock, make_table, stand, waits
from unknot.graph import events as ev
from unknot.graph.hazards import Order
from unknot.integrations.threads import TracedLock
from unknot.recovery.errors import FencedError
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.process import RedisOutlet
from unknot.supervisor.recorder.publisher import Publisher
from unknot.supervisor.recorder.table import Snapshot
from unknot.supervisor.store.embedded import EmbeddedRedis, start_redis
from unknot.supervisor.store.redis_store import RedisStore


class Outlet:
    """Keeps what it is given; fails while `broken`."""

    def __init__(self) -> None:
        self.records: list[ev.Record] = []
        self.beats: list[str | None] = []
        self.numbers: list[int] = []
        self.orders: list[Order] = []
        self.broken = False
        self.current: int | None = None

    def publish(self, record: ev.Record, encoded: bytes) -> int | None:
        self._check()
        self.records.append(record)
        return self.current

    def heartbeat(self, n: int, progress: str | None) -> int | None:
        self._check()
        self.numbers.append(n)
        self.beats.append(progress)
        return self.current

    def lock_orders(self, orders: Sequence[Order]) -> int | None:
        self._check()
        self.orders += orders
        return self.current

    def _check(self) -> None:
        if self.broken:
            raise ConnectionError("Redis is gone")


class Scene:
    """A publisher that looks when it is told, on a clock of the test."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.table = make_table(self.clock)
        self.outlet = Outlet()
        self.marks: dict[str, int] = {}
        self.fenced: list[int] = []
        self.publisher = Publisher(
            self.table, self.outlet, clock=self.clock, publish_every_s=0.05, publish_after_s=0.0, heartbeat_s=1.0,
            on_fenced=self.fenced.append, progress=self._marks,
        )  # fmt: skip
        self.table.slot()

    def _marks(self) -> Mapping[str, int]:
        return self.marks

    def look(self, later_s: float = 0.05) -> list[ev.Record]:
        """Look `later_s` seconds later; the records that this published."""
        before = len(self.outlet.records)
        self.clock.now += later_s
        self.publisher.look(self.clock.now)
        return self.outlet.records[before:]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def puppet() -> Iterator[Puppet]:
    one = Puppet()
    yield one
    one.end()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with start_redis(tmp_path / "redis") as server:
        yield server


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process stands still meanwhile; returns once it does."""
    os.kill(pid, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 10
        while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# --- news ---


def test_the_first_look_is_told_and_then_only_what_changes_while_somebody_waits(scene: Scene, puppet: Puppet) -> None:
    assert [r.n for r in scene.look()] == [1]
    assert scene.look() == []
    handle = puppet.do(lambda: stand(scene.table, "a"))
    (record,) = scene.look()
    assert (record.n, record.full) == (2, True)
    assert scene.look() == [], "the same picture is not told twice"
    puppet.do(lambda: handle.__exit__())
    (record,) = scene.look()
    assert record.n == 3
    assert scene.look() == []


def test_what_changes_while_nobody_waits_is_not_told(scene: Scene) -> None:
    scene.look()
    scene.table.hold(lock("a"))
    assert scene.look() == []
    scene.table.release("lock:a")
    assert scene.look() == []


def test_a_thread_that_ended_with_a_lock_is_news_though_nobody_here_waits(scene: Scene) -> None:
    scene.look()
    loader = Puppet("loader")
    loader.do(lambda: scene.table.hold(lock("a")))
    scene.look()
    loader.end()
    (record,) = scene.look()
    assert any(isinstance(event, ev.End) for event in record.events)
    assert scene.look() == []


def test_a_round_is_answered_by_a_look_that_began_after_it_asked(scene: Scene, puppet: Puppet) -> None:
    scene.look()
    handle = puppet.do(lambda: stand(scene.table, "a"))
    scene.look()
    scene.publisher.answer(7)
    scene.publisher.answer(8)
    scene.publisher.answer(7)
    (record,) = scene.look()
    beats = [event for event in record.events if isinstance(event, ev.Beat)]
    assert [beat.round for beat in beats] == [7, 8]
    assert beats[0].tickets == {"agent/b#1": None, "agent/b#1/puppet": handle.number}
    assert (beats[0].src, beats[0].n) == ("agent/b#1", record.n)
    assert scene.look() == []


# --- losses and silences ---


def test_a_record_that_cannot_be_written_is_counted_and_the_next_one_carries_everything(
    scene: Scene, puppet: Puppet
) -> None:
    scene.look()
    scene.outlet.broken = True
    handle = puppet.do(lambda: stand(scene.table, "a"))
    for _ in range(3):
        assert scene.look() == []
    assert scene.publisher.counters.dropped == 3
    scene.outlet.broken = False
    (record,) = scene.look()
    assert (record.n, record.full) == (5, True), "numbers of lost records are not used again"
    assert waits(Snapshot(record.events, {})) == {"agent/b#1/puppet": handle.number}
    assert scene.look() == []


def test_after_a_lost_heartbeat_a_full_record_is_published_though_nothing_has_changed(scene: Scene) -> None:
    scene.look()
    scene.outlet.broken = True
    assert scene.look(later_s=1.0) == []
    assert scene.publisher.counters.dropped == 1
    scene.outlet.broken = False
    assert [r.full for r in scene.look()] == [True]
    assert scene.look() == []


def test_a_process_that_was_stopped_publishes_anew_when_it_goes_on(scene: Scene) -> None:
    scene.look()
    assert scene.look(later_s=1.0) == []
    scene.look(later_s=10.0)
    assert [r.full for r in scene.look()] == [True]
    assert scene.look() == []


def test_a_source_of_events_that_fails_costs_a_look_and_not_the_thread(scene: Scene, eventually: Callable[..., None]) -> None:
    class Failing:
        def collect(self, standing: dict[str, Any]) -> tuple[ev.Event, ...]:
            raise ValueError("torch is shutting down")

    scene.table.add_source(Failing())
    scene.publisher.start()
    eventually(lambda: scene.publisher.counters.failed >= 3)
    scene.publisher.stop()


def test_a_publisher_that_was_replaced_says_so_once_and_writes_nothing_more(scene: Scene, puppet: Puppet) -> None:
    scene.look()
    scene.outlet.current = 4
    scene.look(later_s=1.0)
    assert scene.fenced == [4]
    written = len(scene.outlet.records), len(scene.outlet.beats)
    puppet.do(lambda: stand(scene.table, "a"))
    scene.publisher.answer(1)
    scene.look(later_s=5.0)
    assert (len(scene.outlet.records), len(scene.outlet.beats)) == written


def test_a_heartbeat_says_which_record_was_the_last_to_be_written(scene: Scene, puppet: Puppet) -> None:
    scene.look(later_s=1.0)
    scene.outlet.broken = True
    puppet.do(lambda: stand(scene.table, "a"))
    scene.look()
    scene.outlet.broken = False
    scene.look(later_s=1.0)
    assert scene.outlet.numbers == [1, 3], "the second was not written"


# --- progress ---


def test_progress_is_carried_by_every_record_and_is_no_news_itself(scene: Scene, puppet: Puppet) -> None:
    scene.look()
    scene.marks["step"] = 2
    assert scene.look() == []
    scene.marks["step"] = 3
    assert scene.look() == []
    marked_at = scene.clock.now
    puppet.do(lambda: stand(scene.table, "a"))
    scene.look(later_s=0.5)
    scene.publisher.answer(1)
    scene.look(later_s=0.5)
    for record in scene.outlet.records[-2:]:
        (mark,) = (event for event in record.events if isinstance(event, ev.Progress))
        assert (mark.p, mark.what, mark.n, mark.t) == ("agent/b#1", "step", 3, marked_at)


def test_progress_goes_with_a_heartbeat_only_when_it_has_changed(scene: Scene) -> None:
    scene.look(later_s=1.0)
    scene.marks["step"] = 1
    scene.look(later_s=1.0)
    scene.look(later_s=1.0)
    assert scene.outlet.beats == ["{}", '{"step":{"n":1,"at":1002.0}}', None]
    scene.outlet.broken = True
    scene.marks["step"] = 2
    scene.look(later_s=1.0)
    scene.outlet.broken = False
    scene.look(later_s=1.0)
    assert scene.outlet.beats[-1] == '{"step":{"n":2,"at":1004.0}}', "what was not written is written next time"


# --- with a real Redis ---


def test_progress_stands_in_the_members_hash_and_begins_anew_with_an_incarnation(
    member: Callable[..., Member], eventually: Callable[..., None]
) -> None:
    first = member("agent/a")
    first.process.progress["episode"] = 5
    eventually(lambda: '"episode":{"n":5,' in first.field("progress"))
    second = member("agent/a")
    eventually(lambda: second.field("progress") == "{}")


def test_an_old_record_that_arrives_late_does_not_replace_a_newer_one(member: Callable[..., Member]) -> None:
    one = member("agent/a", publish_every_s=30.0)
    outlet = RedisOutlet(one.store, one.process.registration)
    for n in (5, 4, 5):
        record = ev.Record(src=one.process.source, n=n, t=float(n), full=True)
        assert outlet.publish(record, msgspec.msgpack.encode(record)) is None
    assert [record.n for record in one.records()] == [5]
    full = one.full()
    assert full is not None
    assert full.n == 5


def test_a_quiet_process_costs_redis_nothing_but_its_heartbeats(
    own_redis: EmbeddedRedis, eventually: Callable[..., None]
) -> None:
    one = Member(own_redis.url, "quiet", "agent/a", heartbeat_s=0.25)
    locks = [TracedLock(one.table) for _ in range(3)]
    eventually(lambda: one.publisher.counters.published == 1 and one.publisher.counters.heartbeats >= 1)
    beats, looks = one.publisher.counters.heartbeats, one.publisher.counters.looks
    one.store.command("CONFIG", "RESETSTAT")
    deadline = time.monotonic() + 10
    while one.publisher.counters.heartbeats < beats + 4 or one.publisher.counters.looks < looks + 20:
        for each in locks:
            with each:
                pass
        assert time.monotonic() < deadline
    stats = one.store.command("INFO", "commandstats")
    beats_now = one.publisher.counters.heartbeats
    calls = {name.removeprefix("cmdstat_"): int(each["calls"]) for name, each in stats.items()}
    evals = calls.pop("evalsha", 0) + calls.pop("eval", 0)
    assert 4 <= evals <= beats_now - beats + 1
    # What is left is what the heartbeat's script itself calls, and the two questions of this test.
    assert set(calls) <= {"type", "hget", "hset", "time", "config|resetstat", "config", "info"}
    assert one.publisher.counters.published == 1
    one.close()


def test_a_redis_that_stands_still_costs_records_and_never_the_users_time(
    own_redis: EmbeddedRedis, eventually: Callable[..., None]
) -> None:
    one = Member(own_redis.url, "stopped", "agent/a", publish_after_s=0.0)
    contended, free = TracedLock(one.table), TracedLock(one.table)
    eventually(lambda: one.publisher.counters.heartbeats >= 1)
    contended.acquire()
    waiter = threading.Thread(target=contended.acquire, name="waiter")
    dropped = one.publisher.counters.dropped
    with stopped(own_redis.pid):
        waiter.start()
        eventually(lambda: one.table.waits())
        done = 0
        while one.publisher.counters.dropped < dropped + 2:
            begun = time.monotonic()
            with free, one.table.wait(one.table.next_ticket(), []):
                pass
            done += 1
            assert time.monotonic() - begun < 2.0
        assert done > 100
    eventually(lambda: "agent/a#1/waiter" in _told_waits(one))
    full = one.full()
    assert full is not None
    assert full.full
    assert _told_waits(one)["agent/a#1/waiter"] == one.table.waits()["agent/a#1/waiter"].ticket
    contended.release()
    waiter.join()
    one.close()


def _told_waits(one: Member) -> dict[str, int]:
    full = one.full()
    return waits(Snapshot(full.events, {})) if full is not None else {}


def test_a_fenced_process_raises_in_its_waits_and_publishes_nothing_more(
    member: Callable[..., Member], store: RedisStore, eventually: Callable[..., None]
) -> None:
    one = member("agent/a")
    held = TracedLock(one.table)
    held.acquire()
    raised: list[Exception] = []

    def wait() -> None:
        try:
            held.acquire()
        except FencedError as error:
            raised.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    eventually(lambda: one.table.waits())
    register(store, "agent/a", role="agent", pid=1, host="there", boot=new_boot())
    waiter.join(10)
    assert [(e.member, e.incarnation, e.current) for e in raised if isinstance(e, FencedError)] == [("agent/a", 1, 2)]
    looks, written = one.publisher.counters.looks, len(one.records())
    eventually(lambda: one.publisher.counters.looks > looks + 20)
    assert len(one.records()) == written
    held.release()


def test_the_last_look_is_told_when_the_process_leaves(member: Callable[..., Member], eventually: Callable[..., None]) -> None:
    one = member("agent/a")
    held = TracedLock(one.table)
    held.acquire()
    waiter = threading.Thread(target=held.acquire)
    waiter.start()
    eventually(lambda: _told_waits(one))
    held.release()
    waiter.join()
    one.publisher.stop()
    assert _told_waits(one) == {}
