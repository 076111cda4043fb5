"""Manifests and ranks' records for tests, and a group of ranks in the store."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from unknot.recovery.checkpoints import Place
from unknot.recovery.group import join_once
from unknot.recovery.manifest import FileEntry, Manifest, RankRecord, new_id
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.store.redis_store import RedisStore

GROUP = "policy"


def entry(path: str, body: bytes) -> FileEntry:
    return FileEntry(path=path, bytes=len(body), sha256=hashlib.sha256(body).hexdigest())


def record(rank: int, *, source: str = "", body: bytes = b"weights", items: tuple[str, ...] = ()) -> RankRecord:
    files = (entry(f"__{rank}_0.distcp", body), entry(f"rng-{rank}", b"rng"))
    return RankRecord(rank=rank, source=source or f"trainer/{rank}#1", files=files, rng=f"rng-{rank}", items=items)


def manifest(number: int, *, size: int = 2, **more: Any) -> Manifest:
    id_ = new_id(GROUP, generation=1, seq=number, nonce=f"{number:08x}")
    facts: dict[str, Any] = {
        "id": id_, "run": "r", "group": GROUP, "generation": 1, "seq": number, "size": size, "number": number,
        "created_at": 1.0, "committed_at": 2.0, "ranks": tuple(record(rank) for rank in range(size)),
    }  # fmt: skip
    return Manifest(**(facts | more))


def write_files(folder: Path, one: RankRecord, *, body: bytes = b"weights") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in one.files:
        (folder / file.path).write_bytes(b"rng" if file.path == one.rng else body)


def form(store: RedisStore, *, size: int = 2) -> list[Place]:
    """The ranks register anew and form the group's next generation."""
    places = []
    for rank in range(size):
        member = f"trainer/{rank}"
        me = register(store, member, role="trainer", pid=os.getpid(), host="here", boot=new_boot())
        joined = join_once(
            store, GROUP, size=size, rank=rank, member=member, incarnation=me.incarnation, token=new_boot()
        )
        places.append(
            Place(
                group=GROUP, generation=joined.generation, rank=rank, size=size, member=member, incarnation=me.incarnation
            )
        )  # fmt: skip
    return places
