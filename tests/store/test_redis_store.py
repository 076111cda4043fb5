from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from unknot.recovery.answers import ask
from unknot.recovery.errors import RunClosed, StoreUnavailable
from unknot.recovery.lock import DistributedLock
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import members, new_boot, register
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

QUICK = StoreLimits(connect_s=1.0, answer_s=0.2, retry_s=0.5)
Join = Callable[..., NullRecorder]


class Proxy:
    """A loopback line to Redis on which answers can be lost: Redis gets the question, the asker an ended line."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.lose: Callable[[bytes], bool] = lambda question: False
        self.lost: list[bytes] = []
        self._lines: list[socket.socket] = []
        self._pumps: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                asker, _ = self._server.accept()
                redis_side = socket.create_connection(self._target)
                self._lines += [asker, redis_side]
                losing = threading.Event()
                for pump in (self._questions, self._answers):
                    thread = threading.Thread(target=pump, args=(asker, redis_side, losing), daemon=True)
                    self._pumps.append(thread)
                    thread.start()

    def _questions(self, asker: socket.socket, redis_side: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while question := asker.recv(1 << 20):
                if self.lose(question):
                    losing.set()
                redis_side.sendall(question)
            redis_side.shutdown(socket.SHUT_RDWR)

    def _answers(self, asker: socket.socket, redis_side: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while answer := redis_side.recv(1 << 20):
                if losing.is_set():
                    self.lost.append(answer)
                    break
                asker.sendall(answer)
            asker.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(5)
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
        for pump in self._pumps:
            pump.join(5)


class LoseOnce:
    """Loses the answer to the first question that holds `word`."""

    def __init__(self, word: bytes) -> None:
        self._word = word
        self._done = False

    def __call__(self, question: bytes) -> bool:
        if self._done or self._word not in question:
            return False
        self._done = True
        return True


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    host, _, port = redis_url.rpartition("@")[2].partition("/")[0].partition(":")
    made = Proxy(host, int(port))
    yield made
    made.close()


@pytest.fixture
def lossy(redis_url: str, proxy: Proxy, store: RedisStore) -> Iterator[RedisStore]:
    """A store of the same run as `store`, through the proxy."""
    credentials = redis_url.rpartition("@")[0]
    with RedisStore.connect(f"{credentials}@127.0.0.1:{proxy.port}/0", store.run) as through:
        yield through


def test_every_key_of_a_run_is_under_one_prefix_with_a_hash_tag(store: RedisStore) -> None:
    assert store.key() == f"unknot:{{{store.run}}}:"
    assert store.key("lock", "weights") == f"unknot:{{{store.run}}}:lock:weights"


def test_the_store_shows_where_it_is_but_no_password(store: RedisStore, redis_url: str) -> None:
    assert repr(store) == f"<RedisStore run {store.run} at {redis_url.rpartition('@')[2]}>"


def test_scripts_run_on_a_server_that_does_not_know_them_yet(store: RedisStore) -> None:
    store.command("SCRIPT", "FLUSH")
    assert store.script("standing", [store.key()], []) == []
    store.command("SCRIPT", "FLUSH")
    assert store.script("standing", [store.key()], ["agent/a#1|1"]) == [0]


def test_a_store_crosses_process_borders(store: RedisStore) -> None:
    with pickle.loads(pickle.dumps(store)) as copy:
        assert (copy.run, copy.where, copy.limits) == (store.run, store.where, store.limits)
        assert copy.command("PING")


def test_the_time_is_redis_time(store: RedisStore) -> None:
    before, now, after = store.time(), store.time(), store.time()
    assert 1.5e9 < before <= now <= after


def test_a_blocking_pop_waits_on_its_own_line_and_ends_in_time(store: RedisStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        popped = pool.submit(store.blocking_pop, store.key("wake", "x"), timeout_s=10)
        assert store.command("PING")
        store.command("RPUSH", store.key("wake", "x"), "granted")
        assert popped.result(10) == b"granted"
    began = time.monotonic()
    assert store.blocking_pop(store.key("wake", "x"), timeout_s=0.05) is None
    assert time.monotonic() - began < 2
    assert store.blocking_pop(store.key("wake", "x"), timeout_s=0) is None


def test_a_long_pop_is_made_of_slices(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unknot.supervisor.store.redis_store.POP_SLICE_S", 0.05)
    assert store.blocking_pop(store.key("wake", "x"), timeout_s=0.2) is None


def test_many_threads_share_one_store(store: RedisStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store.command("INCR", store.key("n")), range(200)))
    assert store.command("GET", store.key("n")) == b"200"


def test_a_closed_store_connects_again_when_it_is_used(store: RedisStore) -> None:
    store.close()
    store.close()
    assert store.command("PING")


def test_an_error_of_a_script_is_not_retried(store: RedisStore) -> None:
    with pytest.raises(redis.ResponseError, match="no item id"):
        ask(store, "mbox_ack", "agent/a", 1, "nonsense")


def test_redis_gone_is_one_clear_error_after_the_limit(redis_url: str, proxy: Proxy) -> None:
    credentials = redis_url.rpartition("@")[0]
    with RedisStore.connect(f"{credentials}@127.0.0.1:{proxy.port}/0", "gone", limits=QUICK) as store:
        proxy.close()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"no answer within 0\.5 s") as caught:
            store.command("PING")
        assert 0.4 < time.monotonic() - began < 5
        assert credentials.rpartition(":")[2] not in str(caught.value)


def test_redis_that_is_slow_for_a_moment_is_waited_for(redis_url: str, store: RedisStore) -> None:
    limits = StoreLimits(answer_s=0.1, retry_s=10)
    with RedisStore.connect(redis_url, store.run, limits=limits) as patient:
        store.command("CLIENT", "PAUSE", 300, "ALL")
        assert patient.command("PING")


def test_a_registration_whose_answer_was_lost_is_one_registration(lossy: RedisStore, proxy: Proxy) -> None:
    proxy.lose = LoseOnce(b"agent/a")
    made = register(lossy, "agent/a", role="agent", pid=1, host="here", boot=new_boot())
    assert len(proxy.lost) == 1
    assert made.incarnation == members(lossy)[0].incarnation == 1


def test_a_lock_whose_grant_was_lost_is_granted_once(lossy: RedisStore, proxy: Proxy, join: Join) -> None:
    lock = DistributedLock("x", lossy, join("agent/a"))
    lossy.script("standing", [lossy.key()], [])
    proxy.lose = LoseOnce(b"wait")
    assert lock.acquire() == 1
    proxy.lose = LoseOnce(b"agent/a")
    lock.release()
    assert len(proxy.lost) == 2
    assert (lock.statistics().holder, lock.statistics().token) == (None, 1)


def test_an_item_whose_send_or_receive_was_lost_is_there_once(lossy: RedisStore, proxy: Proxy, join: Join) -> None:
    mailbox = Mailbox("raw", lossy, join("agent/a")).declare()
    proxy.lose = LoseOnce(b"wait")
    assert mailbox.send("value") == 1
    proxy.lose = LoseOnce(b"wait")
    item = mailbox.receive()
    proxy.lose = LoseOnce(b"raw/1")
    mailbox.ack(item)
    assert len(proxy.lost) == 3
    seen = mailbox.statistics()
    assert (seen.sent, seen.taken, seen.acked, seen.queued) == (1, 1, 1, 0)


def test_a_wake_up_that_was_lost_on_the_line_does_not_lose_the_grant(
    lossy: RedisStore, proxy: Proxy, store: RedisStore, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unknot.recovery.waiting.SLICE_S", 0.2)
    holder = DistributedLock("x", store, join("agent/holder"))
    lock = DistributedLock("x", lossy, join("agent/a"))
    holder.acquire()
    proxy.lose = LoseOnce(b"BLPOP")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire)
        while not holder.statistics().waiters:
            pass
        holder.release()
        assert waiting.result(20) == 2
    assert len(proxy.lost) == 1


def test_a_child_after_a_fork_asks_on_lines_of_its_own_while_the_parent_blocks(store: RedisStore) -> None:
    key = store.key("wake", "fork")
    mine = store.command("CLIENT", "ID")
    child = os.fork()
    if child == 0:
        other = store.command("CLIENT", "ID")
        store.command("RPUSH", key, "from the child")
        os._exit(0 if other != mine else 3)
    assert store.blocking_pop(key, timeout_s=10) == b"from the child"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.command("CLIENT", "ID") == mine


def test_an_ended_store_refuses_at_once_and_frees_a_thread_that_stands_in_it(
    redis_url: str, store: RedisStore, eventually: Callable[..., None]
) -> None:
    ended = RedisStore.connect(redis_url, store.run)
    ended.command("PING")
    with ThreadPoolExecutor(1) as pool:
        standing = pool.submit(ended.blocking_pop, ended.key("wake", "ended"), timeout_s=600)
        eventually(lambda: b"cmd=blpop" in store.command("CLIENT", "LIST"))
        ended.end()
        with pytest.raises(RunClosed, match=f"run {store.run} is closed: use what belongs to it before close"):
            standing.result(20)
    with pytest.raises(RunClosed):
        ended.command("PING")
    ended.end()
    assert store.command("PING"), "another store of the run is another's"
