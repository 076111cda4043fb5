"""How long somebody is willing to wait, as it was given: checked before the wait begins."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

from unknot.recovery.errors import ConfigError


def seconds_of(timeout: Any, *, call: str, name: str = "timeout") -> float | None:
    """Seconds of a `timedelta`, None for None.

    Args:
        timeout: what was given.
        call: whose argument it is, for the message.
        name: the argument's.

    Raises:
        ConfigError: it is neither, or below zero.
    """
    if timeout is None:
        return None
    if not isinstance(timeout, timedelta):
        number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        raise ConfigError(
            what=f"{call}({name}={timeout!r}) is no time",
            todo=f"give {name}=timedelta(seconds={timeout if number else 30}), from datetime",
        )
    if timeout < timedelta(0):
        raise ConfigError(what=f"{call}({name}={timeout.total_seconds():g} s) is below zero", todo="give zero or more")
    return timeout.total_seconds()


def check_seconds(timeout_s: Any, *, call: str) -> float | None:
    """`timeout_s` if it is a number of seconds from zero up, or None, else ConfigError."""
    number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if timeout_s is None or (number and not math.isnan(timeout_s) and timeout_s >= 0):
        seconds: float | None = timeout_s
        return seconds
    raise ConfigError(what=f"{call}(timeout_s={timeout_s!r}) is no time", todo="give seconds from 0 up, or None to wait for ever")
