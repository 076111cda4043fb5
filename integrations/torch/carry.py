"""Carrying a trainer's state from one generation of its group to the next, in the memory of a process that lives.

The state of a sharded model is made of DTensors, which are bound to the mesh of a process group that is about to be destroyed.
`detach` copies each one's local shard and remembers how it was laid out; `attach` builds DTensors on the new group's mesh.
The same rank keeps the same shard, so no communication is needed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map


class Shard(msgspec.Struct, frozen=True):
    """The local part of a DTensor, with what is needed to rebuild it."""

    local: torch.Tensor
    placements: tuple[Any, ...]
    shape: tuple[int, ...]
    stride: tuple[int, ...]


def detach(state: Any) -> Any:
    """A copy of `state` that depends on no process group."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, DTensor):
            local = leaf.to_local().detach().clone()
            return Shard(local, tuple(leaf.placements), tuple(leaf.shape), tuple(leaf.stride()))
        return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(one, state)


def attach(state: Any, mesh: DeviceMesh) -> Any:
    """The state as DTensors over `mesh`; tensors are copied, so one detached state can be attached again."""

    def one(leaf: Any) -> Any:
        if isinstance(leaf, Shard):
            return DTensor.from_local(
                leaf.local.clone(), mesh, leaf.placements, run_check=False, shape=torch.Size(leaf.shape), stride=leaf.stride
            )
        return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(one, state, is_leaf=lambda leaf: isinstance(leaf, Shard))
