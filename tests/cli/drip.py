"""Servers that answer without end: one byte now and then, so that no time limit of a socket ever passes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

_PAUSE_S = 0.02


class Dripping:
    """Listens on a port of its own. Passes everything on to the server at `url` until `drip()`; without one it drips at once."""

    def __init__(self, url: str | None = None) -> None:
        self._target = urlsplit(url) if url is not None else None
        self._stop = threading.Event()
        self._dripping = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def url(self) -> str:
        password = self._target.password if self._target is not None else None
        user = f":{password}@" if password else ""
        return f"redis://{user}127.0.0.1:{self.port}/0"

    def drip(self) -> None:
        """From now on nothing is passed on."""
        self._dripping.set()

    def close(self) -> None:
        self._stop.set()
        for line in [self._listening, *self._lines]:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
        for thread in self._threads:
            thread.join()

    def _start(self, work: object, *args: socket.socket) -> None:
        thread = threading.Thread(target=work, args=args)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                line, _ = self._listening.accept()
            except OSError:
                return
            self._lines.append(line)
            if self._target is None:
                self._start(self._drips, line)
                continue
            behind = socket.create_connection((self._target.hostname or "", self._target.port or 0))
            self._lines.append(behind)
            self._start(self._passes, line, behind)
            self._start(self._passes, behind, line)

    def _passes(self, origin: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := origin.recv(65536):
                if self._dripping.is_set():
                    self._drips(origin)
                    return
                target.sendall(data)

    def _drips(self, line: socket.socket) -> None:
        """The beginning of a line that never ends."""
        with contextlib.suppress(OSError):
            line.sendall(b"+")
            while not self._stop.wait(_PAUSE_S):
                line.sendall(b"a")


@contextlib.contextmanager
def dripping(url: str | None = None) -> Iterator[Dripping]:
    server = Dripping(url)
    try:
        yield server
    finally:
        server.close()
