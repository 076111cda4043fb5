"""What the scripts answer, as values; and the refusals that all of them share, as errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from unknot.recovery.errors import ConfigError, FencedError, StoreCorrupt
from unknot.recovery.ports import RedisValue, Store
from unknot.recovery.values import shown

_NAME = re.compile(r"[^\s|/\x00-\x1f]{1,200}")
_CORRUPT = re.compile(r"UNKNOTTYPE (\S+) (.*)")


class Answer(NamedTuple):
    """One answer: its first word, and what follows it."""

    word: str
    rest: tuple[Any, ...]

    def text(self, position: int = 0) -> str:
        """The string at `position` after the word."""
        value = self.rest[position]
        return value.decode() if isinstance(value, bytes) else str(value)

    def number(self, position: int = 0) -> int:
        """The integer at `position` after the word."""
        return int(self.rest[position])


def rows(store: Store, script: str, *args: RedisValue) -> Sequence[Any]:
    """As `ask`, for a script whose answer is a list without a first word."""
    try:
        said: Sequence[Any] = store.script(script, [store.key()], args)
    except Exception as error:
        # The store's own error types are not known here: recovery does not import redis.
        if found := _CORRUPT.search(str(error)):
            raise StoreCorrupt(key=found[1], why=found[2]) from error
        raise
    return said


def ask(store: Store, script: str, *args: RedisValue) -> Answer:
    """Run a script with the run's prefix as its only key.

    Raises:
        StoreCorrupt: a key that the script needs has another type; the script changed nothing.
        StoreUnavailable: Redis did not answer within the store's limit.
    """
    said = rows(store, script, *args)
    head = said[0]
    return Answer(head.decode() if isinstance(head, bytes) else str(head), tuple(said[1:]))


def refuse_fenced(answer: Answer, member: str, incarnation: int) -> Answer:
    """`answer`, unless it says that a newer incarnation of `member` stands: FencedError."""
    if answer.word == "fenced":
        raise FencedError(member=member, incarnation=incarnation, current=answer.number())
    return answer


def ask_as_member(store: Store, script: str, member: str, incarnation: int, *args: RedisValue) -> Answer:
    """Run a script whose first arguments are member and incarnation. FencedError when that was replaced."""
    return refuse_fenced(ask(store, script, member, incarnation, *args), member, incarnation)


def check_name(kind: str, name: str) -> str:
    """`name` if it can name a lock, mailbox, group or weights, else ConfigError."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise ConfigError(
        what=f"{shown(name)} cannot name a {kind}",
        todo="use 1 to 200 characters without spaces, '|' and '/'",
    )
