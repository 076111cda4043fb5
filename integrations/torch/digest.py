"""One SHA-256 over a rank's state: what "the same weights" is proved with.

The digest covers every leaf of the state in a fixed order and says for each where it lies, what it is, and its bytes. So it is equal
exactly when the states are equal bit by bit, whatever machine, process or order of insertion they come from.

    digest = SHA-256 of the leaves, sorted by path, each as `record(path) record(kind) record(facts) record(content)`
             and then, where generators are given, `record("rng") record(bytes of the RngState)`
    record = length in 8 bytes, little-endian, and the bytes
    path   = a record for each key from the root: `s:text` or `i:number`

    leaf              kind      facts                                                   content
    DTensor           dtensor   dtype, shape of the local shard, global shape, placements  bytes of the local shard
    Tensor            tensor    dtype, shape                                            its bytes, row by row
    numpy array       array     dtype, shape                                            its bytes, row by row
    None, bool, int, float, str, bytes   its type                                       its text (a float in hex)
    empty dict or list           empty     dict or list                                 nothing

Bytes are in the machine's order, which is little-endian wherever torch runs. A list and a tuple of the same content are the same: a
checkpoint turns one into the other. Anything else has no canonical bytes (pickle depends on identity and order) and is
refused by name.

`recovery.outcome.combined_hash` is over ranks in order, so it tells which shard lies where; a state that was sharded otherwise has
another digest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from unknot.integrations.torch.carry import Shard
from unknot.integrations.torch.rng import RngState
from unknot.recovery.checkpoint_errors import StateNotSaveable

Path = tuple[str, ...]
_PLAIN = (bool, int, float, str, bytes, type(None))


def state_hash(state: Any, rng: RngState | None = None) -> str:
    """SHA-256 in hex of a rank's state, and of its random generators if given.

    Args:
        state: nested dicts and lists of tensors and plain values; also one that `carry.detach` made, with the same digest.
        rng: what `capture_rng` gave.

    Raises:
        StateNotSaveable: a leaf has no canonical bytes; the error names it.
    """
    digest = hashlib.sha256()
    for path, leaf in sorted(_leaves(state, ()), key=lambda found: found[0]):
        kind, facts, content = _described(path, leaf)
        for part in (_path_bytes(path), kind.encode(), facts.encode(), content):
            _add(digest, part)
    if rng is not None:
        _add(digest, b"rng")
        _add(digest, rng.to_bytes())
    return digest.hexdigest()


def leaf_hashes(state: Any) -> dict[str, str]:
    """Path (`optim.lr`) -> digest of each leaf that is no DTensor: what has to be the same on all ranks. Errors as state_hash."""
    return {shown_path(path): state_hash(leaf) for path, leaf in _leaves(state, ()) if not isinstance(leaf, DTensor | Shard)}


def check_state(state: Any) -> None:
    """Raise StateNotSaveable for the first leaf that has no canonical bytes; reads no tensor."""
    for path, leaf in _leaves(state, ()):
        if not isinstance(leaf, torch.Tensor | Shard):
            _described(path, leaf)


def shown_path(path: Path) -> str:
    """The path as people write it."""
    return ".".join(key[2:] for key in path) or "the state"


def _path_bytes(path: Path) -> bytes:
    keys = (key.encode("utf-8", "surrogatepass") for key in path)
    return b"".join(struct.pack("<Q", len(key)) + key for key in keys)


def _add(digest: Any, part: Any) -> None:
    view = memoryview(part)
    digest.update(struct.pack("<Q", view.nbytes))
    digest.update(view)


def _leaves(state: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(state, Mapping) and state:
        for key, value in state.items():
            yield from _leaves(value, (*path, _key(path, key)))
    elif isinstance(state, list | tuple) and state:
        for position, value in enumerate(state):
            yield from _leaves(value, (*path, f"i:{position}"))
    else:
        yield path, state


def _key(path: Path, key: object) -> str:
    if isinstance(key, str):
        return f"s:{key}"
    if isinstance(key, int):
        return f"i:{key}"
    raise StateNotSaveable(
        where=f"the key {key!r} in {shown_path(path)}", why=f"it is a {type(key).__name__}", todo="use texts or integers as keys"
    )


def _described(path: Path, leaf: Any) -> tuple[str, str, Any]:
    if isinstance(leaf, DTensor):
        return _sharded(leaf.to_local(), leaf.placements, leaf.shape)
    if isinstance(leaf, Shard):
        return _sharded(leaf.local, leaf.placements, leaf.shape)
    if isinstance(leaf, torch.Tensor):
        return "tensor", _facts(leaf), _bytes(leaf)
    if isinstance(leaf, _PLAIN):
        return type(leaf).__name__, "", _text(leaf)
    if isinstance(leaf, dict | list | tuple):
        return "empty", "dict" if isinstance(leaf, dict) else "list", b""
    if type(leaf).__module__.partition(".")[0] == "numpy" and hasattr(leaf, "tobytes") and leaf.dtype != object:
        return "array", f"{leaf.dtype.str} {tuple(leaf.shape)}", leaf.tobytes()
    raise StateNotSaveable(
        where=shown_path(path), why=f"a {type(leaf).__name__} has no canonical bytes",
        todo="keep tensors, numbers, texts, bytes, and dicts and lists of them in the state",
    )  # fmt: skip


def _sharded(local: torch.Tensor, placements: Iterable[Any], shape: Iterable[int]) -> tuple[str, str, Any]:
    laid_out = " ".join(repr(placement) for placement in placements)
    return "dtensor", f"{_facts(local)} of {tuple(shape)} by {laid_out}", _bytes(local)


def _facts(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"


def _bytes(tensor: torch.Tensor) -> Any:
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy() if flat.numel() else b""


def _text(leaf: Any) -> bytes:
    if isinstance(leaf, bytes):
        return leaf
    if isinstance(leaf, float):
        return leaf.hex().encode()
    return str(leaf).encode("utf-8", "surrogatepass")
