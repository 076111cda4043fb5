"""The judge: a fixed rubric, applied to a replay.

The judge takes only the seed and the actions from a trajectory and plays them again in a world of its own. An
agent that was restarted half-way, or wired to the wrong world, therefore cannot hand in a record that never
happened: the tokens would differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollout import Trajectory, play
from treasure import ASK, HORIZON, Treasure

FOUND = 0.6
PROGRESS = 0.4
PRICE_OF_TURN = 0.02
PRICE_OF_QUESTION = 0.01
LOWEST = -HORIZON * (PRICE_OF_TURN + PRICE_OF_QUESTION)
HIGHEST = FOUND + PROGRESS


class ForgedTrajectoryError(ValueError):
    """A trajectory that its own seed and actions do not lead to."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an episode came to.

    Treasure found or not, turns and questions spent, share of the way made good (0 to 1).
    """

    found: bool
    turns: int
    questions: int
    progress: float


@dataclass(frozen=True, slots=True)
class Scored:
    """A trajectory with its reward; what a judge sends to a trainer."""

    trajectory: Trajectory
    reward: float


def examine(trajectory: Trajectory) -> Verdict:
    """Replay a trajectory and say what it came to.

    Raises:
        ForgedTrajectoryError: the replay saw other tokens, or ended earlier or later.
    """
    world = Treasure(trajectory.seed)
    way = world.distance
    script = iter(trajectory.actions)
    try:
        replay = play(world, lambda _: (next(script), 0.0), seed=trajectory.seed)
    except (StopIteration, ValueError) as error:
        raise ForgedTrajectoryError(f"no replay of {_name(trajectory)}: {error!r}") from error
    if (replay.tokens, replay.actions) != (trajectory.tokens, trajectory.actions):
        raise ForgedTrajectoryError(f"a replay of {_name(trajectory)} went another way")
    progress = max(0.0, (way - world.distance) / way)
    return Verdict(world.reached, len(replay.actions), replay.actions.count(ASK), progress)


def _name(trajectory: Trajectory) -> str:
    return f"the episode of {trajectory.agent} in maze {trajectory.seed}"


def reward_of(verdict: Verdict) -> float:
    """The rubric, `LOWEST` to `HIGHEST`: treasure and progress count, every turn and every question costs."""
    earned = FOUND * verdict.found + PROGRESS * verdict.progress
    return earned - PRICE_OF_TURN * verdict.turns - PRICE_OF_QUESTION * verdict.questions


def score(trajectory: Trajectory) -> float:
    """The reward of a trajectory.

    Raises:
        ForgedTrajectoryError: it cannot have happened.
    """
    return reward_of(examine(trajectory))


def judge(trajectory: Trajectory) -> Scored:
    """The trajectory with its reward.

    Raises:
        ForgedTrajectoryError: it cannot have happened.
    """
    return Scored(trajectory, score(trajectory))
