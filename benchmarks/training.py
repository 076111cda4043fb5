"""What the benchmarks train: the sharded policy of examples/agent_training on the same judged episodes at every step."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLE = Path(__file__).parents[1] / "examples" / "agent_training"


class Training(NamedTuple):
    """One rank's model and optimizer, and one update of them on its part of 16 judged episodes."""

    policy: Any
    optimizer: Any
    step: Callable[[], object]


def training_of(mesh: Any, *, rank: int, size: int) -> Training:
    """What rank `rank` of `size` trains over `mesh`; collective."""
    sys.path.insert(0, str(EXAMPLE))
    torch: Any = importlib.import_module("torch")
    shard: Any = importlib.import_module("torch.distributed.fsdp")
    policies: Any = importlib.import_module("policy")
    grpo: Any = importlib.import_module("grpo")
    torch.set_num_threads(1)
    policy = policies.Policy()
    for part in (*policy.blocks, policy):
        shard.fully_shard(part, mesh=mesh, reshard_after_forward=False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    batch = grpo.collate(judged_episodes(torch, policies)[rank::size])
    return Training(policy, optimizer, lambda: grpo.update(policy, optimizer, batch))


def judged_episodes(torch: Any, policies: Any) -> list[Any]:
    rollout: Any = importlib.import_module("rollout")
    treasure: Any = importlib.import_module("treasure")
    judging: Any = importlib.import_module("judging")
    policy, chance, world = policies.Policy(seed=5), torch.Generator().manual_seed(5), treasure.Treasure()
    return [
        judging.judge(rollout.play(world, lambda tokens: policy.act(tokens, chance), seed=seed))
        for seed in range(4)
        for _ in range(4)
    ]


def state_of(training: Training) -> dict[str, Any]:
    """Model and optimizer as DCP saves them."""
    states: Any = importlib.import_module("torch.distributed.checkpoint.state_dict")
    model, optim = states.get_state_dict(training.policy, training.optimizer)
    return {"model": model, "optim": optim}


def load_into(training: Training, state: dict[str, Any]) -> None:
    """Go on from `state`."""
    states: Any = importlib.import_module("torch.distributed.checkpoint.state_dict")
    states.set_state_dict(
        training.policy, training.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )
