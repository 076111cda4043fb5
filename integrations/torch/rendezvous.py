"""A torch.distributed Store in Redis: the rendezvous lives in no process that can die with a rank.

Each generation of a group has a prefix of its own, so a late rank of an older generation meets nobody. Keys expire: a
generation needs them while it forms, and for new subgroups.
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
        self._prefix = tuple(prefix)
        self._limit = timeout
        self._keep_s = int(keep.total_seconds())
        self.give_up: Callable[[], object] = lambda: None

    def _key(self, key: str) -> str:
        return self._store.key(*self._prefix, key)

    def set(self, key: str, value: str | bytes) -> None:
        """Set one key."""
        self._store.command("SET", self._key(key), value, "EX", self._keep_s)

    def get(self, key: str) -> bytes:
        """The value, waiting for it up to the time-out."""
        self.wait([key])
        return bytes(self._store.command("GET", self._key(key)))

    def add(self, key: str, value: int) -> int:
        """Add to a counter."""
        result = int(self._store.command("INCRBY", self._key(key), value))
        self._store.command("EXPIRE", self._key(key), self._keep_s)
        return result

    def check(self, keys: list[str]) -> bool:
        """Whether all keys exist."""
        return int(self._store.command("EXISTS", *(self._key(k) for k in keys))) == len(keys)

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
            self._store.command("SET", self._key(key), desired, "NX", "EX", self._keep_s)
        elif self._store.command("GET", self._key(key)) == expected.encode():
            self.set(key, desired)
        found = self._store.command("GET", self._key(key))
        return bytes(found) if found is not None else expected.encode()

    def delete_key(self, key: str) -> bool:
        """Delete one key."""
        return bool(self._store.command("DEL", self._key(key)))

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait."""
        self._limit = timeout
