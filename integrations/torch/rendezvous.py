"""A torch.distributed Store in Redis: the rendezvous lives in no process that can die with a rank.

Each generation of a group has a hash of its own, so a late rank of an older generation meets nobody. A generation needs it while it
forms, and for new subgroups; it goes when all ranks have joined the next one (group_join.lua), and expires.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch.distributed as dist

from unknot.recovery.ports import Store

_POLL_S = 0.002
_POLL_MAX_S = 0.05


class RendezvousStore(dist.Store):  # type: ignore[name-defined, misc]
    """The eight calls that process groups make, over the run's store.

    `give_up` is called again and again while waiting; what it raises ends the wait.
    """

    def __init__(self, store: Store, *, prefix: Sequence[str], timeout: timedelta, keep: timedelta) -> None:
        super().__init__()
        self._store = store
        self._hash = store.key(*prefix)
        self._limit = timeout
        self._keep_s = int(keep.total_seconds())
        self.give_up: Callable[[], object] = lambda: None

    def _expires_later(self) -> None:
        self._store.command("EXPIRE", self._hash, self._keep_s)

    def set(self, key: str, value: str | bytes) -> None:
        """Set one key."""
        self._store.command("HSET", self._hash, key, value)
        self._expires_later()

    def get(self, key: str) -> bytes:
        """The value, waiting for it up to the time-out."""
        while True:
            self.wait([key])
            value = self._store.command("HGET", self._hash, key)
            if value is not None:
                return bytes(value)

    def add(self, key: str, value: int) -> int:
        """Add to a counter."""
        result = int(self._store.command("HINCRBY", self._hash, key, value))
        self._expires_later()
        return result

    def check(self, keys: list[str]) -> bool:
        """Whether all keys exist."""
        return all(self._store.command("HEXISTS", self._hash, key) for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Until all keys exist; DistStoreError names the missing ones when the time-out passes."""
        limit = timeout if timeout is not None else self._limit
        end = time.monotonic() + limit.total_seconds()
        pause = _POLL_S
        while not self.check(keys):
            self.give_up()
            if time.monotonic() > end:
                missing = [k for k in keys if not self.check([k])]
                raise dist.DistStoreError(f"waited {limit.total_seconds():.0f} s for {', '.join(missing)}")
            time.sleep(pause)
            pause = min(pause * 1.5, _POLL_MAX_S)

    def pause(self) -> None:
        """Wait a moment before asking again."""
        time.sleep(_POLL_MAX_S)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Set if absent and nothing is expected, or if it is what is expected; the value afterwards."""
        if expected == "":
            self._store.command("HSETNX", self._hash, key, desired)
            self._expires_later()
        elif self._store.command("HGET", self._hash, key) == expected.encode():
            self.set(key, desired)
        found = self._store.command("HGET", self._hash, key)
        return bytes(found) if found is not None else expected.encode()

    def delete_key(self, key: str) -> bool:
        """Delete one key."""
        return bool(self._store.command("HDEL", self._hash, key))

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait."""
        self._limit = timeout
