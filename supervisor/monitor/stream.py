"""What a watcher of a run reads from Redis: the stream of records, the last record of a process, the store's own word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import structlog

from unknot.graph.events import Record
from unknot.supervisor.monitor.truth import Answers, Questions
from unknot.supervisor.store.redis_store import RedisStore

_BATCH = 500
_RECORDS = msgspec.msgpack.Decoder(Record)
_log = structlog.get_logger("unknot.stream")


class Stream:
    """The records of a run from a place on. `bad_records` counts entries that could not be read."""

    def __init__(self, store: RedisStore) -> None:
        self.bad_records = 0
        self._store = store
        self._last_id = "0-0"

    def from_now(self) -> None:
        """Follow what comes from now on."""
        newest = self._store.command("XREVRANGE", self._store.key("events"), "+", "-", "COUNT", 1)
        self._last_id = newest[0][0].decode() if newest else "0-0"

    def new_records(self, tick_ms: int) -> list[Record]:
        """What is new; waits up to `tick_ms` milliseconds for it."""
        answer = self._store.command(
            "XREAD", "COUNT", _BATCH, "BLOCK", tick_ms, "STREAMS", self._store.key("events"), self._last_id
        )
        if not answer:
            return []
        entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))[0]
        self._last_id = entries[-1][0].decode()
        return self.readable([_body(fields) for _, fields in entries], where=self._last_id)

    def readable(self, bodies: Iterable[bytes], *, where: str) -> list[Record]:
        """The records; those that cannot be read are counted, and their process' next one makes good for them."""
        records = []
        for body in bodies:
            try:
                records.append(_RECORDS.decode(body))
            except msgspec.DecodeError as error:
                self.bad_records += 1
                _log.warning("monitor.record.unreadable", where=where, error=str(error))
        return records

    def truth(self, asked: Questions) -> Answers:
        """The store's word on all questions at one instant."""
        args = [part for name in asked.counts for part in ("count", name)]
        args += [part for name in asked.holders for part in ("holder", name)]
        args += [part for pid, ticket in asked.stands for part in ("stands", f"{pid}|{ticket}")]
        said = iter(self._store.script("truth", [self._store.key()], args))
        mailboxes = {name: next(said) for name in asked.counts}
        return Answers(
            counts={name: int(count) for name, (count, _) in mailboxes.items()},
            returners={name: tuple(one.decode() for one in held) for name, (_, held) in mailboxes.items()},
            holders={name: next(said).decode() for name in asked.holders},
            stands={wait: bool(next(said)) for wait in asked.stands},
        )


def full_record(store: RedisStore, source: str) -> list[bytes]:
    """The last record of a process as it is kept for late readers, as a list of one; empty if there is none."""
    full = store.command("HGET", store.key("proc", source), "full")
    return [full] if full is not None else []


def _body(fields: Any) -> bytes:
    """The record in an entry of the stream; empty, hence unreadable, if somebody else wrote the entry."""
    flat = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
    return bytes(flat.get(b"r", b""))
