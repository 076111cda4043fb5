"""Mailboxes that most tests of steps use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]


@pytest.fixture
def boxes(store: RedisStore, join: Join) -> dict[str, Mailbox]:
    driver = join("driver/main")
    return {name: Mailbox(name, store, driver).declare(4) for name in ("raw", "scored")}
