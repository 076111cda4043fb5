"""`unknot.instrument(...)`: wraps what the process already uses; reversible and idempotent."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from unknot.recovery.errors import ConfigError
from unknot.recovery.values import shown, suggestion
from unknot.supervisor.process import current

_UNDO: dict[str, Callable[[], None]] = {}


class Undo:
    """Takes back what one `instrument` call wrapped; also a context manager."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def __call__(self) -> None:
        """Restore the originals. What was made meanwhile keeps working."""
        for name in self.names:
            undo = _UNDO.pop(name, None)
            if undo is not None:
                undo()

    def __enter__(self) -> Undo:
        return self

    def __exit__(self, *_: object) -> None:
        self()


def instrument(*what: str) -> Undo:
    """Wrap `"threading"` (threading.Lock) and `"ray"` (ray.get, ray.wait) in this process.

    Locks made from now on are seen; those that exist already are not. With observation off nothing is wrapped.

    Raises:
        ConfigError: an unknown name.
        NotAMember: the process belongs to no run.
    """
    for name in what:
        if name not in _WRAPPERS:
            near = suggestion(name, _WRAPPERS) if isinstance(name, str) else ""
            raise ConfigError(what=f"unknown instrumentation {shown(name)}{near}", todo=f"use one of {', '.join(sorted(_WRAPPERS))}")
    if current("unknot.instrument").table is None:
        return Undo(())
    fresh = tuple(name for name in what if name not in _UNDO)
    for name in fresh:
        _UNDO[name] = _WRAPPERS[name]()
    return Undo(fresh)


def _wrap_threading() -> Callable[[], None]:
    from unknot.integrations.threads import TracedLock

    table = current("unknot.instrument").table
    assert table is not None
    raw: Any = threading.Lock

    def lock() -> Any:
        """A lock that the wait graph sees; the standard library's own locks stay raw."""
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return raw() if caller in _RAW_FOR else TracedLock(table)

    threading.Lock = lock  # type: ignore[assignment]

    def undo() -> None:
        threading.Lock = raw

    return undo


_RAW_FOR = frozenset({"threading", "logging", "queue", "concurrent.futures._base", "concurrent.futures.thread"})


def _wrap_ray() -> Callable[[], None]:
    from unknot.integrations.ray.waits import wrap

    return wrap(current("unknot.instrument"))


_WRAPPERS: dict[str, Callable[[], Callable[[], None]]] = {"threading": _wrap_threading, "ray": _wrap_ray}
