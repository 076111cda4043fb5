"""Decisions drawn from a string of bytes, so that hypothesis draws once and shrinks all of a history together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chances:
    """Each decision takes a byte. Once they are used up, every decision is its simplest outcome."""

    def __init__(self, told: bytes) -> None:
        self._told = told
        self._place = 0

    @property
    def over(self) -> bool:
        return self._place >= len(self._told)

    def number(self, low: int, high: int) -> int:
        """From `low`, the simplest, to `high`."""
        if self.over:
            return low
        self._place += 1
        return low + self._told[self._place - 1] % (high - low + 1)

    def pick(self, among: Sequence[T]) -> T:
        return among[self.number(0, len(among) - 1)]

    def rarely(self, one_in: int) -> bool:
        return self.number(0, one_in - 1) == one_in - 1

    def some(self, among: Sequence[T], most: int) -> list[T]:
        """Up to `most` of them, each once, in any order."""
        rest, found = list(among), list[T]()
        while len(found) < min(most, len(among)) and not self.rarely(2):
            found.append(rest.pop(self.number(0, len(rest) - 1)))
        return found
