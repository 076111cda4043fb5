"""`supervisor record`: a live run into a trace file."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.command_status import ask
from unknot.supervisor.cli.connect import Target, connect, no_such_run
from unknot.supervisor.cli.ended import left_by
from unknot.supervisor.cli.in_time import answered
from unknot.supervisor.cli.output import note
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.store.redis_store import RedisStore
from unknot.supervisor.tape import Tape

# A turn waits for news before it ends.
_TURN_S = 1.0


def record(path: Path, wanted: Wanted, *, for_s: float | None) -> int:
    """Record until the run ends, `for_s` seconds have passed, or SIGINT or SIGTERM. Raises ConfigError, StoreUnavailable."""
    target, store = ask(wanted, lambda target: (target, _opened(target, limit_s=wanted.limit_s)))
    with store, _made(path) as file, _stopped_by_signal() as stop:
        tape = Tape(store, file.write)
        until = time.monotonic() + for_s if for_s is not None else float("inf")
        in_time = functools.partial(answered, limit_s=wanted.limit_s + _TURN_S, where=store.where)
        try:
            in_time(tape.start)
            while in_time(tape.turn) and not stop.is_set() and time.monotonic() < until:
                file.flush()
        except StoreUnavailable:
            if left_by(target) is None:
                raise
    if tape.bad_records:
        note(f"warning: incomplete: {tape.bad_records} records could not be read")
    note(f"{tape.events} events of run {target.run} are in {path}")
    return exit_codes.INCOMPLETE if tape.bad_records else exit_codes.OK


def _opened(target: Target, *, limit_s: float) -> RedisStore:
    store = connect(target, limit_s=limit_s)
    if store.command("HGET", store.key("run"), "state") is None:
        store.close()
        raise no_such_run(target, limit_s=limit_s)
    return store


@contextlib.contextmanager
def _made(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("xb") as file:
            yield file
    except FileExistsError as error:
        raise ConfigError(what=f"{path} exists", todo="give another name, or remove it") from error
    except OSError as error:
        raise ConfigError(what=f"{path} cannot be written: {error.strerror}", todo="give another place") from error


@contextlib.contextmanager
def _stopped_by_signal() -> Iterator[threading.Event]:
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
