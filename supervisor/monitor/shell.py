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

import msgspec
import structlog

from unknot.graph.events import Record
from unknot.graph.ids import parse
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
)
from unknot.supervisor.monitor.truth import Answers
from unknot.supervisor.recorder import commands
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.leader import Lease
from unknot.supervisor.store.redis_store import RedisStore

_TICK_MS = 50
_MEMBERS_EVERY_S = 0.5
_RENEWALS_IN_A_LEASE = 3
_ACKS_AWAITED_S = 30.0
_BATCH = 500

_log = structlog.get_logger("unknot.monitor")
_RECORDS = msgspec.msgpack.Decoder(Record)


class Monitor:
    """Watches one run. `run_once` is one turn of the loop, for one thread.

    Attributes: `bad_records`, how many entries of the stream could not be read.
    """

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
        self._last_id = "0-0"
        self._acks_wanted: dict[str, float] = {}
        self._next_members = 0.0
        self._next_renewal = 0.0
        self._token = 0
        # No round is ever asked twice under one number, not even by a leader that starts anew under the same token.
        self._rounds: Iterator[int] = itertools.count(1)
        self.bad_records = 0

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
        records = self._new_records()
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
        newest = self._store.command("XREVRANGE", self._store.key("events"), "+", "-", "COUNT", 1)
        self._last_id = newest[0][0].decode() if newest else "0-0"
        core.store_read_up_to(int(self._store.command("HGET", self._store.key("proc", "store"), "n") or 0))
        now = self._clock()
        for incident in self._incidents.list(open_only=True):
            core.adopt(incident, now)
        known = members(self._store)
        self._core = core
        self._act(core.members(known, now))
        for member in known:
            full = self._store.command("HGET", self._store.key("proc", member.source), "full")
            for record in self._readable([full] if full is not None else [], where=member.source):
                self._act(core.record(record, now))

    # --- read ---

    def _new_records(self) -> list[Record]:
        answer = self._store.command(
            "XREAD", "COUNT", _BATCH, "BLOCK", _TICK_MS, "STREAMS", self._store.key("events"), self._last_id
        )
        if not answer:
            return []
        entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))[0]
        self._last_id = entries[-1][0].decode()
        return self._readable([_body(fields) for _, fields in entries], where=self._last_id)

    def _readable(self, bodies: Iterable[bytes], *, where: str) -> list[Record]:
        """The records; those that cannot be read are counted, and their process' next one makes good for them."""
        records = []
        for body in bodies:
            try:
                records.append(_RECORDS.decode(body))
            except msgspec.DecodeError as error:
                self.bad_records += 1
                _log.warning("monitor.record.unreadable", where=where, error=str(error))
        return records

    def _look_at_members(self, core: MonitorCore) -> None:
        now = time.monotonic()
        if now >= self._next_members:
            self._next_members = now + _MEMBERS_EVERY_S
            self._act(core.members(members(self._store), self._clock()))

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
        args = [part for name in asked.counts for part in ("count", name)]
        args += [part for name in asked.holders for part in ("holder", name)]
        args += [part for pid, ticket in asked.stands for part in ("stands", f"{pid}|{ticket}")]
        said = iter(self._store.script("truth", [self._store.key()], args))
        mailboxes = {name: next(said) for name in asked.counts}
        answers = Answers(
            counts={name: int(count) for name, (count, _) in mailboxes.items()},
            returners={name: tuple(one.decode() for one in held) for name, (_, held) in mailboxes.items()},
            holders={name: next(said).decode() for name in asked.holders},
            stands={wait: bool(next(said)) for wait in asked.stands},
        )
        self._act(core.answered(answers, self._clock()))

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

    def _command(self, command: commands.Command) -> None:
        self._want(command.key)
        self._store.publish("cmd", commands.encode(command))

    def _want(self, key: str) -> None:
        self._acks_wanted[key] = self._clock() + _ACKS_AWAITED_S


_ACTS: dict[type, Any] = {
    AskRound: Monitor._ask,
    Put: Monitor._put,
    CollectStacks: Monitor._stacks,
    InterruptWait: Monitor._interrupt,
    BreakGroup: Monitor._break,
}


def _body(fields: Any) -> bytes:
    """The record in an entry of the stream; empty, hence unreadable, if somebody else wrote the entry."""
    flat = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    return bytes(flat.get(b"r", b""))
