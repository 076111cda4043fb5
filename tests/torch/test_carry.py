"""A state that outlives the process group it was made on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from unknot.integrations.torch import carry

pytestmark = pytest.mark.torch


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[DeviceMesh]:
    """A mesh of this one process."""
    dist.init_process_group("gloo", store=FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    group = dist.group.WORLD
    assert group is not None
    yield DeviceMesh.from_group(group, "cpu")
    dist.destroy_process_group()


def test_a_detached_state_holds_no_dtensor_and_shares_no_memory(mesh: DeviceMesh) -> None:
    whole = torch.arange(8.0)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    detached = carry.detach({"a": [sharded, torch.ones(2)], "lr": 0.1})
    sharded.to_local().zero_()
    assert isinstance(detached["a"][0], carry.Shard)
    assert detached["a"][0].local.tolist() == whole.tolist()
    assert detached["lr"] == 0.1


def test_an_attached_state_has_the_layout_of_before_and_can_be_attached_again(mesh: DeviceMesh) -> None:
    sharded = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(0)])
    detached = carry.detach({"w": sharded})
    first = carry.attach(detached, mesh)["w"]
    assert isinstance(first, DTensor)
    first.to_local().zero_()
    second = carry.attach(detached, mesh)["w"]
    assert (second.shape, second.placements) == (sharded.shape, sharded.placements)
    assert second.full_tensor().tolist() == sharded.full_tensor().tolist()
