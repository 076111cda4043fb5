"""What a step has done so far and has not told: values, until the commit script gets them all at once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.recovery.items import Item, Origin

COMMIT_LIMIT = 500 * 1024 * 1024


class Send(msgspec.Struct, frozen=True):
    """One item that waits for the commit."""

    mailbox: str
    body: bytes
    to: str


class Publication(msgspec.Struct, frozen=True):
    """Weights that wait for the commit."""

    name: str
    n: int
    digest: str
    body: bytes


class Buffer:
    """The effects of one attempt of a step, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.received: list[Item] = []
        self.dropped: list[Item] = []
        self.sends: list[Send] = []
        self.writes: dict[str, bytes] = {}
        self.publications: dict[str, Publication] = {}
        self.deferred: list[Callable[[], object]] = []

    @property
    def has_received(self) -> bool:
        """Whether items are in the member's hands because of this step."""
        return bool(self.received or self.dropped)

    @property
    def passed_on(self) -> Origin | None:
        """The origin of what is sent: that of the one item that was received, None for the member's own."""
        return self.received[0].origin if len(self.received) == 1 else None

    def mailboxes(self) -> tuple[str, ...]:
        """Where it sends, each once, in order."""
        return tuple(dict.fromkeys(send.mailbox for send in self.sends))

    def sent_to(self, mailbox: str) -> int:
        """How many items wait for that mailbox."""
        return sum(send.mailbox == mailbox for send in self.sends)

    def undo_plan(self, locks: Mapping[str, int]) -> str:
        """What the roll-back script gives back, as JSON."""
        return json.dumps({"acks": self._ids(), "locks": _lock_list(locks)})

    def plan(self, locks: Mapping[str, int]) -> str:
        """What the commit script does, as JSON; the values come beside it (`bodies`)."""
        return json.dumps(
            {
                "acks": self._ids(),
                "sends": self._send_list(),
                "writes": list(self.writes),
                "publishes": [{"name": p.name, "n": str(p.n), "digest": p.digest} for p in self.publications.values()],
                "locks": _lock_list(locks),
            }
        )

    def bodies(self, *, limit: int = COMMIT_LIMIT) -> list[bytes]:
        """The values, in the plan's order. ConfigError: more bytes than one commit can carry."""
        sent = [send.body for send in self.sends]
        bodies = [*sent, *self.writes.values(), *(p.body for p in self.publications.values())]
        size = sum(map(len, bodies))
        if size > limit:
            raise ConfigError(
                what=f"a step wants to commit {size} bytes at once (limit {limit})",
                todo="send, write or publish references (paths, ObjectRefs), or do less in one step",
            )
        return bodies

    def run_deferred(self) -> None:
        """Call what waits for the commit, in order."""
        while self.deferred:
            self.deferred.pop(0)()

    def _ids(self) -> list[str]:
        return [item.id for item in (*self.received, *self.dropped)]

    def _send_list(self) -> list[dict[str, Any]]:
        origin, before = self.passed_on, Counter[str]()
        found = []
        for send in self.sends:
            mine = origin.nth(before[send.mailbox]) if origin is not None else Origin(member="", number=0)
            before[send.mailbox] += 1
            found.append(
                {"box": send.mailbox, "to": send.to, "origin": mine.member, "number": mine.number, "sub": mine.sub}
            )
        return found


def _lock_list(locks: Mapping[str, int]) -> list[list[str]]:
    return [[name, str(token)] for name, token in sorted(locks.items())]


def seed_of(run_seed: int, member: str, seq: int) -> int:
    """The seed of a member's step: 32 bits (any generator takes them) of BLAKE2b over the run's seed, the member and the seq."""
    digest = blake2b(f"{run_seed}|{member}|{seq}".encode(), digest_size=4)
    return int.from_bytes(digest.digest(), "big")


def backoff_s(attempt: int, chance: Callable[[], float] = random.random) -> float:
    """How long to leave the others alone before attempt `attempt` (from 1): up to 20 ms, doubled each time, at most a second."""
    return min(0.02 * 2.0 ** (attempt - 1), 1.0) * (0.5 + 0.5 * chance())
