"""What one process of a run is: its member, its store, its recorder. Made once, found by `current()`.

Worker processes learn where they belong from their environment: `SUPERVISOR_WORKER` holds a `WorkerSettings` as JSON.
Joining registers before any user code runs, and registration is the fence.

That is why the place must not be inherited. A child that joined as its parent's member would fence its own parent: so
joining takes the settings out of the environment, and a forked child is no member (the loader processes of a trainer
are both kinds of children).
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from unknot.graph.errors import UnknotError
from unknot.graph.events import Record
from unknot.graph.hazards import Order
from unknot.recovery.answers import Answer, ask_as_member
from unknot.recovery.errors import DeadlockInterrupted, FencedError, NotAMember, StoreUnavailable
from unknot.recovery.marks import Mark, mark
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import MemberInfo, Registration, end, members, new_boot, register
from unknot.supervisor.clock import RunClock
from unknot.supervisor.config import Config
from unknot.supervisor.config_values import read_switch
from unknot.supervisor.recorder.bystanders import Bystanders
from unknot.supervisor.recorder.commands import Command, Listener
from unknot.supervisor.recorder.frames import current_frames
from unknot.supervisor.recorder.publisher import Publisher
from unknot.supervisor.recorder.sites import stack_of
from unknot.supervisor.recorder.table import WaitTable
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

if TYPE_CHECKING:
    from unknot.recovery.ports import Recorder, RedisValue

WORKER_ENV = "SUPERVISOR_WORKER"
MONITOR_ENV = "SUPERVISOR_MONITOR"
DISABLED_ENV = "SUPERVISOR_DISABLED"
_EVENTS_KEPT = 20_000
_PROC_KEPT_S = 3600
_ORDERS_KEPT = 4096
_ORDERS = msgspec.json.Encoder(order="deterministic")
_ACKS_KEPT_S = 600
_QUICK = StoreLimits(connect_s=0.5, answer_s=0.5, retry_s=0.0)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker process is told by the driver."""

    run: str
    redis: str
    member: str
    role: str
    config: Config
    group: str | None = None
    rank: int = 0
    size: int = 1
    disabled: bool = False
    checkpoints: str = ""

    def to_environment(self) -> str:
        """As the value of `SUPERVISOR_WORKER`."""
        return msgspec.json.encode(self).decode()


class MonitorSettings(msgspec.Struct, frozen=True):
    """What the monitor's process is told by the driver."""

    run: str
    config: Config


def settings_from(environ: Mapping[str, str]) -> WorkerSettings | None:
    """The settings this process was started with, None outside a run."""
    text = environ.get(WORKER_ENV)
    return None if text is None else msgspec.json.decode(text, type=WorkerSettings)


def observation_off(environ: Mapping[str, str]) -> bool:
    """Whether SUPERVISOR_DISABLED says so. ConfigError for a word that is neither on nor off."""
    return read_switch(environ.get(DISABLED_ENV, ""), name=DISABLED_ENV)


class RedisOutlet:
    """Writes records and heartbeats; short limits, so that a slow Redis costs a record and not a second.

    `orders_left_out` counts orders of locks that the run has no room for.
    """

    def __init__(self, store: RedisStore, registration: Registration) -> None:
        self.orders_left_out = 0
        self._store = store
        self._registration = registration

    def publish(self, record: Record, encoded: bytes) -> int | None:
        """Append to the stream and keep as the last record; the newest incarnation if this one was replaced."""
        return self._write("publish", record.n, record.t, encoded, _EVENTS_KEPT, _PROC_KEPT_S)

    def heartbeat(self, n: int, progress: str | None) -> int | None:
        """None while this incarnation is the newest, else the newest. `n`: of the last record; `progress`: as JSON."""
        return self._write("beat", n, progress or "")

    def lock_orders(self, orders: Sequence[Order]) -> int | None:
        """Add to the run's; the newest incarnation if this one was replaced."""
        try:
            answer = self._ask("lock_orders", _ORDERS_KEPT, *(_ORDERS.encode(order) for order in orders))
        except FencedError as error:
            return error.current
        self.orders_left_out += answer.number()
        return None

    def _write(self, script: str, *args: RedisValue) -> int | None:
        try:
            self._ask(script, *args)
        except FencedError as error:
            return error.current
        return None

    def _ask(self, script: str, *args: RedisValue) -> Answer:
        registration = self._registration
        return ask_as_member(self._store, script, registration.member, registration.incarnation, *args)


class Process:
    """One process of a run. `table` is None when observation is off."""

    def __init__(self, settings: WorkerSettings, store: RedisStore, registration: Registration) -> None:
        self.settings = settings
        self.config = settings.config
        self.store = store
        self.registration = registration
        self.member = settings.member
        self.incarnation = registration.incarnation
        self.source = f"{self.member}#{self.incarnation}"
        self.clock = RunClock()
        self.clock.align(store.time)
        self.table: WaitTable | None = None
        self.recorder: Recorder = NullRecorder(self.member, self.incarnation)
        self.listener: Listener | None = None
        self.publisher: Publisher | None = None
        self.progress: dict[str, int] = {}
        self.marks_lost = 0
        self._marked: set[Mark] = set()
        self._side_stores: list[RedisStore] = []

    def observe(self) -> None:
        """Start the recorder: wait table, publisher, listener."""
        self.table = WaitTable(
            member=self.member, incarnation=self.incarnation, role=self.settings.role, clock=self.clock
        )
        self.recorder = self.table
        self.table.add_source(Bystanders(self.table))
        self.table.slot()
        quick = RedisStore(self.settings.redis, self.settings.run, _QUICK)
        self._side_stores.append(quick)
        config = self.config
        self.publisher = Publisher(
            self.table, RedisOutlet(quick, self.registration), clock=self.clock,
            publish_every_s=config.publish_every_s, publish_after_s=config.publish_after_s,
            heartbeat_s=config.heartbeat_s, on_fenced=self._fenced, progress=lambda: dict(self.progress),
        )  # fmt: skip
        self.listener = Listener(
            quick.listen(["ask", "cmd"]), source=self.source, answer=self.publisher.answer,
            acknowledge=lambda key, outcome: _acknowledge(quick, key, outcome),
        )  # fmt: skip
        self.listener.handle("interrupt", self._interrupt)
        self.listener.handle("stacks", lambda _command: "\n".join(self.stacks()))
        self.listener.start()
        self.publisher.start()

    def _fenced(self, current: int) -> None:
        error = FencedError(member=self.member, incarnation=self.incarnation, current=current)
        assert self.table is not None
        self.table.fenced = error

    def _interrupt(self, command: Command) -> str:
        assert self.table is not None
        waiting = self.table.waits().get(command.participant)
        resource = _first_resource(waiting)
        error = DeadlockInterrupted(
            participant=command.participant, resource=resource, incident=command.incident
        )
        return "interrupted" if self.table.interrupt(command.participant, command.ticket, error) else "gone"

    def stacks(self) -> list[str]:
        """The Python stack of each thread, one text each."""
        frames = current_frames()
        names = {t.ident: t.name for t in threading.enumerate()}
        return [
            f"{names.get(ident, ident)}: " + " < ".join(stack_of(frame, limit=48))
            for ident, frame in frames.items()
            if not str(names.get(ident, "")).startswith("unknot-")
        ]

    def members(self) -> list[MemberInfo]:
        """All members of the run as the store has them."""
        return members(self.store)

    def members_quickly(self) -> list[MemberInfo]:
        """The same for observers: StoreUnavailable at once where Redis does not answer at once."""
        return members(self.observing_store)

    @property
    def observing_store(self) -> RedisStore:
        """The run's store for observers, who would rather miss something than wait; with observation off, the only one."""
        return self._side_stores[0] if self._side_stores else self.store

    def progressed(self, what: str, n: int = 1) -> None:
        """Note `n` more of what this process gets done; told with the next heartbeat."""
        self.progress[what] = self.progress.get(what, 0) + n

    def mark(self, what: Mark, *, at: float | None = None) -> None:
        """A process that took the place of a lost one came so far (`at`: seconds, now by default). Never fails; counted."""
        if self.incarnation > 1 and what not in self._marked:
            self._marked.add(what)
            try:
                mark(self.store, (self.member, self.incarnation), what, self.clock() if at is None else at)
            except UnknotError:
                self.marks_lost += 1

    def wake(self, participant: str, ticket: int) -> None:
        """Have a wait in the store look again whether it was interrupted."""
        key = self.store.key("wake", f"{participant}|{ticket}")
        self.store.command("RPUSH", key, "look")
        self.store.command("EXPIRE", key, 60)

    def close(self, *, how: Literal["done", "dead"] = "done", error: str = "") -> None:
        """Say that the member ended, and stop the threads."""
        if self.listener is not None:
            self.listener.stop()
        if self.publisher is not None:
            self.publisher.stop()
        try:
            end(self.store, self.member, self.incarnation, state=how, error=error)
        except (FencedError, StoreUnavailable) as refused:
            _warn("process.end.not_said", member=self.source, how=how, error=str(refused))
        for store in self._side_stores:
            store.close()
        self.store.close()


def _warn(event: str, **facts: str) -> None:
    import structlog  # a worker that has nothing to warn of does not pay for it

    structlog.get_logger("unknot.process").warning(event, **facts)


def _acknowledge(store: RedisStore, key: str, outcome: str) -> None:
    store.command("HSET", store.key("acks"), key, outcome)
    store.command("EXPIRE", store.key("acks"), _ACKS_KEPT_S)


def _first_resource(waiting: Any) -> str:
    if waiting is None:
        return "?"
    atom = waiting.needs[0].of[0]
    return str(atom.r or atom.p or atom.external)


_current: Process | None = None
_forked = False
_joining = threading.Lock()


def current(call: str) -> Process:
    """This process' place in its run, joined from the environment on first use.

    Raises:
        NotAMember: neither a worker of a run nor a driver, or a forked child of one; `call` names what was tried.
    """
    if _current is not None:
        return _current
    if _forked:
        raise NotAMember(call=f"{call}, used in a forked child,")
    if settings_from(os.environ) is None:
        raise NotAMember(call=call)
    return join()


def joined() -> Process | None:
    """This process' place in its run if it has taken one already; joins nothing."""
    return _current


def is_member() -> bool:
    """Whether this process belongs to a run."""
    return _current is not None or (WORKER_ENV in os.environ and not _forked)


def join(settings: WorkerSettings | None = None, *, store: RedisStore | None = None, actor_id: str = "") -> Process:
    """Register this process as its member and start its recorder; the second call returns the first one's result.

    Without `settings` they are taken out of the environment, so that no child process finds them there.
    """
    global _current, _forked
    with _joining:
        if _current is not None:
            return _current
        if settings is None and not _forked:
            settings = settings_from(os.environ)
            os.environ.pop(WORKER_ENV, None)
        if settings is None:
            raise NotAMember(call="unknot.join")
        _current, _forked = _joined(settings, store, actor_id), False
        return _current


def _joined(settings: WorkerSettings, store: RedisStore | None, actor_id: str) -> Process:
    if store is None:
        limits = StoreLimits(retry_s=settings.config.store_limit_s)
        store = RedisStore.connect(settings.redis, settings.run, limits=limits)
    registration = register(
        store, settings.member, role=settings.role, pid=os.getpid(), host=socket.gethostname(), boot=new_boot(),
        lease_s=settings.config.lease_s, actor_id=actor_id,
    )  # fmt: skip
    process = Process(settings, store, registration)
    if not settings.disabled:
        process.observe()
    return process


def leave(*, how: Literal["done", "dead"] = "done", error: str = "") -> None:
    """End this process' membership; without one, nothing happens."""
    global _current
    with _joining:
        process, _current = _current, None
    if process is not None:
        process.close(how=how, error=error)


def _after_fork_in_child() -> None:
    global _current, _forked, _joining
    _joining = threading.Lock()
    if _current is not None:
        _forked = True
        if _current.table is not None:
            _current.table.abandon()
    _current = None


os.register_at_fork(after_in_child=_after_fork_in_child)
