"""The processes of members on this host, watched by descriptor: a death is known at once, and a number that is used again is no life.

Ray tells the caller of a running call that the actor is gone after a second and more. A pidfd (Linux 5.3, `pidfd_open(2)`) becomes
readable in the moment the process ends.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterable

from unknot.recovery.registration import MemberInfo


class Deaths:
    """Descriptors of the processes of members that run here. Not thread-safe: for one thread."""

    def __init__(self) -> None:
        self._host = socket.gethostname()
        self._by_member: dict[str, tuple[int, int]] = {}
        self._poll = select.poll()

    def knows(self, member: str) -> bool:
        """Whether a process of that member is watched."""
        return member in self._by_member

    def watch(self, members: Iterable[MemberInfo]) -> list[tuple[str, int]]:
        """Watch the present processes of these; (member, incarnation) of those that are gone already."""
        gone = []
        for info in members:
            if info.state == "alive" and info.host == self._host and not self.knows(info.member):
                try:
                    descriptor = os.pidfd_open(info.pid)
                except ProcessLookupError:
                    gone.append((info.member, info.incarnation))
                    continue
                self._by_member[info.member] = (info.incarnation, descriptor)
                self._poll.register(descriptor, select.POLLIN)
        return gone

    def look(self, timeout_s: float = 0.0) -> list[tuple[str, int]]:
        """(member, incarnation) of the processes that have ended; waits for one up to `timeout_s` seconds."""
        ended = {descriptor for descriptor, _ in self._poll.poll(timeout_s * 1000)}
        found = [(member, inc) for member, (inc, descriptor) in self._by_member.items() if descriptor in ended]
        for member, _ in found:
            self.forget(member)
        return found

    def forget(self, member: str) -> None:
        """Watch this member's process no longer."""
        _, descriptor = self._by_member.pop(member)
        self._poll.unregister(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        """Give all descriptors back."""
        for member in list(self._by_member):
            self.forget(member)
