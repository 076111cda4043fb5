"""The random generators of a rank, as one value and as bytes that say the same on every machine.

A step may draw from torch's generator of the CPU, Python's `random`, and numpy's global one. All three start from the operating system's
entropy, so a run that should come out the same again has to set them: `seed`. Generators that the user makes belong to the
trainer's own state. Not pickled: what is read back when a rank restores is data, not code.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import msgspec
import torch

_SCHEMA = "unknot.rng/1"


class NumpyRng(msgspec.Struct, frozen=True):
    """numpy's global generator: name of the algorithm, its words as little-endian bytes, and its position."""

    name: str
    words: bytes
    position: int
    has_gauss: int
    gauss: float


class RngState(msgspec.Struct, frozen=True, kw_only=True):
    """The three generators. `numpy` is None where numpy was not loaded."""

    torch_cpu: bytes
    python: tuple[int, tuple[int, ...], float | None]
    numpy: NumpyRng | None = None
    schema: str = _SCHEMA

    def to_bytes(self) -> bytes:
        """For a file; the same state gives the same bytes."""
        return msgspec.msgpack.encode(self)


def rng_from_bytes(body: bytes) -> RngState:
    """The state in a file. msgspec.DecodeError when it holds none."""
    return msgspec.msgpack.decode(body, type=RngState)


def capture_rng() -> RngState:
    """The generators of this process as they are."""
    return RngState(torch_cpu=torch.get_rng_state().numpy().tobytes(), python=random.getstate(), numpy=_numpy_state())


def restore_rng(state: RngState) -> None:
    """Set the generators of this process."""
    torch.set_rng_state(torch.frombuffer(bytearray(state.torch_cpu), dtype=torch.uint8))
    random.setstate(state.python)
    if state.numpy is not None:
        import numpy as np

        words = np.frombuffer(state.numpy.words, dtype="<u4").astype(np.uint32)
        held = state.numpy
        np.random.set_state((held.name, words, held.position, held.has_gauss, held.gauss))


def seed(number: int) -> None:
    """Set the generators of this process as a function of `number` (any integer of up to 63 bits)."""
    torch.manual_seed(number)
    random.seed(number)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed([number & 0xFFFFFFFF, number >> 32])


def _numpy_state() -> NumpyRng | None:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    name, words, position, has_gauss, gauss = numpy.random.get_state(legacy=True)
    return NumpyRng(str(name), words.astype("<u4").tobytes(), int(position), int(has_gauss), float(gauss))
