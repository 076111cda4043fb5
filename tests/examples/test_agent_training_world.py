"""The maze, an episode in it, and the judge of the agent training example."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "agent_training"))

treasure: Any = importlib.import_module("treasure")
rollout: Any = importlib.import_module("rollout")
judging: Any = importlib.import_module("judging")

seeds = st.integers(0, 2**31)


def guesser(seed: int) -> Any:
    chance = Random(seed)
    return lambda _: (chance.randrange(treasure.ACTIONS), -1.6)


def believer(tokens: Sequence[int]) -> tuple[int, float]:
    """Does what the last hint says, asks where there is none."""
    hints = {treasure.hint_token(way): way for way in range(treasure.ASK)}
    return hints.get(tokens[-1], treasure.ASK), 0.0


def play(seed: int, act: Any) -> Any:
    return rollout.play(treasure.Treasure(), act, seed=seed, agent="agent/a", version=3)


@given(seeds)
def test_a_maze_is_decided_by_its_seed(seed: int) -> None:
    assert treasure.draw_maze(seed) == treasure.draw_maze(seed)


def test_different_seeds_give_different_mazes() -> None:
    assert len({treasure.draw_maze(seed) for seed in range(100)}) == 100


@given(seeds)
def test_every_room_of_a_maze_has_a_way_to_the_treasure(seed: int) -> None:
    maze = treasure.draw_maze(seed)
    assert min(maze.distances) == 0
    assert treasure.NEAREST <= maze.distances[maze.start] <= treasure.FARTHEST


@given(seeds)
def test_doors_open_both_ways(seed: int) -> None:
    doors = treasure.draw_maze(seed).doors
    for room in range(treasure.ROOMS):
        for way, neighbour in enumerate(doors[room]):
            assert neighbour is None or doors[neighbour][(way + 2) % 4] == room


@given(seeds)
def test_a_hint_leads_one_door_closer(seed: int) -> None:
    maze = treasure.draw_maze(seed)
    for room in set(range(treasure.ROOMS)) - {maze.treasure}:
        behind = maze.doors[room][maze.next_door(room)]
        assert maze.distances[behind] == maze.distances[room] - 1


@given(seeds, seeds)
def test_the_same_actions_in_the_same_maze_give_the_same_trajectory(seed: int, chance: int) -> None:
    assert play(seed, guesser(chance)) == play(seed, guesser(chance))


@given(seeds, seeds)
def test_an_episode_ends_within_the_horizon_and_uses_known_tokens_only(seed: int, chance: int) -> None:
    episode = play(seed, guesser(chance))
    assert 1 <= len(episode.actions) <= treasure.HORIZON
    assert len(episode.tokens) <= 3 * treasure.HORIZON + 3
    assert all(treasure.PAD < token < treasure.VOCABULARY for token in episode.tokens)


@given(seeds, seeds)
def test_a_trajectory_says_where_each_action_was_chosen(seed: int, chance: int) -> None:
    episode = play(seed, guesser(chance))
    chosen = [episode.tokens[at] for at in episode.chosen_at]
    assert chosen == [treasure.action_token(action) for action in episode.actions]
    assert len(episode.logprobs) == len(episode.actions)


def test_a_finished_episode_takes_no_more_turns() -> None:
    world = treasure.Treasure(1)
    while not world.done:
        world.tool(world.room)
    with pytest.raises(ValueError, match="over"):
        world.step(treasure.NORTH)
    with pytest.raises(ValueError, match="over"):
        world.tool(world.room)


def test_asking_is_not_walking() -> None:
    with pytest.raises(ValueError, match=r"tool\(\)"):
        treasure.Treasure(1).step(treasure.ASK)


def test_the_oracle_falls_silent_after_its_answers() -> None:
    world = treasure.Treasure(1)
    answers = [world.tool(world.room) for _ in range(treasure.QUESTIONS + 2)]
    assert treasure.SILENCE not in answers[: treasure.QUESTIONS]
    assert answers[treasure.QUESTIONS :] == [treasure.SILENCE] * 2


def test_reset_starts_the_same_maze_again_and_another_one_on_demand() -> None:
    world = treasure.Treasure(1)
    prompt = world.reset()
    world.tool(world.room)
    assert world.reset() == prompt
    assert world.turns == 0
    world.reset(2)
    assert world.maze == treasure.draw_maze(2)


@given(seeds, seeds)
def test_a_score_stays_in_its_range(seed: int, chance: int) -> None:
    assert judging.LOWEST <= judging.score(play(seed, guesser(chance))) < judging.HIGHEST


@given(seeds)
def test_who_asks_and_obeys_finds_the_treasure(seed: int) -> None:
    verdict = judging.examine(play(seed, believer))
    assert verdict.found
    assert verdict.progress == 1.0


def test_asking_and_obeying_pays_better_than_guessing() -> None:
    obeyed = [judging.score(play(seed, believer)) for seed in range(200)]
    guessed = [judging.score(play(seed, guesser(seed))) for seed in range(200)]
    assert sum(obeyed) / 200 > sum(guessed) / 200 + 0.6


def test_questions_and_turns_cost() -> None:
    dear = judging.Verdict(found=True, turns=8, questions=4, progress=1.0)
    cheap = judging.Verdict(found=True, turns=4, questions=0, progress=1.0)
    saved = 4 * judging.PRICE_OF_TURN + 4 * judging.PRICE_OF_QUESTION
    assert judging.reward_of(cheap) - judging.reward_of(dear) == pytest.approx(saved)


@pytest.mark.parametrize(
    "forge",
    [
        lambda episode: {"seed": episode.seed + 1},
        lambda episode: {"actions": episode.actions[:-1]},
        lambda episode: {"actions": (*episode.actions, treasure.NORTH)},
        lambda episode: {"actions": (99, *episode.actions[1:])},
        lambda episode: {"actions": ()},
        lambda episode: {"tokens": (*episode.tokens[:-2], treasure.SILENCE, episode.tokens[-1])},
    ],
    ids=["other maze", "too short", "too long", "no such action", "nothing done", "other tokens"],
)
def test_the_judge_refuses_what_cannot_have_happened(forge: Any) -> None:
    episode = play(5, believer)
    fields = {name: getattr(episode, name) for name in episode.__slots__}
    with pytest.raises(judging.ForgedTrajectoryError, match="agent/a in maze"):
        judging.score(rollout.Trajectory(**{**fields, **forge(episode)}))


def test_a_scored_trajectory_is_small_and_survives_pickling() -> None:
    scored = judging.judge(play(5, guesser(5)))
    sent = pickle.dumps(scored)
    assert pickle.loads(sent) == scored
    assert len(sent) < 1000
