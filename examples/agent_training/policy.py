"""A decoder-only transformer of about 100,000 parameters that chooses the next action from the tokens so far.

Shaped for `fully_shard`: shard each of `policy.blocks`, then the policy itself. Whatever trains goes through
`forward` by a call of the module, since only such a call runs the hooks that gather the shards. An agent acts
with a whole copy of its own, because a sharded policy needs all ranks for every single action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from treasure import ACTIONS, HORIZON, VOCABULARY

LONGEST = 3 * HORIZON + 3
NO_ACTION = -1

Weights: TypeAlias = dict[str, NDArray[np.float32]]


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each behind a normalisation and with a residual path."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)
        self.before_think = nn.LayerNorm(width)
        self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, stream: Tensor) -> Tensor:
        """Stream of shape (episodes, tokens, width) to the same shape."""
        stream = stream + self._attend(self.before_attention(stream))
        after: Tensor = stream + self.think(self.before_think(stream))
        return after

    def _attend(self, stream: Tensor) -> Tensor:
        by_head = self.mix(stream).unflatten(-1, (3 * self.heads, -1)).transpose(1, 2)
        query, key, value = by_head.chunk(3, dim=1)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined: Tensor = self.join(seen.transpose(1, 2).flatten(2))
        return joined


class Policy(nn.Module):
    """Tokens in, one distribution over the actions after each token out.

    Args:
        width: size of the stream. layers: number of blocks. heads: attention heads per block; divides
        `width`. seed: decides the first weights; the global generator of torch is left as it was. The first
        choices are close to uniform.
    """

    def __init__(self, *, width: int = 64, layers: int = 2, heads: int = 4, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.words = nn.Embedding(VOCABULARY, width)
            self.places = nn.Embedding(LONGEST, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.before_choice = nn.LayerNorm(width)
            self.choice = nn.Linear(width, ACTIONS)
            nn.init.normal_(self.choice.weight, std=0.01)
            nn.init.zeros_(self.choice.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Log-probabilities of the actions after each token.

        (episodes, tokens) of int64 become (episodes, tokens, `ACTIONS`). Padding goes to the right; attention is
        causal, so it changes nothing before it.
        """
        stream = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            stream = block(stream)
        return functional.log_softmax(self.choice(self.before_choice(stream)), dim=-1)

    @torch.inference_mode()
    def act(self, tokens: Sequence[int], generator: torch.Generator | None = None) -> tuple[int, float]:
        """Draw an action for one agent.

        Args:
            tokens: the episode so far, at most `LONGEST`.
            generator: makes the draw repeatable.

        Returns:
            The action and its log-probability.
        """
        logprobs = self(torch.tensor([tokens]))[0, -1]
        action = int(torch.multinomial(logprobs.exp(), 1, generator=generator))
        return action, float(logprobs[action])

    def logprobs(self, tokens: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability of each action taken and entropy of the choice, for training.

        Args:
            tokens: (episodes, tokens), padded with `PAD` on the right. actions: same shape; at each place the
            action chosen after reading that token, `NO_ACTION` where none was.

        Returns:
            Log-probabilities and entropies in the shape of `tokens`, zero where no action was chosen.
        """
        choices = self(tokens)
        chosen = actions != NO_ACTION
        taken = choices.gather(-1, actions.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        entropy = -(choices.exp() * choices).sum(-1)
        return taken * chosen, entropy * chosen


def full_weights(policy: nn.Module) -> Weights:
    """All weights as arrays of this process, to be sent to agents.

    Of a sharded policy this is a collective: every rank has to call it, and every rank gets all weights.
    """
    return {name: whole(value.detach()).cpu().numpy().copy() for name, value in policy.state_dict().items()}


def whole(value: Tensor) -> Tensor:
    """A tensor gathered from its shards, or itself; asked by method, since agents need not load the sharding code."""
    gather: Callable[[], Tensor] | None = getattr(value, "full_tensor", None)
    return value if gather is None else gather()


def load_weights(policy: nn.Module, weights: Mapping[str, NDArray[np.float32]]) -> None:
    """Put weights from `full_weights` into a whole (not sharded) policy."""
    policy.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
