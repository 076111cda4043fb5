"""The policy and its update in the agent training example, in one process."""

from __future__ import annotations

import importlib
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "agent_training"))

treasure: Any = importlib.import_module("treasure")
rollout: Any = importlib.import_module("rollout")
judging: Any = importlib.import_module("judging")
policies: Any = importlib.import_module("policy")
grpo: Any = importlib.import_module("grpo")

STEPS, GROUPS, GROUP = 36, 3, 4


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def episodes(policy: Any, seeds: list[int], generator: torch.Generator) -> list[Any]:
    """One group of judged episodes for each seed."""
    world = treasure.Treasure()
    return [
        judging.judge(rollout.play(world, lambda tokens: policy.act(tokens, generator), seed=seed))
        for seed in seeds
        for _ in range(GROUP)
    ]


def a_batch(seed: int = 0) -> Any:
    chance = torch.Generator().manual_seed(seed)
    return grpo.collate(episodes(policies.Policy(seed=seed), [seed, seed + 1], chance))


def train(seed: int, steps: int) -> tuple[Any, list[Any]]:
    policy, chance = policies.Policy(seed=seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    history = []
    for step in range(steps):
        mazes = [GROUPS * step + i for i in range(GROUPS)]
        history.append(grpo.update(policy, optimizer, grpo.collate(episodes(policy, mazes, chance))))
    return policy, history


def scored(reward: float, seed: int) -> Any:
    nothing = rollout.Trajectory(seed, "agent/a", 0, (), (), (), ())
    return judging.Scored(nothing, reward)


def test_the_policy_is_small() -> None:
    assert sum(p.numel() for p in policies.Policy().parameters()) <= 200_000


def test_the_first_weights_and_draws_are_decided_by_their_seeds() -> None:
    tokens = treasure.Treasure(3).reset()
    first, second = (
        [policies.Policy(seed=1).act(tokens, torch.Generator().manual_seed(s)) for s in range(20)]
        for _ in range(2)
    )
    assert first == second
    assert len({action for action, _ in first}) > 1


def test_making_a_policy_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    policies.Policy(seed=1)
    assert torch.equal(torch.rand(1), expected)


def test_an_untrained_policy_chooses_nearly_evenly() -> None:
    _, logprob = policies.Policy().act(treasure.Treasure(3).reset())
    assert logprob == pytest.approx(torch.tensor(1 / treasure.ACTIONS).log().item(), abs=0.3)


def test_training_sees_the_log_probabilities_that_the_agent_saw() -> None:
    policy = policies.Policy()
    batch = a_batch()
    now, _ = policy.logprobs(batch.tokens, batch.actions)
    torch.testing.assert_close(now, batch.old_logprobs, atol=1e-5, rtol=1e-5)


def test_padding_changes_nothing() -> None:
    policy = policies.Policy()
    batch = a_batch()
    more = torch.nn.functional.pad
    longer = grpo.Batch(
        more(batch.tokens, (0, 2), value=treasure.PAD),
        more(batch.actions, (0, 2), value=policies.NO_ACTION),
        more(batch.old_logprobs, (0, 2)),
        batch.advantages,
        batch.rewards,
    )
    torch.testing.assert_close(grpo.loss_of(policy, longer)[0], grpo.loss_of(policy, batch)[0])


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 3)), min_size=1, max_size=24))
def test_advantages_of_a_group_sum_to_zero_and_keep_the_order_of_the_rewards(
    drawn: list[tuple[float, int]],
) -> None:
    standings = grpo.advantages([scored(reward, seed) for reward, seed in drawn])
    for seed in {seed for _, seed in drawn}:
        group = [(reward, s) for (reward, of), s in zip(drawn, standings, strict=True) if of == seed]
        assert sum(s for _, s in group) == pytest.approx(0.0, abs=1e-9)
        by_reward = [s for _, s in sorted(group)]
        assert by_reward == sorted(by_reward)


def test_a_group_without_differences_teaches_nothing() -> None:
    assert grpo.advantages([scored(0.3, 1), scored(0.3, 1), scored(0.9, 2)]) == [0.0, 0.0, 0.0]


def test_advantages_computed_elsewhere_are_taken_as_given() -> None:
    judged = episodes(policies.Policy(), [1], torch.Generator().manual_seed(0))
    assert grpo.collate(judged, [1.0, -1.0, 0.5, -0.5]).advantages.tolist() == [1.0, -1.0, 0.5, -0.5]


def test_the_loss_of_two_halves_with_their_mean_size_is_the_loss_of_the_whole() -> None:
    policy = policies.Policy(seed=4)
    judged = episodes(policy, [1, 2, 3], torch.Generator().manual_seed(0))
    whole, _ = grpo.loss_of(policy, grpo.collate(judged))
    parts = [judged[:4], judged[4:]]
    halves = [grpo.loss_of(policy, grpo.collate(part), episodes=6)[0] for part in parts]
    torch.testing.assert_close(sum(halves) / 2, whole)


def test_a_ratio_beyond_the_clip_gives_no_gradient() -> None:
    policy, batch = policies.Policy(), a_batch()
    eager = grpo.Batch(
        batch.tokens, batch.actions, batch.old_logprobs - 1.0, torch.ones_like(batch.rewards), batch.rewards
    )
    loss, stats = grpo.loss_of(policy, eager, grpo.Options(entropy=0.0))
    loss.backward()
    assert stats.clipped == 1.0
    assert all(p.grad is None or not p.grad.any() for p in policy.parameters())


def test_the_loss_of_one_batch_falls_when_it_is_trained_on() -> None:
    policy, batch = policies.Policy(), a_batch()
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    losses = [grpo.update(policy, optimizer, batch).loss for _ in range(10)]
    assert losses[-1] < losses[0] - 0.05


def test_training_is_repeatable_to_the_bit() -> None:
    (one, first), (other, second) = train(seed=1, steps=2), train(seed=1, steps=2)
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.slow
def test_the_mean_reward_rises_by_a_quarter_within_three_dozen_steps() -> None:
    _, history = train(seed=1, steps=STEPS)
    rewards = [stats.reward for stats in history]
    assert sum(rewards[-10:]) / 10 > sum(rewards[:10]) / 10 + 0.25


def test_an_update_with_eight_episodes_takes_well_under_a_tenth_of_a_second() -> None:
    policy, batch = policies.Policy(), a_batch()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    spent_s = []
    for _ in range(5):
        before_s = time.thread_time()
        grpo.update(policy, optimizer, batch)
        spent_s.append(time.thread_time() - before_s)
    assert min(spent_s) < 0.1


def test_weights_go_to_another_policy_as_plain_arrays() -> None:
    teacher, agent = policies.Policy(seed=1), policies.Policy(seed=2)
    sent = pickle.dumps(policies.full_weights(teacher))
    policies.load_weights(agent, pickle.loads(sent))
    assert all(torch.equal(a, b) for a, b in zip(teacher.parameters(), agent.parameters(), strict=True))
    assert len(sent) < 500_000


def test_sent_weights_do_not_change_when_training_goes_on() -> None:
    policy, batch = policies.Policy(), a_batch()
    sent = policies.full_weights(policy)
    kept = {name: value.copy() for name, value in sent.items()}
    grpo.update(policy, torch.optim.SGD(policy.parameters(), lr=1.0), batch)
    assert all((sent[name] == kept[name]).all() for name in kept)
