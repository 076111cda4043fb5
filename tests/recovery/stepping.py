"""What the tests of steps share: the users' loop, and looks into Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from unknot.recovery.errors import StoreUnavailable
from unknot.recovery.interrupts import interrupt
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.step import Step
from unknot.recovery.steps import MemberSteps
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
Eventually = Callable[..., None]
A, J = "agent/a", "judge/j"


def steps_of(store: RedisStore, recorder: NullRecorder, **more: Any) -> MemberSteps:
    return MemberSteps(store, recorder, pause=lambda _: None, **more)


def each(steps: Iterable[Step], body: Callable[[Step], object]) -> None:
    """The loop that users write."""
    for step in steps:
        with step:
            body(step)


def held(store: RedisStore, member: str) -> int:
    return int(store.command("HLEN", store.key("unacked", member)))


def contents(store: RedisStore, recorder: NullRecorder, name: str) -> list[Any]:
    """What is in a mailbox, taken out."""
    box = Mailbox(name, store, recorder)
    found = [box.receive(0) for _ in range(box.statistics().queued)]
    box.ack(*found)
    return [item.value for item in found]


def interrupt_waiting(store: RedisStore, queue: str, name: str, eventually: Eventually) -> None:
    """End the wait that stands, or will stand, in a queue."""

    def queued() -> list[bytes]:
        found: list[bytes] = store.command("LRANGE", store.key(queue, name), 0, -1)
        return found

    eventually(queued)
    participant, _, ticket = queued()[0].decode().rpartition("|")
    assert interrupt(store, participant, int(ticket), incident="i1")


def away(store: RedisStore, monkeypatch: pytest.MonkeyPatch, *, carries_out: bool = False) -> None:
    """Redis does not answer scripts any more; perhaps it still carries them out."""
    real = store.script

    def script(*args: Any) -> Any:
        if carries_out:
            real(*args)
        raise StoreUnavailable(where="here", why="no answer", todo="wait")

    monkeypatch.setattr(store, "script", script)
