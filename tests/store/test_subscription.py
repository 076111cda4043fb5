from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from unknot.supervisor.store.redis_store import RedisStore

Eventually = Callable[..., None]


def test_what_is_published_after_opening_is_heard_with_its_channel(store: RedisStore) -> None:
    with store.listen(["ask", "cmd"]) as heard:
        heard.open()
        assert store.publish("cmd", b"\x00bytes") == 1
        assert store.publish("ask", b"two") == 1
        assert heard.get(timeout_s=5) == ("cmd", b"\x00bytes")
        assert heard.get(timeout_s=5) == ("ask", b"two")
        assert heard.get(timeout_s=0.01) is None


def test_another_run_is_not_heard(store: RedisStore, redis_url: str) -> None:
    with RedisStore.connect(redis_url, store.run + "-other") as other, store.listen(["cmd"]) as heard:
        heard.open()
        assert other.publish("cmd", b"x") == 0
        assert heard.get(timeout_s=0.01) is None


def test_messages_end_when_told_to_stop(store: RedisStore) -> None:
    stop = threading.Event()
    with store.listen(["cmd"]) as heard, ThreadPoolExecutor(1) as pool:
        heard.open()
        received = pool.submit(lambda: [m.payload for m in heard.messages(stop, slice_s=0.05)])
        store.publish("cmd", b"one")
        store.publish("cmd", b"two")
        threading.Event().wait(0.1)
        stop.set()
        assert received.result(10) == [b"one", b"two"]


def test_a_broken_line_is_counted_and_listened_to_again(store: RedisStore, eventually: Eventually) -> None:
    with store.listen(["cmd"]) as heard:
        heard.open()
        store.command("CLIENT", "KILL", "TYPE", "pubsub")
        assert heard.get(timeout_s=1) is None
        assert heard.reconnects == 1
        heard.open()
        eventually(lambda: store.publish("cmd", b"again"))
        assert heard.get(timeout_s=5) == ("cmd", b"again")


def test_closing_from_another_thread_ends_the_listening(store: RedisStore) -> None:
    with ThreadPoolExecutor(1) as pool:
        heard = store.listen(["cmd"])
        heard.open()
        ended = pool.submit(lambda: list(heard.messages(threading.Event(), slice_s=0.05)))
        heard.close()
        heard.close()
        assert ended.result(10) == []
