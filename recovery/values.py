"""What a caller gives, checked where it is given: one line that names the argument, what is wrong, and what to do."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from unknot.graph.unmatched import suggestion as suggestion
from unknot.recovery.errors import ConfigError

COUNT_LIMIT = 1_000_000_000
SECONDS_LIMIT = 1e9  # some 31 years; the clocks and waits of the platform take no more than a few times that
_SHOWN = 60


def shown(value: object) -> str:
    """`value` for a message: its repr, on one line and not too long."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - whatever a stranger's repr raises (a huge int does), the message is ours
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def whole(value: Any, *, name: str, least: int, most: int = COUNT_LIMIT) -> int:
    """`value` as an int, if it is a whole number from `least` to `most`; a bool is none.

    Args:
        value: what was given.
        name: the argument, as the message begins.
        least: the smallest that may be.
        most: the largest.

    Raises:
        ConfigError: it is another thing, or out of range.
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise ConfigError(what=f"{name}={shown(value)} is not a whole number", todo=f"give a whole number, at least {least}")
    if number < least:
        raise ConfigError(what=f"{name}={shown(value)} is too small", todo=f"give at least {least}")
    if number > most:
        raise ConfigError(what=f"{name}={shown(value)} is too large", todo=f"give at most {most}")
    return number


def seconds(value: Any, *, name: str, zero: bool = False) -> float:
    """`value` as a float, if it is a finite number of seconds above zero, or zero where `zero` allows it.

    Raises:
        ConfigError: it is another thing, or out of range.
    """
    least = "0 or more" if zero else "more than 0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(what=f"{name}={shown(value)} is not a number of seconds", todo=f"give {least}")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise ConfigError(what=f"{name}={shown(value)} cannot be used", todo=f"give {least}, and a finite number")
    if value > SECONDS_LIMIT:
        raise ConfigError(what=f"{name}={shown(value)} is too large", todo=f"give at most {SECONDS_LIMIT:g}")
    return float(value)


def span_s(value: Any, *, name: str) -> float:
    """Seconds of a timedelta that is not below zero. ConfigError for anything else; a number has no unit."""
    if not isinstance(value, timedelta):
        like = shown(value) if isinstance(value, int | float) and not isinstance(value, bool) else 5
        raise ConfigError(what=f"{name}={shown(value)} is no timedelta", todo=f"give datetime.timedelta(seconds={like}) or the like")
    if value < timedelta(0):
        raise ConfigError(what=f"{name}={shown(value)} is below zero", todo="give timedelta(0) or more")
    return value.total_seconds()


def limit_s(value: Any, *, name: str = "timeout") -> float | None:
    """As `span_s`, and None, which is for ever."""
    return None if value is None else span_s(value, name=name)


def text(value: Any, *, name: str) -> str:
    """`value` if it is a text that says something. ConfigError."""
    if isinstance(value, str) and value.strip():
        return value
    raise ConfigError(what=f"{name}={shown(value)} is no text", todo="give a few words")


def choice(value: Any, known: Iterable[str], *, name: str) -> str:
    """`value` if it is one of `known`. ConfigError that names the nearest one and all of them."""
    words = tuple(known)
    if isinstance(value, str) and value in words:
        return value
    near = suggestion(value, words) if isinstance(value, str) else ""
    raise ConfigError(what=f"{name}={shown(value)} is unknown{near}", todo=f"use one of {', '.join(words)}")
