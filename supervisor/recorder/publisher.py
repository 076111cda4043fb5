"""The publisher thread: tells the run what stands in this process, and never gets in its way.

Every `publish_every_s` it looks at the wait table (memory only). It writes to Redis when somebody waits and the picture
has changed, when a collection round asks, and once a second as a heartbeat. Every record is a full one: it rebuilds all
that is known of the process, so a reader that missed one is whole again with the next. That costs bytes, not round trips:
only waits older than `publish_after_s` and what bears on them are in it. (Records of changes alone were rejected for now:
each loss would need a repair protocol, and the picture of one process is small.)

If Redis is slow or gone the record is dropped and counted; the next one that gets through carries everything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from unknot.graph.events import Beat, Event, Record
from unknot.supervisor.recorder.table import Snapshot, WaitTable

_ENCODER = msgspec.msgpack.Encoder()


class Outlet(Protocol):
    """Where records go. Every call may raise; the publisher counts and goes on."""

    def publish(self, record: Record, encoded: bytes) -> None:
        """Append the record to the stream and keep it as the process' last."""

    def heartbeat(self) -> int | None:
        """Say that the process lives; the current incarnation if this one was replaced, else None."""


class PublisherCounters(msgspec.Struct):
    """What the publisher did and failed to do."""

    published: int = 0
    heartbeats: int = 0
    dropped: int = 0
    looks: int = 0


class Publisher:
    """Owns the numbering of a process' records. `start` runs it on a thread of its own."""

    def __init__(
        self,
        table: WaitTable,
        outlet: Outlet,
        *,
        clock: Callable[[], float],
        publish_every_s: float,
        publish_after_s: float,
        heartbeat_s: float,
        on_fenced: Callable[[int], None],
        on_drop: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        self.counters = PublisherCounters()
        self._table = table
        self._outlet = outlet
        self._clock = clock
        self._every_s = publish_every_s
        self._after_s = publish_after_s
        self._heartbeat_s = heartbeat_s
        self._on_fenced = on_fenced
        self._on_drop = on_drop
        self._n = 0
        self._last: Snapshot | None = None
        self._next_beat = 0.0
        self._rounds: list[int] = []
        self._wake = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run on a daemon thread until `stop`."""
        self._thread = threading.Thread(target=self._loop, name="unknot-publisher", daemon=True)
        self._thread.start()

    def stop(self, *, timeout_s: float = 2.0) -> None:
        """Publish a last time and end the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def answer(self, round_id: int) -> None:
        """A collection round asks this process: answer at once."""
        self._rounds.append(round_id)
        self._wake.set()

    def _loop(self) -> None:
        while not self._stopping:
            self._wake.wait(self._every_s)
            self._wake.clear()
            self.look(time.monotonic())

    def look(self, monotonic_s: float) -> None:
        """One look at the table, and what it makes necessary to say."""
        self.counters.looks += 1
        rounds, self._rounds = self._rounds, []
        snapshot = self._table.snapshot(publish_after_s=self._after_s)
        if self._is_news(snapshot) or rounds:
            self._publish(snapshot, rounds)
        if monotonic_s >= self._next_beat:
            self._next_beat = monotonic_s + self._heartbeat_s
            self._beat()

    def _is_news(self, snapshot: Snapshot) -> bool:
        last = self._last
        if last is None:
            return True
        return snapshot.events != last.events and not (snapshot.is_quiet and last.is_quiet)

    def _publish(self, snapshot: Snapshot, rounds: list[int]) -> None:
        self._n += 1
        source = self._table.source
        events: list[Event] = list(snapshot.events)
        events += [Beat(src=source, n=self._n, tickets=snapshot.tickets, round=r) for r in rounds]
        record = Record(src=source, n=self._n, t=self._clock(), full=True, events=tuple(events))
        try:
            self._outlet.publish(record, _ENCODER.encode(record))
        except Exception as error:  # noqa: BLE001 - observing must not fail training; it is counted
            self.counters.dropped += 1
            self._on_drop(error)
            self._last = None
            return
        self.counters.published += 1
        self._last = snapshot

    def _beat(self) -> None:
        try:
            current = self._outlet.heartbeat()
        except Exception as error:  # noqa: BLE001 - as above
            self.counters.dropped += 1
            self._on_drop(error)
            return
        self.counters.heartbeats += 1
        if current is not None:
            self._on_fenced(current)
