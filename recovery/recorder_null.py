"""A recorder that records nothing: for runs with observation switched off, and for tests.

Participants and tickets are real all the same, because the data path needs them: a lock knows its holder by
participant, and a request that is asked twice is recognised by its ticket.
"""

from __future__ import annotations

import itertools
import re
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from unknot.graph.events import Clause, Resource

_NOT_IN_THREAD_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class NullTicket:
    """A wait that nobody is told of."""

    def __init__(self, number: int) -> None:
        self.number = number

    def poll_interrupt(self) -> Exception | None:
        """None: without a recorder, interrupts come through Redis alone."""
        return None


class NullRecorder:
    """Names participants and numbers tickets of one member's incarnation, and records nothing."""

    def __init__(self, member: str, incarnation: int) -> None:
        self.member = member
        self.incarnation = incarnation
        self._tickets = itertools.count(1)
        self._names: weakref.WeakKeyDictionary[threading.Thread, str] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def participant(self) -> str:
        """`role/name#incarnation`, with `/thread` in threads other than the main one; unique among live threads."""
        source = f"{self.member}#{self.incarnation}"
        thread = threading.current_thread()
        if thread is threading.main_thread():
            return source
        with self._lock:
            if thread not in self._names:
                self._names[thread] = self._unused(_NOT_IN_THREAD_NAME.sub("-", thread.name) or "thread")
            return f"{source}/{self._names[thread]}"

    def next_ticket(self) -> int:
        """A number that this recorder never gave before."""
        return next(self._tickets)

    @contextmanager
    def wait(
        self,
        ticket: int,
        needs: Sequence[Clause],  # noqa: ARG002
        resources: Sequence[Resource] = (),  # noqa: ARG002
        *,
        interruptible: bool = True,  # noqa: ARG002
        deadline_s: float | None = None,  # noqa: ARG002
        limit_s: float | None = None,  # noqa: ARG002
    ) -> Iterator[NullTicket]:
        """Announces nothing."""
        yield NullTicket(ticket)

    def hold(self, resource: Resource, *, units: int = 1, would_wait: bool = True) -> None:
        """Records nothing."""

    def release(self, resource_id: str, *, units: int = 1) -> None:
        """Records nothing."""

    def _unused(self, name: str) -> str:
        taken = {known for thread, known in self._names.items() if thread.is_alive()}
        numbered = (f"{name}~{n}" for n in itertools.count(2))
        return next(candidate for candidate in itertools.chain([name], numbered) if candidate not in taken)
