"""What the monitor can ask of a process, and the thread that listens for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

import msgspec


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A collection round: every source named answers with a beat."""

    round: int
    sources: tuple[str, ...]


class Command(msgspec.Struct, frozen=True, tag="command", kw_only=True):
    """One instruction to one process; `key` makes it idempotent, `token` is the leader's."""

    key: str
    token: int
    source: str
    do: Literal["interrupt", "break", "stacks", "restart"]
    incident: str
    participant: str = ""
    ticket: int = 0
    group: str = ""
    generation: int = 0
    reason: str = ""


class Broken(msgspec.Struct, frozen=True, tag="broken", kw_only=True):
    """A rank says that a generation of a group is over: the others need not wait until they notice.

    A hint that needs no leader: whoever hears it asks the store.
    """

    group: str
    generation: int
    reason: str


Message = Ask | Command | Broken
_REMEMBERED = 1000
_PAUSE_S = 0.2
_DECODER: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_ENCODER = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """As bytes for a channel."""
    return _ENCODER.encode(message)


class Payload(Protocol):
    """One message of a channel."""

    @property
    def payload(self) -> bytes:
        """What was published."""


class Channel(Protocol):
    """A subscription that survives reconnects."""

    def messages(self, stop: threading.Event) -> Iterator[Payload]:
        """Messages as they come, until `stop` is set or the subscription closed."""

    def close(self) -> None:
        """End `messages`."""


class Listener:
    """Carries out what the monitor asks of this process, each command once."""

    def __init__(
        self,
        channel: Channel,
        *,
        source: str,
        answer: Callable[[int], None],
        acknowledge: Callable[[str, str], None],
        on_error: Callable[[Exception], None] = lambda _error: None,
    ) -> None:
        self.errors = 0
        self._channel = channel
        self._source = source
        self._answer = answer
        self._acknowledge = acknowledge
        self._on_error = on_error
        self._handlers: dict[str, Callable[[Command], str]] = {}
        self._on_broken: list[Callable[[Broken], object]] = []
        self._done: dict[str, str] = {}
        self._highest_token = 0
        self._stop = threading.Event()

    def handle(self, do: str, handler: Callable[[Command], str]) -> None:
        """`handler` carries out commands of this kind and returns their outcome in a word."""
        self._handlers[do] = handler

    def on_broken(self, hear: Callable[[Broken], object]) -> None:
        """`hear` is told of every generation of any group that is over."""
        self._on_broken.append(hear)

    def start(self) -> None:
        """Listen on a daemon thread."""
        threading.Thread(target=self._loop, name="unknot-listener", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._channel.close()

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                for message in self._channel.messages(self._stop):
                    self._take_safely(message.payload)
            except Exception as error:  # noqa: BLE001 - a deaf process looks unresponsive: listen again; it is counted
                self._failed(error)
            self._stop.wait(_PAUSE_S)

    def _take_safely(self, payload: bytes) -> None:
        try:
            self.take(payload)
        except Exception as error:  # noqa: BLE001 - one bad message must not end the listener; it is counted
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.errors += 1
        self._on_error(error)

    def take(self, payload: bytes) -> None:
        """One message."""
        message = _DECODER.decode(payload)
        if isinstance(message, Ask):
            if self._source in message.sources:
                self._answer(message.round)
        elif isinstance(message, Broken):
            for hear in self._on_broken:
                hear(message)
        elif message.source == self._source:
            self._acknowledge(message.key, self._carry_out(message))

    def _carry_out(self, command: Command) -> str:
        if command.key in self._done:
            return self._done[command.key]
        if command.token < self._highest_token:
            return "stale-leader"
        self._highest_token = command.token
        outcome = self._handled(command)
        self._done[command.key] = outcome
        while len(self._done) > _REMEMBERED:
            del self._done[next(iter(self._done))]
        return outcome

    def _handled(self, command: Command) -> str:
        handler = self._handlers.get(command.do)
        if handler is None:
            return "unsupported"
        try:
            return handler(command)
        except Exception as error:  # noqa: BLE001 - the monitor is told, and goes on to the next remedy
            self._failed(error)
            return f"failed: {type(error).__name__}: {error}"[:500]
