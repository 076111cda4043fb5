"""Patterns of members, as the rights to a mailbox and to weights are declared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from unknot.graph.ids import is_pattern
from unknot.recovery.errors import ConfigError
from unknot.recovery.registration import is_member
from unknot.recovery.values import shown

_WILD = re.compile(r"\*|\?|\[[^\]]+\]")
_LIKE = "use member names or patterns such as 'agent/*', or a list of them"


def member_patterns(given: Any, *, name: str) -> tuple[str, ...] | None:
    """A list of rights as it was given: a pattern, or a list of them; None for None.

    Raises:
        ConfigError: it is another thing, or a pattern can match no member. The message begins with `name`.
    """
    if given is None:
        return None
    patterns = (given,) if isinstance(given, str) else given
    if not isinstance(patterns, list | tuple):
        raise ConfigError(what=f"{name}={shown(given)} is no list of member names", todo=_LIKE)
    for pattern in patterns:
        if not isinstance(pattern, str) or not _may_match(pattern):
            raise ConfigError(what=f"{name}: {shown(pattern)} can match no member (role/name)", todo=_LIKE)
    return tuple(patterns)


def _may_match(pattern: str) -> bool:
    if not is_pattern(pattern):
        return is_member(pattern)
    return any(is_member(like) for like in _shapes(pattern))


def _shapes(pattern: str) -> Iterator[str]:
    """What it could match: each wild card stands for a letter, and one of them perhaps for what separates role and name."""
    yield _WILD.sub("x", pattern)
    for wild in _WILD.finditer(pattern):
        separating = {"*": "x/x", "?": "/"}.get(wild[0], "x")
        before, after = pattern[: wild.start()], pattern[wild.end() :]
        yield _WILD.sub("x", before) + separating + _WILD.sub("x", after)
