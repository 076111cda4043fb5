"""Real processes, killed with SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
Spawn = Callable[..., "subprocess.Popen[str]"]

_PREAMBLE = """
import sys
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.store.redis_store import RedisStore
url, run, member = sys.argv[1:4]
store = RedisStore.connect(url, run)
me = register(store, member, role="agent", pid=1, host="here", boot=new_boot())
recorder = NullRecorder(member, me.incarnation)
def say(what):
    print(what, flush=True)
"""


@pytest.fixture
def spawn(store: RedisStore, redis_url: str) -> Iterator[Spawn]:
    """`spawn(member, code)` runs code in a process of its own that has registered as `member`."""
    started: list[subprocess.Popen[str]] = []

    def start(member: str, code: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _PREAMBLE + textwrap.dedent(code), redis_url, store.run, member]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL


HOLDS = """
DistributedLock("x", store, recorder).acquire()
say("held")
sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_is_freed_and_its_waiter_woken_when_it_registers_again(
    store: RedisStore, join: Join, spawn: Spawn, eventually: Callable[..., None]
) -> None:
    victim = spawn("agent/a", HOLDS)
    assert heard(victim) == "held"
    lock = DistributedLock("x", store, join("agent/b"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire)
        eventually(lambda: lock.statistics().waiters)
        kill(victim)
        assert lock.statistics().holder == "agent/a#1", "it stays held, visibly"
        again = spawn("agent/a", "say(me.locks_freed)")
        assert heard(again) == "1"
        assert waiting.result(10) == 2


def test_a_killed_waiter_is_passed_over_once_it_has_registered_again(
    store: RedisStore, join: Join, spawn: Spawn, eventually: Callable[..., None]
) -> None:
    holder = DistributedLock("x", store, join("agent/holder"))
    holder.acquire()
    waiter = spawn("agent/a", 'DistributedLock("x", store, recorder).acquire()')
    eventually(lambda: holder.statistics().waiters == ("agent/a#1",))
    kill(waiter)
    again = spawn("agent/a", 'say(DistributedLock("x", store, recorder).acquire())')
    eventually(lambda: holder.statistics().waiters == ("agent/a#2",))
    holder.release()
    assert heard(again) == "2"


def test_what_a_killed_process_received_comes_back_in_order(store: RedisStore, join: Join, spawn: Spawn) -> None:
    mailbox = Mailbox("raw", store, join("agent/b")).declare()
    for value in range(5):
        mailbox.send(value)
    code = 'box = Mailbox("raw", store, recorder); [box.receive() for _ in range(3)]; say("took"); sys.stdin.read()'
    victim = spawn("judge/j", code)
    assert heard(victim) == "took"
    kill(victim)
    again = spawn("judge/j", 'box = Mailbox("raw", store, recorder); say([box.receive().value for _ in range(5)])')
    assert heard(again) == "[0, 1, 2, 3, 4]"


def test_a_stopped_process_that_was_replaced_ends_with_the_reason(
    store: RedisStore, spawn: Spawn, eventually: Callable[..., None]
) -> None:
    old = spawn("agent/a", HOLDS.replace("sys.stdin.read()", 'DistributedLock("x", store, recorder).acquire()'))
    assert heard(old) == "held"
    old.send_signal(signal.SIGSTOP)
    again = spawn("agent/a", 'say(DistributedLock("x", store, recorder).acquire())')
    assert heard(again) == "2"
    old.send_signal(signal.SIGCONT)
    assert old.wait(10) == 1


def test_a_forked_child_uses_connections_of_its_own(store: RedisStore, spawn: Spawn) -> None:
    parent = spawn(
        "agent/a",
        """
        import os
        mine = store.command("CLIENT", "ID")
        child = os.fork()
        if child == 0:
            os._exit(0 if store.command("CLIENT", "ID") != mine else 3)
        say(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        say(store.command("CLIENT", "ID") == mine)
        """,
    )
    assert heard(parent) == "0"
    assert heard(parent) == "True"
