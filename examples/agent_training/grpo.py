"""Group-relative policy optimisation of a batch of judged episodes.

The advantage of an episode is how much better it did than the other episodes of the same maze, in standard
deviations (Shao et al., "DeepSeekMath", 2024); the policy is moved by the clipped ratio of PPO (Schulman et
al., 2017). Each episode is weighted alike and its length does not divide its loss, since dividing would
excuse long failures (Liu et al., "Understanding R1-Zero-Like Training", 2025): the sum over the turns of an
episode is divided by the constant `HORIZON`.

That choice also makes sharding exact. Data-parallel training averages the gradients of the ranks. With a
constant divisor the average over ranks is the gradient of the whole batch, whatever the lengths of the
episodes; a mean over tokens would not be. Ranks with different numbers of episodes give the mean number as
`episodes`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from judging import Scored
from policy import NO_ACTION, Policy, whole
from rollout import Trajectory
from torch import Tensor, nn
from treasure import HORIZON, PAD

_TINY = 1e-4


@dataclass(frozen=True, slots=True)
class Options:
    """How far one update may go.

    Args:
        clip: bound of the probability ratio, 1 - clip to 1 + clip.
        entropy: weight of the bonus for undecided choices.
        kl: weight of the penalty for leaving the policy that acted.
        grad_norm: gradients are scaled down to this norm.
    """

    clip: float = 0.2
    entropy: float = 0.03
    kl: float = 0.0
    grad_norm: float = 1.0


USUAL = Options()


@dataclass(frozen=True, slots=True)
class Batch:
    """Episodes as tensors of one shape (episodes, tokens); advantages and rewards one per episode."""

    tokens: Tensor
    actions: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    rewards: Tensor


@dataclass(frozen=True, slots=True)
class Stats:
    """What an update did; plain numbers of this rank's episodes (`grad_norm`: of all ranks)."""

    loss: float
    reward: float
    entropy: float
    kl: float
    clipped: float
    grad_norm: float = 0.0


def advantages(scored: Sequence[Scored]) -> list[float]:
    """The advantage of each episode within its group, that is among those of the same seed in `scored`.

    Each group sums to zero. A group that did equally well throughout, or has one episode only, has nothing to
    teach: all zero.
    """
    groups: dict[int, list[float]] = defaultdict(list)
    for one in scored:
        groups[one.trajectory.seed].append(one.reward)
    return [_standing(one.reward, groups[one.trajectory.seed]) for one in scored]


def _standing(reward: float, group: Sequence[float]) -> float:
    mean = sum(group) / len(group)
    deviation = (sum((other - mean) ** 2 for other in group) / len(group)) ** 0.5
    return (reward - mean) / (deviation + _TINY) if deviation > _TINY else 0.0


def collate(scored: Sequence[Scored], standings: Sequence[float] | None = None) -> Batch:
    """Make a batch of judged episodes.

    Args:
        scored: at least one; whole groups, unless `standings` is given.
        standings: advantages computed elsewhere, where a group is spread over several ranks.
    """
    longest = max(len(one.trajectory.tokens) for one in scored)
    rows = [_row(one.trajectory, longest) for one in scored]
    tokens, actions, logprobs = zip(*rows, strict=True)
    return Batch(
        tokens=torch.tensor(tokens),
        actions=torch.tensor(actions),
        old_logprobs=torch.tensor(logprobs),
        advantages=torch.tensor(advantages(scored) if standings is None else list(standings)),
        rewards=torch.tensor([one.reward for one in scored]),
    )


def _row(trajectory: Trajectory, length: int) -> tuple[list[int], list[int], list[float]]:
    tokens = [*trajectory.tokens, *[PAD] * (length - len(trajectory.tokens))]
    actions, logprobs = [NO_ACTION] * length, [0.0] * length
    turns = zip(trajectory.chosen_at, trajectory.actions, trajectory.logprobs, strict=True)
    for at, action, logprob in turns:
        actions[at - 1], logprobs[at - 1] = action, logprob
    return tokens, actions, logprobs


def loss_of(
    policy: Policy, batch: Batch, options: Options = USUAL, *, episodes: float | None = None
) -> tuple[Tensor, Stats]:
    """The loss of a batch under the policy, and what it is made of.

    Args:
        policy: whole or sharded; a sharded one needs every rank here, and a batch of its own on each.
        batch: from `collate`.
        options: clip and weights.
        episodes: the divisor, if it is not the size of this batch: the mean number of episodes per rank.
    """
    now, entropy = policy.logprobs(batch.tokens, batch.actions)
    chosen = batch.actions != NO_ACTION
    log_ratio = (now - batch.old_logprobs) * chosen
    ratio = log_ratio.exp()
    advantage = batch.advantages.unsqueeze(-1)
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - options.clip, 1 + options.clip) * advantage)
    kl = (-log_ratio).exp() - 1 + log_ratio
    per_turn = (options.kl * kl - options.entropy * entropy - gain) * chosen
    loss = per_turn.sum() / (HORIZON * (episodes or len(batch.rewards)))
    return loss, _stats(loss, batch, (entropy, kl, ((ratio - 1).abs() > options.clip).float()))


def _stats(loss: Tensor, batch: Batch, parts: tuple[Tensor, Tensor, Tensor]) -> Stats:
    turns = (batch.actions != NO_ACTION).sum()
    entropy, kl, clipped = (float(part.detach().sum() / turns) for part in parts)
    return Stats(float(loss.detach()), float(batch.rewards.mean()), entropy, kl, clipped)


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    options: Options = USUAL,
    *,
    episodes: float | None = None,
) -> Stats:
    """One step of the optimizer on a batch; see `loss_of` for the arguments.

    Of a sharded policy this holds several collectives: every rank has to call it the same number of times.
    """
    optimizer.zero_grad(set_to_none=True)
    loss, stats = loss_of(policy, batch, options, episodes=episodes)
    torch.autograd.backward(loss)
    norm = whole(nn.utils.clip_grad_norm_(policy.parameters(), options.grad_norm))
    optimizer.step()
    return Stats(stats.loss, stats.reward, stats.entropy, stats.kl, stats.clipped, float(norm))
