"""The thin shell around the decision core: reads Redis, carries out instructions, and nothing else.

One loop: read what is new in the stream of records (a blocking read of one tick), ask the store what only it knows, feed both, let time
pass, carry out what follows. Only the holder of the leader's lease runs the core; the others try for the lease. A new leader starts from
each process' full record and the open incidents, then follows the stream from there. So does one that could not reach Redis for a
while: an instruction that was not carried out is not known to be lost, and building anew needs no repair.

The order at a start: first the place in the stream from which to follow, then how far the store's own records go, then the
members, then the records. Whatever happens in between is seen twice, never not at all.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import time
from collections.abc import Iterable, Iterator
from typing import Any

import structlog

from unknot.graph.ids import parse
from unknot.recovery.checkpoint_wishes import failed_saves
from unknot.recovery.errors import LeaseLost, StoreUnavailable
from unknot.recovery.group import break_group
from unknot.recovery.interrupts import interrupt
from unknot.recovery.registration import members
from unknot.supervisor.alerts.pump import AlertPump
from unknot.supervisor.clock import RunClock
from unknot.supervisor.config import Config
from unknot.supervisor.monitor.core import MonitorCore
from unknot.supervisor.monitor.instructions import (
    AskRound,
    BreakGroup,
    CollectStacks,
    Instruction,
    InterruptWait,
    Put,
    RestartMember,
)
from unknot.supervisor.monitor.lock_orders import LockOrderWatch
from unknot.supervisor.monitor.stream import Stream, full_record
from unknot.supervisor.recorder import commands
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.leader import Lease
from unknot.supervisor.store.redis_store import RedisStore

_TICK_MS = 50
_MEMBERS_EVERY_S = 0.5
_RENEWALS_IN_A_LEASE = 3
_ACKS_AWAITED_S = 30.0

_log = structlog.get_logger("unknot.monitor")


class Monitor:
    """Watches one run. `run_once` is one turn of the loop, for one thread."""

    def __init__(self, store: RedisStore, config: Config) -> None:
        self._store = store
        self._config = config
        self._clock = RunClock()
        self._clock.align(store.time)
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._lease = Lease(store, holder=self._name, lease_s=config.leader_lease_s)
        self._incidents = IncidentStore(store)
        self._pump = AlertPump(store, config)
        self._core: MonitorCore | None = None
        self._lock_orders: LockOrderWatch | None = None
        self._stream = Stream(store)
        self._acks_wanted: dict[str, float] = {}
        self._next_members = 0.0
        self._next_renewal = 0.0
        self._token = 0
        # No round is ever asked twice under one number, not even by a leader that starts anew under the same token.
        self._rounds: Iterator[int] = itertools.count(1)

    @property
    def bad_records(self) -> int:
        """Entries of the stream that could not be read."""
        return self._stream.bad_records

    def start(self) -> None:
        """Start what runs beside the loop."""
        self._pump.start()

    def stop(self) -> None:
        """Give the lease back and stop what `start` started."""
        with contextlib.suppress(StoreUnavailable):
            self._lease.release()
        self._pump.stop()

    def run_once(self) -> None:
        """One turn: lead or try to, read, decide, act.

        Raises:
            StoreUnavailable: Redis did not answer in time; the next turn takes over anew.
        """
        try:
            if self._lead():
                self._turn()
            else:
                time.sleep(_TICK_MS / 1000)
        except LeaseLost as error:
            _log.warning("monitor.lead.lost", error=str(error))
            self._core = None
        except BaseException:
            self._core = None
            raise

    def _turn(self) -> None:
        core = self._core
        assert core is not None
        records = self._stream.new_records(_TICK_MS)
        self._ask_the_store(core)
        for record in records:
            self._act(core.record(record, self._clock()))
        self._look_at_members(core)
        self._take_acknowledgements(core)
        self._act(core.tick(self._clock()))

    # --- lead ---

    def _lead(self) -> bool:
        now = time.monotonic()
        if now < self._next_renewal:
            return self._core is not None
        self._next_renewal = now + min(1.0, self._config.leader_lease_s / _RENEWALS_IN_A_LEASE)
        token = self._lease.acquire()
        if token is None:
            if self._core is not None:
                _log.warning("monitor.lead.lost", holder=self._name)
            self._core = None
            return False
        if token != self._token:
            self._rounds = itertools.count(token * 1_000_000 + 1)
        if self._core is None or token != self._token:
            self._token = token
            self._take_over()
        return True

    def _take_over(self) -> None:
        """Rebuild everything from Redis."""
        _log.info("monitor.lead.taken", token=self._token, run=self._store.run)
        self._clock.align(self._store.time)
        self._acks_wanted.clear()
        core = MonitorCore(run=self._store.run, config=self._config, rounds=self._rounds)
        self._stream.from_now()
        core.store_read_up_to(int(self._store.command("HGET", self._store.key("proc", "store"), "n") or 0))
        now = self._clock()
        for incident in self._incidents.list(open_only=True):
            core.adopt(incident, now)
        known = members(self._store)
        self._core = core
        self._lock_orders = LockOrderWatch(self._store)
        self._act(core.members(known, now))
        for member in known:
            for record in self._stream.readable(full_record(self._store, member.source), where=member.source):
                self._act(core.record(record, now))

    # --- read ---

    def _look_at_members(self, core: MonitorCore) -> None:
        now = time.monotonic()
        if now >= self._next_members:
            self._next_members = now + _MEMBERS_EVERY_S
            self._act(core.members(members(self._store), self._clock()))
            self._act(core.checkpoints(failed_saves(self._store).values(), self._clock()))
            for hazard in self._lock_orders.look() if self._lock_orders is not None else ():
                _log.warning("hazard.found", locks=list(hazard.locks), text=hazard.text)

    def _take_acknowledgements(self, core: MonitorCore) -> None:
        if not self._acks_wanted:
            return
        keys = list(self._acks_wanted)
        outcomes = self._store.command("HMGET", self._store.key("acks"), *keys)
        now = self._clock()
        for key, outcome in zip(keys, outcomes, strict=True):
            if outcome is not None:
                del self._acks_wanted[key]
                self._store.command("HDEL", self._store.key("acks"), key)
                self._act(core.acknowledged(key, outcome.decode(errors="replace"), now))
            elif now > self._acks_wanted[key]:
                del self._acks_wanted[key]

    def _ask_the_store(self, core: MonitorCore) -> None:
        """Before the records that were read just now are fed: what they answer must not be older than this."""
        asked = core.questions()
        if not asked:
            return
        self._act(core.answered(self._stream.truth(asked), self._clock()))

    # --- act ---

    def _act(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            _ACTS[type(instruction)](self, instruction)

    def _ask(self, ask: AskRound) -> None:
        self._store.publish("ask", commands.encode(commands.Ask(ask.round_id, ask.sources)))

    def _put(self, put: Put) -> None:
        incident = put.incident
        self._incidents.put(incident, token=self._token)
        _log.info(
            "incident.written", incident_id=incident.id, cause=incident.cause, state=incident.state,
            headline=incident.headline,
        )  # fmt: skip
        if put.alert:
            self._pump.announce(incident)

    def _stacks(self, collect: CollectStacks) -> None:
        for source, key in collect.keys.items():
            self._command(commands.Command(
                key=key, token=self._token, source=source, do="stacks", incident=collect.incident
            ))  # fmt: skip

    def _interrupt(self, order: InterruptWait) -> None:
        participant = order.participant
        if interrupt(
            self._store, participant, order.ticket, incident=order.incident, leader_token=self._token
        ):
            self._store.command("HSET", self._store.key("acks"), order.key, "interrupted")
            self._want(order.key)
            return
        self._command(commands.Command(
            key=order.key, token=self._token, source=parse(participant).source, do="interrupt",
            incident=order.incident, participant=participant, ticket=order.ticket,
        ))  # fmt: skip

    def _break(self, order: BreakGroup) -> None:
        break_group(
            self._store, order.group, order.generation, reason=order.reason, leader_token=self._token
        )
        for source, key in order.keys.items():
            self._command(commands.Command(
                key=key, token=self._token, source=source, do="break", incident=order.incident, group=order.group,
                generation=order.generation, reason=order.reason,
            ))  # fmt: skip

    def _restart(self, order: RestartMember) -> None:
        self._command(commands.Command(
            key=order.key, token=self._token, source=order.driver, do="restart", incident=order.incident,
            participant=order.member, reason=order.reason,
        ))  # fmt: skip

    def _command(self, command: commands.Command) -> None:
        self._want(command.key)
        self._store.publish("cmd", commands.encode(command))

    def _want(self, key: str) -> None:
        self._acks_wanted[key] = self._clock() + _ACKS_AWAITED_S


_ACTS: dict[type, Any] = {
    RestartMember: Monitor._restart,
    AskRound: Monitor._ask,
    Put: Monitor._put,
    CollectStacks: Monitor._stacks,
    InterruptWait: Monitor._interrupt,
    BreakGroup: Monitor._break,
}
