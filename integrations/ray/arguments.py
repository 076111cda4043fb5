"""Arguments of a member's constructor, put where Ray finds them whenever it starts the member again.

Ray keeps what it restarts an actor with: values that it has inlined. An argument that is large, or holds a handle of an actor, counts as
one in the object store, whose references go with the statement that made them; the restart then fails, and Ray says so in red for
every such actor. So a handle goes as bytes that refer to nothing (the run keeps all of its members anyway), and a large value is put
into the object store once, under a reference that the driver keeps.

References of the user's own, alone or inside of another value, are left to Ray: they are worth what their owner makes them worth.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import ray
import structlog
from ray import cloudpickle

# Ray inlines up to 100 KiB (`max_direct_call_object_size`), its own wrapping included.
_INLINED = 64 * 1024
_log = structlog.get_logger("unknot.run")


class _ReferenceMetError(Exception):
    """The value holds a reference to an object."""


class _Pickler(cloudpickle.CloudPickler):
    def persistent_id(self, value: Any) -> None:
        if isinstance(value, ray.ObjectRef):
            raise _ReferenceMetError


class _Kept:
    """In its place the other side finds what `make` makes of `body`."""

    def __init__(self, make: Callable[[bytes], Any], body: bytes) -> None:
        self._make = make
        self._body = body

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return self._make, (self._body,)


def kept_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments, as Ray can start an actor with again and again. Whatever does not pickle is Ray's to refuse."""
    return tuple(map(_kept, args)), {name: _kept(value) for name, value in kwargs.items()}


def _kept(value: Any) -> Any:
    out = io.BytesIO()
    try:
        _Pickler(out, protocol=5).dump(value)  # type: ignore[no-untyped-call]
    except Exception:  # noqa: BLE001 - a value of the user's: Ray takes or refuses it as it would without us
        return value
    body = out.getvalue()
    if len(body) <= _INLINED:
        return _Kept(cloudpickle.loads, body)
    try:
        # Pickled by itself, the reference is kept by Ray for as long as the driver lives.
        return _Kept(_fetched, cloudpickle.dumps(ray.put(body)))  # type: ignore[no-untyped-call]
    except Exception as error:  # noqa: BLE001 - a full object store, or a Ray that lets no references out: it starts, and may not start again
        _log.warning("member.argument.not_kept", what=type(value).__name__, bytes=len(body), error=str(error))
        return value


def _fetched(body: bytes) -> Any:
    return cloudpickle.loads(ray.get(cloudpickle.loads(body)))
