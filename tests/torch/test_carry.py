"""A state that outlives the process group it was made on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from unknot.integrations.torch import carry
from unknot.recovery.checkpoint_errors import StateNotSaveable

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


class Trainer:
    """Its state holds the model itself, as torch's own checkpoints allow, and an array that it changes in place."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(2, 1)
        self.seen = np.zeros(3)

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model, "seen": self.seen, "log": {"losses": {1.0}}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["model"] is self.model, "it has its part already, as when a checkpoint is loaded"
        self.seen = state["seen"]


def test_what_a_trainer_changes_in_place_afterwards_is_not_in_the_copy_and_goes_back(mesh: DeviceMesh) -> None:
    trainer = Trainer()
    before = [p.detach().clone() for p in trainer.model.parameters()]
    detached = carry.detach(trainer.state_dict())
    for _ in range(2):
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter.add_(1.0)
        trainer.seen += 5.0
        carry.give_back(trainer, carry.attach(detached, mesh))
        assert all(torch.equal(now, then) for now, then in zip(trainer.model.parameters(), before, strict=True))
        assert trainer.seen.tolist() == [0.0, 0.0, 0.0]


def test_a_value_that_cannot_be_copied_is_named() -> None:
    with pytest.raises(StateNotSaveable, match="a lock in the state cannot be saved: it cannot be copied"):
        carry.detach({"guard": threading.Lock()})
