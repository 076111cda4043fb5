"""A member of a run as its own process would be it, and what the run knows of it."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from unknot.graph.events import Record
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.config import Config
from unknot.supervisor.process import Process, WorkerSettings
from unknot.supervisor.recorder.publisher import Publisher
from unknot.supervisor.recorder.table import WaitTable
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

QUICK = {"publish_every_s": 0.01, "publish_after_s": 0.02, "heartbeat_s": 0.1, "lease_s": 1.0}


class Member:
    """A `Process` with recorder; `records` are what the stream has of it."""

    def __init__(self, url: str, run: str, name: str, **config: Any) -> None:
        settings = WorkerSettings(
            run=run, redis=url, member=name, role=name.partition("/")[0], config=Config(redis=url, **{**QUICK, **config})
        )
        self.store = RedisStore.connect(url, run, limits=StoreLimits(retry_s=5.0))
        registered = register(
            self.store, name, role=settings.role, pid=os.getpid(), host="here", boot=new_boot(),
            lease_s=settings.config.lease_s,
        )  # fmt: skip
        self.process = Process(settings, self.store, registered)
        self.process.observe()

    @property
    def table(self) -> WaitTable:
        assert self.process.table is not None
        return self.process.table

    @property
    def publisher(self) -> Publisher:
        assert self.process.publisher is not None
        return self.process.publisher

    def records(self) -> list[Record]:
        """The records of this member in the stream, oldest first."""
        return [one for one in stream(self.store) if one.src == self.process.source]

    def full(self) -> Record | None:
        """The last record that is kept beside the stream."""
        found = self.store.command("HGET", self.store.key("proc", self.process.source), "full")
        return None if found is None else msgspec.msgpack.decode(found, type=Record)

    def field(self, name: str) -> str:
        """A field of the member's hash."""
        found = self.store.command("HGET", self.store.key("member", self.process.member), name)
        return "" if found is None else str(found.decode())

    def close(self) -> None:
        self.process.close()


def stream(store: RedisStore) -> list[Record]:
    """All records of the run's stream."""
    entries = store.command("XRANGE", store.key("events"), "-", "+")
    return [msgspec.msgpack.decode(fields[b"r"], type=Record) for _, fields in entries]
