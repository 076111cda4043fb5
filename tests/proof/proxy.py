"""A network between one process and Redis that can be told to misbehave.

A TCP proxy that reads the requests of its clients one by one (RESP arrays). What it does with a *record* that a client
publishes is decided by a rule; everything else passes, unless replies to blocking pops are held back or all is cut.

| word | what becomes of a record |
|---|---|
| pass | goes on |
| late | the client is told that it was written; it is kept until `release` |
| lose | the client is told that it was written; it is gone |
| twice | goes on, and once more |
| stall | the client is told nothing; it is kept until `release` |
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple
from urllib.parse import urlsplit

import msgspec
import redis

from unknot.graph.events import Beat, Record
from unknot.supervisor.store.scripts import load_script

Rule = Callable[[Record], str]
_WRITTEN = b"*1\r\n$2\r\nok\r\n"
_BODY = 8


class Kept(NamedTuple):
    """A record that is held back."""

    record: Record
    request: tuple[bytes, ...]


def passing(_: Record) -> str:
    return "pass"


def rounds(record: Record) -> list[int | None]:
    """The rounds that a record answers."""
    return [event.round for event in record.events if isinstance(event, Beat)]


class Proxy:
    """Listens on a port of its own; `url` is Redis' address through it. `done` counts what became of records."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 0)
        self._upstream = redis.Redis.from_url(url)
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.url = url.replace(f":{parts.port}", f":{port}")
        self.rule: Rule = passing
        self.done: Counter[str] = Counter()
        self.kept: list[Kept] = []
        self.cuts = 0
        self.held_pops = 0
        self._pops_pass = threading.Event()
        self._pops_pass.set()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    # --- misbehaviour ---

    def release(self, first: int | None = None, *, backwards: bool = False) -> list[Record]:
        """Let the first so many of the kept records go (all), in their order or backwards."""
        going, self.kept = self.kept[:first], self.kept[len(self.kept[:first]) :]
        for one in reversed(going) if backwards else going:
            self._forward(one.request)
        return [one.record for one in going]

    def hold_pops(self) -> None:
        """Replies to blocking pops do not arrive from now on."""
        self._pops_pass.clear()

    def let_pops(self) -> None:
        self._pops_pass.set()

    def cut(self) -> None:
        """Break all connections that are open; new ones can be made."""
        self.cuts += 1
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed = True
        self._pops_pass.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(10)
        self.cut()
        for thread in self._threads:
            thread.join(10)
        self._listening.close()
        self._upstream.close()

    # --- network ---

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            link = _Link(self, client, server)
            self._open |= {client, server}
            for pump in (link.requests, link.replies):
                self._threads.append(threading.Thread(target=pump, daemon=True))
                self._threads[-1].start()

    def decide(self, request: tuple[bytes, ...]) -> str:
        """What to do with one request."""
        record = _record(request)
        if record is None:
            return "pass"
        word = self.rule(record)
        self.done[word] += 1
        if word in ("late", "stall"):
            self.kept.append(Kept(record, request))
        if word == "twice":
            self._forward(request)
        return word

    def wait_for_pops(self) -> None:
        if not self._pops_pass.is_set():
            self.held_pops += 1
            self._pops_pass.wait()

    def forget(self, *sockets: socket.socket) -> None:
        for one in sockets:
            self._open.discard(one)
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _forward(self, request: tuple[bytes, ...]) -> None:
        self._upstream.eval(load_script("publish").text, int(request[2]), *request[3:])  # type: ignore[no-untyped-call,arg-type,unused-ignore]


class _Link:
    """One client's connection and its counterpart."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._pops = False

    def requests(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._client.makefile("rb") as stream:
            for request in _read(stream):
                self._pops = request[0].upper() == b"BLPOP"
                word = self._proxy.decide(request)
                if word in ("pass", "twice"):
                    self._server.sendall(_encode(request))
                elif word in ("late", "lose"):
                    self._client.sendall(_WRITTEN)
        self._proxy.forget(self._client, self._server)

    def replies(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._server.recv(65536):
                if self._pops:
                    self._proxy.wait_for_pops()
                self._client.sendall(data)
        self._proxy.forget(self._client, self._server)


def _read(stream: BinaryIO) -> Iterator[tuple[bytes, ...]]:
    while head := stream.readline():
        parts = []
        for _ in range(int(head[1:])):
            length = int(stream.readline()[1:])
            parts.append(stream.read(length + 2)[:-2])
        yield tuple(parts)


def _encode(request: tuple[bytes, ...]) -> bytes:
    return b"*%d\r\n" % len(request) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in request)


def _record(request: tuple[bytes, ...]) -> Record | None:
    script = load_script("publish")
    if request[0].upper() not in (b"EVALSHA", b"EVAL") or request[1].decode() not in (script.sha, script.text):
        return None
    return msgspec.msgpack.decode(request[_BODY], type=Record)
