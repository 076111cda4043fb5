"""One episode, from the first token to the record that is sent to the judge.

The loop knows neither torch nor how the world is reached. `World` may be a `Treasure` in the same process, or
a thin object whose methods call an environment process and take the lock of the search tool first; `Act` may
be a policy, a script, or chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from treasure import ASK, HORIZON, action_token, room_of

Act: TypeAlias = Callable[[Sequence[int]], tuple[int, float]]


class World(Protocol):
    """What the loop needs of an environment; `Treasure` says what each method means."""

    def reset(self, seed: int | None = None) -> list[int]: ...

    def step(self, action: int) -> tuple[list[int], bool]: ...

    def tool(self, query: int) -> int: ...


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What one agent saw and did in one episode: plain numbers, some hundred bytes when pickled.

    `tokens` is everything up to the last action, that action included; what came after it no longer mattered.
    Action k was chosen after reading `tokens[: chosen_at[k]]` and stands at `tokens[chosen_at[k]]` as a
    token. `logprobs` are those of the policy that acted, whose weights had number `version`.
    """

    seed: int
    agent: str
    version: int
    tokens: tuple[int, ...]
    actions: tuple[int, ...]
    chosen_at: tuple[int, ...]
    logprobs: tuple[float, ...]


def play(world: World, act: Act, *, seed: int, agent: str = "agent", version: int = 0) -> Trajectory:
    """Play one episode.

    Args:
        world: the environment; it is reset to `seed`.
        act: chooses an action from the tokens so far and gives its log-probability.
        seed: the maze; episodes of one seed form a group in training.
        agent: who acts, for the record.
        version: the number of the weights that act, for the record.
    """
    tokens = world.reset(seed)
    actions: list[int] = []
    chosen_at: list[int] = []
    logprobs: list[float] = []
    done = False
    while not done and len(actions) < HORIZON:
        action, logprob = act(tokens)
        actions.append(action)
        chosen_at.append(len(tokens))
        logprobs.append(logprob)
        answer, done = _turn(world, tokens, action)
        tokens = [*tokens, action_token(action), *answer]
    seen = tuple(tokens[: chosen_at[-1] + 1])
    return Trajectory(seed, agent, version, seen, tuple(actions), tuple(chosen_at), tuple(logprobs))


def _turn(world: World, tokens: Sequence[int], action: int) -> tuple[list[int], bool]:
    return ([world.tool(_own_room(tokens))], False) if action == ASK else world.step(action)


def _own_room(tokens: Sequence[int]) -> int:
    return next(room for room in map(room_of, reversed(tokens)) if room is not None)
