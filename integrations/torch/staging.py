"""A copy of a trainer's state that the next step cannot change, checked to be one that a checkpoint can hold.

Copied here, before `start` returns, and not by torch's stager: on CPU that may hand on the live tensors
(pytorch issue 144657: a checkpoint held later values), and its copy would come on top of the one in which a rank finds
out whether its state can be saved at all.
"""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import torch
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor
from torch.utils._pytree import keystr, tree_map_with_path

from unknot.integrations.torch.digest import check_state
from unknot.integrations.torch.rng import RngState, capture_rng
from unknot.recovery.checkpoint_errors import StateNotSaveable
from unknot.recovery.errors import ConfigError

# DCP writes a plain value as one blob that rank 0 holds in memory; large content belongs into tensors.
VALUE_LIMIT = 256 * 1024 * 1024


class Staged(msgspec.Struct, frozen=True):
    """A rank's state and random generators at one moment."""

    state: dict[str, Any]
    rng: RngState


def check_trainer(trainer: Any) -> None:
    """Raise ConfigError unless a trainer can be saved and restored."""
    missing = [name for name in ("state_dict", "load_state_dict") if not callable(getattr(trainer, name, None))]
    if missing:
        raise ConfigError(
            what=f"{type(trainer).__name__} has no {' and no '.join(missing)}, so there is nothing to save or to go on from",
            todo="define state_dict() and load_state_dict(state) with everything that a step changes, or save no checkpoints",
        )


def resolved(state: Any) -> dict[str, Any]:
    """The state with modules and optimizers in it replaced by their own state dicts. StateNotSaveable: it is no dict."""
    if not isinstance(state, dict):
        raise StateNotSaveable(
            where="what state_dict() returned", why=f"it is a {type(state).__name__}", todo="return a dict with texts as keys"
        )
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state.items()}


def stage(state: Any) -> Staged:
    """Copy the state and capture the generators of the calling thread's process.

    Raises:
        StateNotSaveable: a value does not pickle, has no canonical bytes (see digest.py), is too large, or is a tensor without
            data; the error names it.
    """
    staged = Staged(tree_map_with_path(_copied, resolved(state)), capture_rng())
    check_state(staged.state)
    return staged


def _copied(path: Any, leaf: Any) -> Any:
    if isinstance(leaf, DTensor):
        return DTensor.from_local(
            leaf.to_local().detach().clone(), leaf.device_mesh, leaf.placements, run_check=False, shape=leaf.shape,
            stride=leaf.stride(),
        )  # fmt: skip
    if isinstance(leaf, torch.Tensor):
        if leaf.is_meta:
            raise StateNotSaveable(where=keystr(path), why="it is a tensor without data", todo="materialize the model first")
        return leaf.detach().clone()
    return _copied_value(keystr(path), leaf)


def _copied_value(where: str, leaf: Any) -> Any:
    try:
        body = pickle.dumps(leaf, protocol=5)
        copy = pickle.loads(body)
    except Exception as error:
        raise StateNotSaveable(
            where=where, why=f"a {type(leaf).__name__} does not pickle ({error})", todo="leave it out of state_dict()"
        ) from error
    if len(body) > VALUE_LIMIT:
        raise StateNotSaveable(
            where=where, why=f"it has {len(body)} bytes, the limit is {VALUE_LIMIT}", todo="keep it in tensors, or in a file"
        )
    return copy
