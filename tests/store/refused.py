"""What a connection that is refused says: one line, without the password, and nothing of the library's own errors behind it."""

from __future__ import annotations

import pytest

from unknot.graph.errors import UnknotError
from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

PASSWORD = "hunter2-secret"
SHORT = StoreLimits(connect_s=1.0, answer_s=1.0, retry_s=1.0)


def refusal(url: str, *, writes: bool = True, limits: StoreLimits = SHORT) -> UnknotError:
    """The error of a connection to `url`."""
    with pytest.raises((StoreUnavailable, ConfigError)) as caught:
        RedisStore.connect(url, "ppo-17", limits=limits, writes=writes).close()
    said = str(caught.value)
    assert "\n" not in said
    assert PASSWORD not in said
    assert caught.value.__cause__ is None
    return caught.value
