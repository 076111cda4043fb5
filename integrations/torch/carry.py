"""Carrying a trainer's state from one generation of its group to the next, in the memory of a process that lives.

The state of a sharded model is made of DTensors, which are bound to the mesh of a process group that is about to be destroyed.
`detach` copies each one's local shard and remembers how it was laid out; `attach` builds DTensors on the new group's mesh.
The same rank keeps the same shard, so no communication is needed.

Whatever else may change in place is copied too (an array, a list in an object), and a model or optimizer that stands in the state as
itself is replaced by its own state dict, as a checkpoint does: a copy that shares anything with the trainer goes on training with it.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import torch
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from unknot.recovery.checkpoint_errors import StateNotSaveable


class Shard(msgspec.Struct, frozen=True):
    """The local part of a DTensor, with what is needed to rebuild it."""

    local: torch.Tensor
    placements: tuple[Any, ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def detach(state: Any) -> Any:
    """A copy of `state` that depends on no process group and shares nothing with it. StateNotSaveable: a value cannot be copied."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, DTensor):
            local = leaf.to_local().detach().clone()
            return Shard(local, tuple(leaf.placements), tuple(leaf.shape), tuple(leaf.stride()))
        return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else _copied(leaf)

    return tree_map(one, _resolved(state))


def _resolved(state: Any) -> Any:
    if not isinstance(state, dict):
        return state
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state.items()}


def _copied(leaf: Any) -> Any:
    try:
        return copy.deepcopy(leaf)
    except Exception as error:
        raise StateNotSaveable(
            where=f"a {type(leaf).__name__} in the state", why=f"it cannot be copied ({error})", todo="leave it out of state_dict()"
        ) from error


def attach(state: Any, mesh: DeviceMesh) -> Any:
    """The state as DTensors over `mesh`; all of it is copied, so one detached state can be attached again."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Shard):
            return DTensor.from_local(
                leaf.local.clone(), mesh, leaf.placements, run_check=False, shape=torch.Size(leaf.shape), stride=leaf.stride
            )
        return leaf.clone() if isinstance(leaf, torch.Tensor) else _copied(leaf)

    return tree_map(one, state, is_leaf=lambda leaf: isinstance(leaf, Shard))


def give_back(trainer: Any, state: Any) -> None:
    """Let the trainer take an attached state. What stands in its state as itself takes its part first, as when a checkpoint is loaded."""
    if isinstance(state, dict):
        for key, value in trainer.state_dict().items():
            if isinstance(value, Stateful) and key in state:
                value.load_state_dict(state[key])
                state[key] = value
    trainer.load_state_dict(state)
