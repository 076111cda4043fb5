"""Which threads of this process issue on a collective group.

A rank arrives in an operation when any thread of it issues that operation. So the rank is absent for good only if all threads that issue
on the group are stuck: told of one thread alone, a rank whose second thread is about to issue would be called the culprit.

The flight recorder names the thread of each operation, but a dump costs milliseconds. It is needed only to *exclude* a thread. So a
process without other threads of the user's asks nothing; in one that has some, each counts as an issuer until a dump, taken when the
process stands somewhere, has told that it never was. Dumps are spread so that they use one part in a hundred of the time at most. The
history is a promise about the past only: a thread that has not issued on the group as far back as the recorder reaches, and is about
to, is believed not to. Threads of torch's own issue only while one of Python's is in the backward pass.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

# A dump that took d seconds is followed by a pause of so many d.
_PAUSE = 100.0


class Issuers:
    """Of one group in one process: thread identifiers that issue on it.

    dump: the flight recorder's entries; clock: monotonic seconds. `first`: the thread that formed the group, up to operation `seq`.
    """

    def __init__(
        self, recorder_id: int, first: int, *, dump: Callable[[], list[dict[str, Any]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.dumps = 0
        self._recorder_id = recorder_id
        self._idents = {first: None}
        self._dump = dump
        self._clock = clock
        self._known_to = 0
        self._next_at = float("-inf")

    def look(self, enqueued: int, others: Iterable[int], *, may_dump: bool) -> list[int]:
        """Those who may issue now, the known ones first.

        Args:
            enqueued: number of the last operation issued.
            others: identifiers of all live threads that run the user's code.
            may_dump: whether it is worth a dump to exclude one of them.
        """
        unknown = [ident for ident in others if ident not in self._idents]
        if unknown and self._known_to < enqueued and may_dump and self._clock() >= self._next_at:
            self._learn(enqueued)
        if self._known_to >= enqueued:
            return list(self._idents)
        return [*self._idents, *unknown]

    def _learn(self, enqueued: int) -> None:
        began = self._clock()
        entries = self._dump()
        self.dumps += 1
        self._next_at = self._clock() + _PAUSE * (self._clock() - began)
        self._idents |= {int(e["thread_id"]): None for e in entries if e["pg_id"] == self._recorder_id and not e["is_p2p"]}
        self._known_to = enqueued
