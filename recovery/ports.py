"""What the data path needs from the outside: a store and a recorder of waits.

The primitives of this folder (lock, mailbox, weights, registration) decide nothing about Redis connections, threads
or the wait table; they are given these two. `unknot.supervisor` implements both; tests may give them others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from unknot.graph.events import Clause, Resource

RedisValue = bytes | str | int | float


class Store(Protocol):
    """A narrow seam over Redis: everything of one run under one prefix, one hash slot, scripts by name."""

    @property
    def run(self) -> str:
        """The run's name."""

    def key(self, *parts: str) -> str:
        """The full key: `unknot:{run}:part:part`; without parts the prefix that every script gets as KEYS[1]."""

    def script(self, name: str, keys: Sequence[str], args: Sequence[RedisValue]) -> Any:
        """Run the script `name`.lua atomically; StoreUnavailable once the store's retry limit has passed.

        A script whose answer was lost runs again, so each is written to answer the same the second time.
        """

    def command(self, *args: RedisValue) -> Any:
        """Run one plain command with the same limit."""

    def blocking_pop(self, key: str, *, timeout_s: float) -> bytes | None:
        """BLPOP one key, None when `timeout_s` passed; on a connection that no other thread uses meanwhile."""


class Ticket(Protocol):
    """One wait that has been announced."""

    @property
    def number(self) -> int:
        """Never reused in this process."""

    def poll_interrupt(self) -> Exception | None:
        """The error to raise if this very wait was interrupted, else None."""


class Recorder(Protocol):
    """The in-process wait table as the primitives see it."""

    @property
    def incarnation(self) -> int:
        """Of this process's member: the fencing token of all its writes."""

    @property
    def member(self) -> str:
        """`role/name` of this process."""

    def participant(self) -> str:
        """The calling thread's participant id, such as `agent/b#1` or `agent/b#1/loader`."""

    def next_ticket(self) -> int:
        """A ticket number that is never reused in this process."""

    def wait(
        self,
        ticket: int,
        needs: Sequence[Clause],
        resources: Sequence[Resource] = (),
        *,
        interruptible: bool = True,
        deadline_s: float | None = None,
        limit_s: float | None = None,
    ) -> AbstractContextManager[Ticket]:
        """Announce that the calling thread blocks; leaving the block says that it goes on.

        `resources` declares what the atoms of `needs` name. `deadline_s` seconds from now the waiter goes on by
        itself; None says that it never will. `limit_s` seconds from now it is ended: shown, never an escape.
        """

    def hold(self, resource: Resource, *, units: int = 1, would_wait: bool = True) -> None:
        """The calling thread now holds `units` of the resource. Call after acquiring, after leaving `wait`.

        `would_wait`: whether it would have waited for ever; who gives up in time makes no order of locks.
        """

    def release(self, resource_id: str, *, units: int = 1) -> None:
        """The calling thread no longer holds them. Call after releasing."""
