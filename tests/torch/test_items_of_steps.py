"""When a rank gives up, keeps and gets back what the steps of its group have received."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from unknot.integrations.torch.steps import Ledger
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.supervisor.store.redis_store import RedisStore

pytestmark = pytest.mark.torch


def counts(box: Mailbox) -> tuple[int, int]:
    """How many are queued, how many acknowledged."""
    now = box.statistics()
    return now.queued, now.acked


def test_what_steps_before_had_stays_with_them_when_a_rank_goes_back_in_memory_until_a_manifest_has_acknowledged_it(
    store: RedisStore, join: Callable[[str], NullRecorder]
) -> None:
    rank, driver = join("trainer/0"), join("driver/main")
    by_step, by_manifest = Mailbox("by-step", store, rank), Mailbox("by-manifest", store, rank)
    for box, ack in ((by_step, "step"), (by_manifest, "manifest")):
        sender = Mailbox(box.name, store, driver).declare(9, ack=ack)  # type: ignore[arg-type]
        for value in range(3):
            sender.send(value)
    ledger = Ledger(SimpleNamespace(store=store, recorder=rank, member="trainer/0"), object())  # type: ignore[arg-type]
    ledger._saver = SimpleNamespace()  # type: ignore[assignment]
    for ledger.seq in range(3):
        for box in (by_step, by_manifest):
            ledger.received(box, box.receive(5))
    ledger._settle(before=2)
    assert (counts(by_step), counts(by_manifest)) == ((0, 2), (0, 0))
    ledger._requeue(since=2)
    assert (counts(by_step), counts(by_manifest)) == ((1, 2), (1, 0))
    assert by_manifest.receive(5).value == 2, "the one of the repeated step alone"
    by_manifest.ack(*(item for _, _, item in ledger._received))
    ledger._forget_consumed()
    assert ledger._received == []
