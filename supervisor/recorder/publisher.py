"""The publisher thread: tells the run what stands in this process, and never gets in its way.

Every `publish_every_s` it looks at the wait table (memory only). It writes to Redis when somebody waits and the picture
has changed, when a collection round asks, and once a second as a heartbeat. Every record is a full one: it rebuilds all
that is known of the process, so a reader that missed one is whole again with the next. That costs bytes, not round trips:
only waits older than `publish_after_s` and what bears on them are in it. (Records of changes alone were rejected for now:
each loss would need a repair protocol, and the picture of one process is small.)

If Redis is slow or gone the record is dropped and counted; the next one that gets through carries everything. After a
silence, of Redis or of this process (stopped, swapped out), a record is published even if nothing has changed: whoever
watches may have given up what it knew.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from unknot.graph.events import Beat, Event, Record
from unknot.graph.hazards import Order
from unknot.supervisor.recorder.progress import ProgressNotes, nothing
from unknot.supervisor.recorder.table import Snapshot, WaitTable

_ENCODER = msgspec.msgpack.Encoder()
# A heartbeat this many periods late is a silence.
_SILENCE = 3.0


class Outlet(Protocol):
    """Where records go. Every call may raise; the publisher counts and goes on."""

    def publish(self, record: Record, encoded: bytes) -> int | None:
        """Append the record to the stream and keep it as the process' last; as `heartbeat` if it was replaced."""

    def heartbeat(self, n: int, progress: str | None) -> int | None:
        """Say that the process lives; the current incarnation if this one was replaced, else None.

        `n`: number of the last record that was written; `progress`: the marks as JSON where they have changed.
        """

    def lock_orders(self, orders: Sequence[Order]) -> int | None:
        """Add ways in which locks were taken to those of the run."""


class PublisherCounters(msgspec.Struct):
    """What the publisher did and failed to do. `failed` counts looks that ended in an error of ours."""

    published: int = 0
    heartbeats: int = 0
    dropped: int = 0
    looks: int = 0
    failed: int = 0


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
        progress: Callable[[], Mapping[str, int]] = nothing,
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
        self._progress = ProgressNotes(progress)
        self._progress_told: str | None = None
        self._n = 0
        self._n_written = 0
        self._last: Snapshot | None = None
        self._next_beat = 0.0
        self._beaten_at: float | None = None
        self._rounds: deque[int] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._fenced = False
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
            self._look_safely()
        self._look_safely()
        self._tell_orders()

    def _look_safely(self) -> None:
        try:
            self.look(time.monotonic())
        except Exception as error:  # noqa: BLE001 - a source that fails must not end all reports; it is counted
            self.counters.failed += 1
            self._on_drop(error)

    def look(self, monotonic_s: float) -> None:
        """One look at the table, and what it makes necessary to say. `monotonic_s`: now, in seconds."""
        self.counters.looks += 1
        if self._fenced:
            return
        rounds = self._asked()
        snapshot = self._table.snapshot(publish_after_s=self._after_s)
        self._progress.look(self._clock())
        if rounds or self._is_news(snapshot):
            self._publish(snapshot, rounds)
        if monotonic_s >= self._next_beat and not self._fenced:
            self._next_beat = monotonic_s + self._heartbeat_s
            self._beat(monotonic_s)
            self._tell_orders()

    def _asked(self) -> list[int]:
        """The rounds that ask now; before the look, so that each is answered by a look that came after it."""
        rounds = []
        while self._rounds:
            rounds.append(self._rounds.popleft())
        return list(dict.fromkeys(rounds))

    def _is_news(self, snapshot: Snapshot) -> bool:
        last = self._last
        if last is None:
            return True
        return snapshot.events != last.events and not (snapshot.is_quiet and last.is_quiet)

    def _publish(self, snapshot: Snapshot, rounds: list[int]) -> None:
        self._n += 1
        source = self._table.source
        events: list[Event] = [*snapshot.events, *self._progress.events(source)]
        events += [Beat(src=source, n=self._n, tickets=snapshot.tickets, round=r) for r in rounds]
        record = Record(src=source, n=self._n, t=self._clock(), full=True, events=tuple(events))
        try:
            current = self._outlet.publish(record, _ENCODER.encode(record))
        except Exception as error:  # noqa: BLE001 - observing must not fail training; it is counted
            self._dropped(error)
            return
        self._last, self._n_written = snapshot, self._n
        self.counters.published += current is None
        self._replaced(current)

    def _beat(self, monotonic_s: float) -> None:
        marks = self._progress.encoded()
        try:
            current = self._outlet.heartbeat(self._n_written, marks if marks != self._progress_told else None)
        except Exception as error:  # noqa: BLE001 - as above
            self._dropped(error)
            return
        before, self._beaten_at = self._beaten_at, monotonic_s
        if before is not None and monotonic_s - before > _SILENCE * self._heartbeat_s:
            self._last = None
        self._progress_told = marks
        self.counters.heartbeats += 1
        self._replaced(current)

    def _tell_orders(self) -> None:
        orders = self._table.orders.untold()
        if not orders or self._fenced:
            return
        try:
            current = self._outlet.lock_orders(orders)
        except Exception as error:  # noqa: BLE001 - as above; they are told with the next heartbeat
            self._dropped(error)
            return
        self._table.orders.told(len(orders))
        self._replaced(current)

    def _dropped(self, error: Exception) -> None:
        self.counters.dropped += 1
        self._last = None
        self._on_drop(error)

    def _replaced(self, current: int | None) -> None:
        if current is not None:
            self._fenced = True
            self._on_fenced(current)
