from __future__ import annotations

from collections.abc import Callable

import pytest

from unknot.recovery.errors import FencedError, LeaseLost, RunBusy
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import members
from unknot.recovery.run import RunClaim, run_state
from unknot.recovery.weights import Weights
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]


def test_a_run_with_a_live_driver_is_busy(store: RedisStore) -> None:
    assert run_state(store) == ""
    claim = RunClaim.take(store, driver="11@node-1")
    assert (claim.how, run_state(store)) == ("new", "live")
    with pytest.raises(RunBusy, match=f"run {store.run} is driven by 11@node-1, which is alive"):
        RunClaim.take(store)
    claim.renew()
    assert repr(claim) == f"<RunClaim {store.run} by 11@node-1>"


def test_the_run_of_a_driver_whose_lease_passed_goes_on_as_it_stands(
    store: RedisStore, join: Join, eventually: Callable[..., None]
) -> None:
    first = RunClaim.take(store, lease_s=0.05)
    mailbox = Mailbox("raw", store, join("agent/a")).declare()
    mailbox.send("kept")
    second: list[RunClaim] = []

    def taken() -> bool:
        try:
            second.append(RunClaim.take(store, driver="22@node-2"))
        except RunBusy:
            return False
        return True

    eventually(taken)
    assert second[0].how == "continued"
    with pytest.raises(LeaseLost, match="is now with 22@node-2"):
        first.renew()
    assert first.close() == 0
    assert run_state(store) == "live", "the replaced driver cannot close it"
    assert mailbox.receive().value == "kept"


def test_a_closed_run_begins_anew_but_its_numbers_keep_growing(store: RedisStore, join: Join) -> None:
    first = RunClaim.take(store)
    old = join("agent/a")
    mailbox = Mailbox("raw", store, old).declare(capacity=3)
    mailbox.send("old")
    mailbox.send("older")
    mailbox.receive()
    lock = DistributedLock("x", store, old)
    lock.acquire()
    Weights("policy", store, old).publish([1], 1)
    first.closing()
    assert run_state(store) == "closing"
    first.close()
    assert run_state(store) == "closed"
    with pytest.raises(LeaseLost):
        first.renew()

    assert RunClaim.take(store).how == "new"
    assert members(store) == []
    with pytest.raises(FencedError):
        lock.release()
    new = join("agent/a")
    assert new.incarnation == 3
    fresh = Mailbox("raw", store, new).declare(capacity=5)
    assert fresh.statistics().queued == 0
    with pytest.raises(TimeoutError):
        Weights("policy", store, new).latest(timeout_s=0)
    assert DistributedLock("x", store, new).acquire() == 2


def test_closing_twice_is_once(store: RedisStore) -> None:
    claim = RunClaim.take(store)
    assert (claim.closing(), claim.closing(), claim.close(), claim.close()) == (0, 0, 0, 0)
