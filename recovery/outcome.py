"""What a run has come to: the digests of its trainer groups, and the recoveries it went through."""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Sequence

import msgspec

from unknot.recovery.group import group_names, group_status
from unknot.recovery.marks import Mark, marks_of
from unknot.recovery.ports import Store
from unknot.recovery.registration import members


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """One process that took the place of a lost one, and when it came how far (seconds since the epoch, by Redis' clock).

    noticed: that the lost process was gone; fenced: nothing of it counts any more; process: the new one began (Ray may have had it
    ready before); registered: its imports are done and it is the member; entered: its constructor is done; formed: its group
    runs; restored: it stands where it goes on from; committed: its first step counts.
    """

    source: str
    marks: dict[Mark, float]

    def split(self) -> dict[str, float]:
        """Seconds from each mark to the next one that is there, named after the latter."""
        at = list(self.marks.items())
        return {what: max(0.0, now - before) for (_, before), (what, now) in itertools.pairwise(at)}


def recoveries_of(store: Store) -> tuple[Recovery, ...]:
    """All recoveries of the run, by member and incarnation."""
    return tuple(
        Recovery(source=f"{info.member}#{incarnation}", marks=marks)
        for info in members(store)
        for incarnation, marks in marks_of(store, info.member).items()
    )


def put_digest(store: Store, group: str, rank: int, *, seq: int, digest: str) -> None:
    """A rank says what its state is before step `seq`, the last one."""
    store.command("HSET", store.key("digest", group), str(rank), f"{seq}|{digest}")


def final_digests(store: Store) -> dict[str, str]:
    """By group: one SHA-256 over the digests of its ranks in order; groups of which a rank has said nothing are left out."""
    found = {}
    for name in group_names(store):
        ranks = range(group_status(store, name).size)
        told = [store.command("HGET", store.key("digest", name), str(rank)) for rank in ranks]
        if told and None not in told and len({one.split(b"|")[0] for one in told}) == 1:
            found[name] = combined_hash([one.split(b"|")[1].decode() for one in told])
    return found


def combined_hash(of_ranks: Sequence[str]) -> str:
    """SHA-256 in hex over the digests of all ranks, by rank: each with its length in 8 bytes, little-endian."""
    digest = hashlib.sha256()
    for one in of_ranks:
        digest.update(struct.pack("<Q", len(one)) + one.encode())
    return digest.hexdigest()
