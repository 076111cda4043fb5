from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from unknot.recovery.answers import ask
from unknot.recovery.errors import FencedError, LeaseLost, RunBusy
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.process_identity import is_gone, this_process
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import members
from unknot.recovery.run import RunClaim, run_state
from unknot.recovery.weights import Weights
from unknot.supervisor.incidents import Incident
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.leader import Lease
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
_CLAIM = """
import sys, time
from unknot.recovery.run import RunClaim
from unknot.supervisor.incidents import Incident
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.leader import Lease
from unknot.supervisor.store.redis_store import RedisStore
with RedisStore.connect(*sys.argv[1:]) as store:
    RunClaim.take(store, lease_s=600)
    print("taken", flush=True)
    time.sleep(600)
"""


@contextmanager
def claimed_elsewhere(redis_url: str, run: str) -> Iterator[subprocess.Popen[str]]:
    """A process that drives the run for ten minutes, unless it is killed."""
    with subprocess.Popen([sys.executable, "-c", _CLAIM, redis_url, run], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "taken\n"
            yield process
        finally:
            process.kill()


def an_incident(run: str) -> Incident:
    return Incident(
        id="inc_old", run=run, cause="slow", kind="running", state="open", headline="SLOW", lines=(), culprits=(), victims=(),
        core=(), stuck=(), tickets={}, opened_at=1.0,
    )  # fmt: skip


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
    assert members(store) == [], "who is started again registers anew"
    with pytest.raises(FencedError):
        mailbox.receive()
    assert Mailbox("raw", store, join("agent/a")).receive().value == "kept"


def test_a_driver_that_died_leaves_what_its_members_had_in_hand_and_committed(store: RedisStore, join: Join) -> None:
    RunClaim.take(store, lease_s=600)
    old = join("agent/a")
    mailbox = Mailbox("raw", store, old).declare()
    mailbox.send("taken")
    mailbox.receive()
    DistributedLock("x", store, old).acquire()
    store.command("HSET", store.key("step", "agent/a"), "committed", 7)
    store.command("HDEL", store.key("run"), "lease_until")

    assert RunClaim.take(store).how == "continued"
    new = join("agent/a")
    assert Mailbox("raw", store, new).receive().value == "taken"
    assert DistributedLock("x", store, new).acquire() == 2
    assert store.command("HGET", store.key("step", "agent/a"), "committed") == b"7"


@pytest.mark.parametrize("reaped", [True, False])
def test_the_run_of_a_driver_that_was_killed_on_this_host_is_taken_at_once(
    redis_url: str, store: RedisStore, eventually: Callable[..., None], *, reaped: bool
) -> None:
    with claimed_elsewhere(redis_url, store.run) as other:
        with pytest.raises(RunBusy, match=f"is driven by {other.pid}@"):
            RunClaim.take(store)
        other.kill()
        if reaped:
            other.wait()
        else:
            eventually(lambda: psutil.Process(other.pid).status() == psutil.STATUS_ZOMBIE)
        claim = RunClaim.take(store)
        assert claim.how == "continued"
        claim.renew()


def test_a_driver_that_is_stopped_or_lives_elsewhere_keeps_its_run_for_its_lease(redis_url: str, store: RedisStore) -> None:
    with claimed_elsewhere(redis_url, store.run) as other:
        other.send_signal(signal.SIGSTOP)
        with pytest.raises(RunBusy):
            RunClaim.take(store)
        identity = store.command("HGET", store.key("run"), "driver_process").decode()
        other.kill()
        other.wait()
        for elsewhere in ("another-boot " + identity.partition(" ")[2], "", f"{identity.split()[0]} 1 {identity.split(' ', 2)[2]}"):
            store.command("HSET", store.key("run"), "driver_process", elsewhere)
            with pytest.raises(RunBusy, match="on another host its claim ends some seconds after it"):
                RunClaim.take(store)
        store.command("HSET", store.key("run"), "driver_process", identity)
        assert RunClaim.take(store).how == "continued"


def test_of_two_who_see_a_driver_dead_one_gets_its_run(redis_url: str, store: RedisStore) -> None:
    with claimed_elsewhere(redis_url, store.run) as other:
        dead = store.command("HGET", store.key("run"), "driver").decode()
        other.kill()
        other.wait()
        assert RunClaim.take(store).how == "continued"
        late = ask(store, "claim_run", "late", "33@node-3", 5.0, "take", "", dead)
        assert (late.word, late.text()) == ("busy", f"{os.getpid()}@{socket.gethostname()}")


def test_a_number_that_another_process_has_now_is_another_process() -> None:
    identity = this_process()
    assert not is_gone(identity)
    assert is_gone(identity.rpartition(" ")[0] + " 1"), "started at another time"
    assert not is_gone("")


def test_a_new_start_has_no_incidents_and_no_monitor_of_the_one_before_writes_any(store: RedisStore) -> None:
    first = RunClaim.take(store)
    lease = Lease(store)
    token = lease.acquire()
    assert token is not None
    old = an_incident(store.run)
    IncidentStore(store).put(old, token)
    first.close()

    RunClaim.take(store)
    assert IncidentStore(store).list() == ()
    with pytest.raises(LeaseLost):
        IncidentStore(store).put(old, token)
    assert lease.acquire() == token + 2, "a monitor that stays builds anew"
    (found,) = IncidentStore(store).earlier()
    assert (found.id, found.headline, found.state) == (old.id, old.headline, "resolved")
    assert found.resolution == "it was open when that start of the run ended"


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
