"""Messages of a run's channels, for one thread that listens.

Publish/subscribe forgets what nobody heard: after a broken connection messages may be missing. `reconnects` counts
how often that can have happened, so that a listener can ask for what it may have missed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import redis

_PAUSE_S = 0.2
_CONFIRM_LIMIT_S = 5.0


class Message(NamedTuple):
    """One message: the channel without the run's prefix, and what was published."""

    channel: str
    payload: bytes


class Subscription:
    """A subscription to some channels; for one thread, closable from any. A context manager.

    Attributes: `reconnects`, how often the connection was lost.
    """

    def __init__(self, client: redis.Redis, prefix: str, channels: tuple[str, ...]) -> None:
        self._client = client
        self._prefix = prefix
        self._channels = channels
        self._closed = threading.Event()
        self._pubsub: redis.client.PubSub | None = None
        self.reconnects = 0

    def get(self, *, timeout_s: float) -> Message | None:
        """The next message, None when none came within `timeout_s` seconds, the connection broke, or it is closed."""
        import redis

        try:
            raw = self._connected().get_message(ignore_subscribe_messages=True, timeout=timeout_s)
        except (redis.RedisError, OSError, ValueError):
            if not self._closed.is_set():
                self._drop()
                self._closed.wait(_PAUSE_S)
            return None
        if raw is None:
            return None
        return Message(raw["channel"].decode().removeprefix(self._prefix), raw["data"])

    def messages(self, stop: threading.Event, *, slice_s: float = 0.5) -> Iterator[Message]:
        """Yield messages until `stop` is set, which is noticed within `slice_s` seconds, or the subscription is closed."""
        while not stop.is_set() and not self._closed.is_set():
            message = self.get(timeout_s=slice_s)
            if message is not None:
                yield message

    def open(self) -> None:
        """Subscribe now, and return when Redis has confirmed it: what is published from then on is heard.

        Raises:
            redis.ConnectionError: Redis cannot be reached; `get` would have tried again instead.
        """
        self._connected()

    def close(self) -> None:
        """Leave the channels and give the connection back. Idempotent."""
        self._closed.set()
        if self._pubsub is not None:
            self._pubsub.close()
        self._client.connection_pool.disconnect()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self) -> redis.client.PubSub:
        if self._pubsub is None:
            pubsub: redis.client.PubSub = self._client.pubsub()  # type: ignore[no-untyped-call]
            pubsub.subscribe(*(self._prefix + channel for channel in self._channels))
            for _ in self._channels:
                pubsub.get_message(timeout=_CONFIRM_LIMIT_S)
            self._pubsub = pubsub
        return self._pubsub

    def _drop(self) -> None:
        self.reconnects += 1
        if self._pubsub is not None:
            self._pubsub.close()
            self._pubsub = None
