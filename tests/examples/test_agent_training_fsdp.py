"""The update of the agent training example on two FSDP2 ranks over Gloo, against the same update in one process.

The ranks are this file, run as a script: real processes, each with its own half of the episodes.
"""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_training"
sys.path.insert(0, str(EXAMPLE))

treasure: Any = importlib.import_module("treasure")
rollout: Any = importlib.import_module("rollout")
judging: Any = importlib.import_module("judging")
policies: Any = importlib.import_module("policy")
grpo: Any = importlib.import_module("grpo")

RANKS, UPDATES, LIMIT_S = 2, 3, 120
SHARES = {"equal": (8, 8), "unequal": (4, 12)}


def judged_episodes() -> list[Any]:
    """Four groups of four, as an untrained policy plays them."""
    policy, chance = policies.Policy(seed=5), torch.Generator().manual_seed(5)
    world = treasure.Treasure()
    return [
        judging.judge(rollout.play(world, lambda tokens: policy.act(tokens, chance), seed=seed))
        for seed in range(4)
        for _ in range(4)
    ]


def train(policy: Any, judged: list[Any], episodes: float) -> dict[str, Any]:
    """A few updates; what they did, and the weights at the end."""
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.3)
    batch = grpo.collate(judged)
    stats = [grpo.update(policy, optimizer, batch, episodes=episodes) for _ in range(UPDATES)]
    return {
        "losses": [one.loss for one in stats],
        "norms": [one.grad_norm for one in stats],
        "weights": policies.full_weights(policy),
    }


def run_rank(rank: int, folder: Path) -> None:
    """One rank: trains a new sharded policy for each way to share the episodes, and leaves the outcomes in a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    judged = judged_episodes()
    done = {name: train_share(rank, sizes, judged) for name, sizes in SHARES.items()}
    (folder / f"rank{rank}").write_bytes(pickle.dumps(done))
    dist.destroy_process_group()


def train_share(rank: int, sizes: tuple[int, ...], judged: list[Any]) -> dict[str, Any]:
    policy = policies.Policy(seed=9)
    for block in policy.blocks:
        fully_shard(block)
    fully_shard(policy)
    begin = sum(sizes[:rank])
    return train(policy, judged[begin : begin + sizes[rank]], sum(sizes) / RANKS)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank of one real group came to."""
    folder = tmp_path_factory.mktemp("ranks")
    ranks = [subprocess.Popen([sys.executable, __file__, str(rank), str(folder)]) for rank in range(RANKS)]
    try:
        assert [rank.wait(timeout=LIMIT_S) for rank in ranks] == [0] * RANKS
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in range(RANKS)]


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("shares", SHARES)
def test_two_sharded_ranks_do_the_update_of_one_process(shares: str, ranks: list[dict[str, Any]]) -> None:
    alone = train(policies.Policy(seed=9), judged_episodes(), sum(SHARES[shares]))
    first, second = (rank[shares] for rank in ranks)
    mean_losses = [(a + b) / 2 for a, b in zip(first["losses"], second["losses"], strict=True)]
    assert mean_losses == pytest.approx(alone["losses"], abs=1e-5)
    assert first["norms"] == pytest.approx(alone["norms"], rel=1e-4)
    for name, expected in alone["weights"].items():
        assert first["weights"][name] == pytest.approx(expected, abs=1e-5), name
        assert (first["weights"][name] == second["weights"][name]).all(), name


if __name__ == "__main__":
    run_rank(int(sys.argv[1]), Path(sys.argv[2]))
