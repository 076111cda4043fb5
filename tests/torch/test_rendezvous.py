"""A rendezvous store in Redis keeps the contract that process groups rely on."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from unknot.integrations.torch.rendezvous import RendezvousStore
from unknot.supervisor.store.redis_store import RedisStore

pytestmark = pytest.mark.torch


def rendezvous(store: RedisStore, *prefix: str, timeout_s: float = 10.0) -> RendezvousStore:
    return RendezvousStore(
        store, prefix=prefix or ("gstore", "g", "1"), timeout=timedelta(seconds=timeout_s), keep=timedelta(minutes=5)
    )


def test_a_value_that_comes_later_is_waited_for(store: RedisStore) -> None:
    near, far = rendezvous(store), rendezvous(store)
    setter = threading.Timer(0.05, lambda: far.set("key", b"value"))
    setter.start()
    assert near.get("key") == b"value"
    setter.join()


def test_a_value_that_never_comes_is_named_in_the_error(store: RedisStore) -> None:
    with pytest.raises(dist.DistStoreError, match="missing-key"):
        rendezvous(store, timeout_s=0.05).wait(["missing-key"])


def test_counters_add_up_and_keys_can_be_checked_and_deleted(store: RedisStore) -> None:
    one = rendezvous(store)
    assert (one.add("n", 2), one.add("n", 3)) == (2, 5)
    assert one.check(["n"])
    assert one.delete_key("n")
    assert not one.check(["n"])


def test_compare_and_set_writes_only_what_was_expected(store: RedisStore) -> None:
    one = rendezvous(store)
    assert one.compare_set("k", "", "a") == b"a"
    assert one.compare_set("k", "", "b") == b"a"
    assert one.compare_set("k", "a", "c") == b"c"
    assert one.compare_set("k", "a", "d") == b"c"


def test_generations_do_not_see_each_other_and_each_expires(store: RedisStore) -> None:
    old, new = rendezvous(store, "gstore", "g", "1"), rendezvous(store, "gstore", "g", "2")
    old.set("k", b"1")
    old.add("n", 1)
    assert not new.check(["k"])
    assert 0 < store.command("TTL", store.key("gstore", "g", "1")) <= 300


def test_a_value_set_once_expires_too(store: RedisStore) -> None:
    rendezvous(store).compare_set("k", "", "a")
    assert 0 < store.command("TTL", store.key("gstore", "g", "1")) <= 300
