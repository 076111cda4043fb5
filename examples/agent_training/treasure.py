"""A search for treasure in a small maze, with an oracle that is worth asking and costs something.

A maze is a grid of rooms with some doors walled up, drawn from a seed; one room holds the treasure. A
searcher sees the number of the room it stands in, and in some rooms a sign that points to the next door on
the shortest way; elsewhere walking is guessing. The oracle knows that door everywhere. Asking takes a turn,
as walking does, and the oracle falls silent after a few questions. A good searcher follows signs and asks
where there is none; a bad one wanders, or asks until its turns are gone. The signs are what makes the task
quick to learn: they teach what a hint means, and only then is a question worth its price.

Everything here is decided by the seed: the same seed and the same actions give the same tokens on every
machine. The judge relies on it, for it replays an episode instead of believing the searcher.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

SIDE = 5
ROOMS = SIDE * SIDE
WALLS = 8
SIGNS = 0.8
NEAREST, FARTHEST = 2, 4
HORIZON = 12
QUESTIONS = 5

NORTH, EAST, SOUTH, WEST, ASK = range(5)
ACTIONS = 5
ACTION_NAMES = ("north", "east", "south", "west", "ask")

PAD, BEGIN = 0, 1
_FIRST_ROOM = 2
_FIRST_ACTION = _FIRST_ROOM + ROOMS
_FIRST_HINT = _FIRST_ACTION + ACTIONS
SILENCE = _FIRST_HINT + ASK
VOCABULARY = SILENCE + 1

_MOVES = {NORTH: (-1, 0), EAST: (0, 1), SOUTH: (1, 0), WEST: (0, -1)}


def room_token(room: int) -> int:
    """The token that says "you are in this room"."""
    return _FIRST_ROOM + room


def action_token(action: int) -> int:
    """The token that says "this was done"."""
    return _FIRST_ACTION + action


def hint_token(direction: int) -> int:
    """The token that says "go this way"."""
    return _FIRST_HINT + direction


def room_of(token: int) -> int | None:
    """The room that a token names, or None where it says something else."""
    return token - _FIRST_ROOM if _FIRST_ROOM <= token < _FIRST_ACTION else None


@dataclass(frozen=True, slots=True)
class Maze:
    """The fixed part of a world; `doors[room][direction]` is the room behind that door, None for a wall."""

    doors: tuple[tuple[int | None, ...], ...]
    start: int
    treasure: int
    distances: tuple[int, ...]
    signs: tuple[bool, ...]

    def next_door(self, room: int) -> int:
        """The direction of a shortest way to the treasure: the first such in the order of the compass."""
        for direction, neighbour in enumerate(self.doors[room]):
            if neighbour is not None and self.distances[neighbour] < self.distances[room]:
                return direction
        return NORTH


def draw_maze(seed: int) -> Maze:
    """The maze of a seed: connected, its treasure `NEAREST` to `FARTHEST` doors from the start."""
    chance = random.Random(seed)
    doors = _open_grid()
    for _ in range(WALLS):
        _wall_up(doors, chance)
    treasure = chance.randrange(ROOMS)
    distances = _distances(doors, treasure)
    starts = [room for room in range(ROOMS) if NEAREST <= distances[room] <= FARTHEST]
    signs = tuple(chance.random() < SIGNS for _ in range(ROOMS))
    return Maze(tuple(tuple(row) for row in doors), chance.choice(starts), treasure, tuple(distances), signs)


def _open_grid() -> list[list[int | None]]:
    return [[_beside(room, direction) for direction in range(ASK)] for room in range(ROOMS)]


def _beside(room: int, direction: int) -> int | None:
    down, right = _MOVES[direction]
    row, column = room // SIDE + down, room % SIDE + right
    return row * SIDE + column if 0 <= row < SIDE and 0 <= column < SIDE else None


def _wall_up(doors: list[list[int | None]], chance: random.Random) -> None:
    """Close one door at random, unless that would cut the maze in two."""
    open_doors = [(r, d) for r in range(ROOMS) for d in (EAST, SOUTH) if doors[r][d] is not None]
    room, direction = chance.choice(open_doors)
    neighbour, back = doors[room][direction], (direction + 2) % 4
    if neighbour is None:
        return
    doors[room][direction] = doors[neighbour][back] = None
    if min(_distances(doors, room)) < 0:
        doors[room][direction], doors[neighbour][back] = neighbour, room


def _distances(doors: list[list[int | None]], goal: int) -> list[int]:
    """The number of doors from every room to the goal, by breadth-first search; -1 where there is no way."""
    distances = [-1] * ROOMS
    distances[goal] = 0
    queue = deque([goal])
    while queue:
        room = queue.popleft()
        for neighbour in doors[room]:
            if neighbour is not None and distances[neighbour] < 0:
                distances[neighbour] = distances[room] + 1
                queue.append(neighbour)
    return distances


class Treasure:
    """One searcher's episode in the maze of a seed.

    An episode lasts until the treasure is found or `HORIZON` turns are spent. Walking is `step`, asking is
    `tool`; each takes one turn. After the end both raise `ValueError`.
    """

    def __init__(self, seed: int = 0) -> None:
        self.reset(seed)

    def __repr__(self) -> str:
        return f"<Treasure seed {self.seed} [turn {self.turns} of {HORIZON}, {self.distance} doors to go]>"

    def reset(self, seed: int | None = None) -> list[int]:
        """Start again, in the maze of another seed where one is given.

        Returns:
            The prompt: `BEGIN`, the token of the first room, and that of its sign if it has one.
        """
        if seed is not None:
            self.seed, self.maze = seed, draw_maze(seed)
        self.room, self.turns, self.asked = self.maze.start, 0, 0
        return [BEGIN, *self._see()]

    @property
    def reached(self) -> bool:
        """Whether the searcher stands on the treasure."""
        return self.room == self.maze.treasure

    @property
    def distance(self) -> int:
        """Doors between the searcher and the treasure."""
        return self.maze.distances[self.room]

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return self.reached or self.turns >= HORIZON

    def step(self, action: int) -> tuple[list[int], bool]:
        """Walk through a door; where there is none, the turn is lost and the room stays the same.

        Args:
            action: `NORTH`, `EAST`, `SOUTH` or `WEST`.

        Returns:
            The token of the room the searcher is in now, with that of its sign if it has one, and whether the
            episode is over.

        Raises:
            ValueError: the episode is over, or the action is not a direction. `ASK` belongs to `tool`.
        """
        if action not in _MOVES:
            raise ValueError(f"action {action} is no direction; walking takes 0 to 3, asking goes to tool()")
        self._spend_turn()
        neighbour = self.maze.doors[self.room][action]
        self.room = self.room if neighbour is None else neighbour
        return self._see(), self.done

    def tool(self, query: int) -> int:
        """Ask the oracle for the next door on the shortest way from a room.

        Args:
            query: the room asked about, 0 to `ROOMS` - 1; a searcher asks about its own.

        Returns:
            The token of a hint, or `SILENCE` after `QUESTIONS` answers in this episode.

        Raises:
            ValueError: the episode is over, or there is no such room.
        """
        if not 0 <= query < ROOMS:
            raise ValueError(f"room {query} does not exist; rooms are 0 to {ROOMS - 1}")
        self._spend_turn()
        self.asked += 1
        return hint_token(self.maze.next_door(query)) if self.asked <= QUESTIONS else SILENCE

    def _see(self) -> list[int]:
        here = [room_token(self.room)]
        if self.maze.signs[self.room] and not self.reached:
            here.append(hint_token(self.maze.next_door(self.room)))
        return here

    def _spend_turn(self) -> None:
        if self.done:
            raise ValueError(f"the episode in maze {self.seed} is over; reset() starts another")
        self.turns += 1
