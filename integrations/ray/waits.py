"""`ray.get` and `ray.wait` as waits: for the participant that executes the call.

The first `publish_after` of a call is Ray's own call, since no wait so short is ever published: the usual call costs one comparison
more. After that the wait is announced and cut into slices of `ray.wait(fetch_local=False)`, so that it can be interrupted; the
value is fetched once, at the end.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from unknot.graph.events import Atom, Clause
from unknot.supervisor.process import Process
from unknot.supervisor.recorder.slots import WaitHandle

_SLICE_S = 0.1
_FIRST_ASK_AGAIN_S = 0.2
_ASK_AGAIN_S = 5.0


class ActorNames:
    """Which member an actor id belongs to, and as which incarnation.

    An actor may be called before it has registered, and may be restarted while a call stands: so the store is asked again for
    as long as somebody waits, an unknown actor soon at first and then ever less often, a known one every few seconds. A store
    that cannot be asked is no reason for a call of Ray to fail: what was known stays, and `failures` counts it.
    """

    def __init__(self, process: Process, clock: Callable[[], float] = time.monotonic) -> None:
        self._process = process
        self._clock = clock
        self._known: dict[str, str] = {}
        self._asked_at = -math.inf
        self._pauses: dict[str, float] = {}
        self.failures = 0

    def participant(self, actor_id: str) -> str | None:
        """The main participant of the member that runs as this actor, None if no member does."""
        pause_s = _ASK_AGAIN_S if actor_id in self._known else self._pauses.get(actor_id, 0.0)
        if self._clock() - self._asked_at >= pause_s:
            self._ask()
            if actor_id not in self._known:
                self._pauses[actor_id] = min(max(2 * pause_s, _FIRST_ASK_AGAIN_S), _ASK_AGAIN_S)
        return self._known.get(actor_id)

    def _ask(self) -> None:
        try:
            self._known = {m.actor_id: m.source for m in self._process.members_quickly() if m.actor_id}
        except Exception:  # noqa: BLE001 - observing must not fail a call of Ray
            self.failures += 1
        self._asked_at = self._clock()


def wrap(process: Process) -> Callable[[], None]:
    """Replace `ray.get` and `ray.wait`; returns what restores them."""
    raw_get, raw_wait = ray.get, ray.wait
    waits = RayWaits(process, raw_get=raw_get, raw_wait=raw_wait)
    ray.get, ray.wait = waits.get, waits.wait

    def undo() -> None:
        ray.get, ray.wait = raw_get, raw_wait

    return undo


class RayWaits:
    """The wrapped calls, over the raw ones."""

    def __init__(self, process: Process, *, raw_get: Callable[..., Any], raw_wait: Callable[..., Any]) -> None:
        self._process = process
        self._raw_get = raw_get
        self._raw_wait = raw_wait
        self._names = ActorNames(process)

    def get(self, object_refs: Any, *, timeout: float | None = None, **options: Any) -> Any:
        """As `ray.get`."""
        refs = _refs_of(object_refs)
        first_s = self._process.config.publish_after_s
        if not refs or (timeout is not None and timeout <= first_s):
            return self._raw_get(object_refs, timeout=timeout, **options)
        started = time.monotonic()
        try:
            return self._raw_get(object_refs, timeout=first_s, **options)
        except ray.exceptions.GetTimeoutError:
            self._announced(refs, len(refs), end=None if timeout is None else started + timeout, label="ray.get")
        left = None if timeout is None else max(timeout - (time.monotonic() - started), 0.001)
        return self._raw_get(object_refs, timeout=left, **options)

    def wait(
        self,
        ray_waitables: Any,
        *,
        num_returns: int = 1,
        timeout: float | None = None,
        fetch_local: bool = True,
    ) -> Any:
        """As `ray.wait`: k of n."""
        refs = _refs_of(ray_waitables)
        first_s = self._process.config.publish_after_s
        call = functools.partial(self._raw_wait, ray_waitables, num_returns=num_returns, fetch_local=fetch_local)
        if not refs or (timeout is not None and timeout <= first_s):
            return call(timeout=timeout)
        started = time.monotonic()
        ready, rest = call(timeout=first_s)
        if len(ready) >= num_returns:
            return ready, rest
        self._announced(refs, num_returns, end=None if timeout is None else started + timeout, label="ray.wait")
        return call(timeout=None if timeout is None else max(timeout - (time.monotonic() - started), 0.0))

    def _announced(self, refs: Sequence[Any], k: int, *, end: float | None, label: str) -> None:
        table = self._process.table
        assert table is not None
        refs = list(dict.fromkeys(refs))
        k = min(k, len(refs))
        calls = [_Call(ref) for ref in refs]
        started = time.monotonic()
        over = False
        while not over:
            need = self._need(calls, k)
            deadline_s = None if end is None else max(end - time.monotonic(), 0.0)
            waited_s = time.monotonic() - started
            ticket = table.next_ticket()
            with table.wait(ticket, [need], deadline_s=deadline_s, label=label, waited_s=waited_s) as waiting:
                over = self._stands(calls, need, end=end, waiting=waiting)

    def _stands(self, calls: list[_Call], need: Clause, *, end: float | None, waiting: WaitHandle) -> bool:
        """Until the wait is over (True), or it is known better who is waited for (False)."""
        refs = [call.ref for call in calls]
        while len(self._ready(refs, need.k, _SLICE_S)) < need.k:
            error = waiting.poll_interrupt()
            if error is not None:
                raise error
            if end is not None and time.monotonic() >= end:
                return True
            if self._need(calls, need.k) != need:
                return False
        return True

    def _need(self, calls: list[_Call], k: int) -> Clause:
        return Clause(k=k, of=tuple(self._atom(call) for call in calls))

    def _ready(self, refs: list[Any], k: int, timeout_s: float) -> list[Any]:
        ready: list[Any] = self._raw_wait(refs, num_returns=k, timeout=timeout_s, fetch_local=False)[0]
        return ready

    def _atom(self, call: _Call) -> Atom:
        participant = None if call.actor_id is None else self._names.participant(call.actor_id)
        return Atom(p=participant) if participant is not None else Atom(external=call.task)


class _Call:
    """What a reference waits for: an actor, or a task."""

    __slots__ = ("actor_id", "ref", "task")

    def __init__(self, ref: Any) -> None:
        actor = ref.task_id().actor_id()
        self.ref = ref
        self.actor_id: str | None = None if actor.is_nil() else actor.hex()
        self.task = f"ray task {ref.hex()[:12]}"


def _refs_of(value: Any) -> list[Any]:
    if isinstance(value, ray.ObjectRef):
        return [value]
    if isinstance(value, list) and all(isinstance(ref, ray.ObjectRef) for ref in value):
        return value
    return []
