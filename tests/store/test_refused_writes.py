"""A Redis that takes no writes is one clear error, whatever the reason."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore


def test_a_write_that_redis_refuses_is_store_unavailable_with_its_reason(tmp_path: Path) -> None:
    with start_redis(tmp_path) as server, RedisStore.connect(server.url, "r") as store:
        with redis.Redis.from_url(server.url) as admin:
            admin.config_set("min-replicas-to-write", 1)
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            store.command("SET", store.key("x"), 1)
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            store.script("member_expect", [store.key()], ["agent/a", "agent"])
        with redis.Redis.from_url(server.url) as admin:
            admin.config_set("min-replicas-to-write", 0)
        store.command("SET", store.key("x"), 1)
