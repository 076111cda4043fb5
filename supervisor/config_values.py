"""How single settings are read and shown: durations, secrets, addresses without passwords, near misses."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from unknot.recovery.errors import ConfigError

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")


class Secret(msgspec.Struct, frozen=True, dict=True):
    """A text that is never shown, and that never leaves this process.

    Only `reveal` gives it away. It is no field of the struct: written as JSON or pickled, as a part of
    settings that are handed to workers through their environment, it arrives empty.
    """

    @classmethod
    def of(cls, text: str) -> Secret:
        """The secret that holds `text`."""
        secret = cls()
        secret.__dict__["_text"] = text
        return secret

    def reveal(self) -> str:
        """The text itself: for signing, and for nothing else. Empty in a process that was not given it."""
        return str(self.__dict__.get("_text", ""))

    def __repr__(self) -> str:
        return "Secret(***)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("text", "***")]

    __str__ = __repr__


def parse_duration(text: str, *, name: str) -> float:
    """Seconds of a text such as `500ms`, `30s`, `5m` or `1h30m`.

    `name` is the setting, for the message. A number without a unit is refused, as are zero and nothing.
    Raises ConfigError.
    """
    cleaned = text.strip().replace(" ", "")
    if _is_number(cleaned):
        raise ConfigError(what=f"{name} = {text!r} has no unit", todo=f"write {cleaned}s, or {cleaned}ms")
    if not _WHOLE.fullmatch(cleaned):
        raise ConfigError(what=f"{name} = {text!r} is not a duration", todo="write 500ms, 30s, 5m or 1h30m")
    total = sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(cleaned))
    return positive(total, name=name, shown=text)


def read_seconds(value: Any, *, name: str) -> float:
    """Seconds of a setting whose name ends in `_s`: a number of seconds, or a duration with units.

    Raises ConfigError for anything else, and for what is not above zero.
    """
    if isinstance(value, str):
        if _is_number(value.strip()):
            return positive(float(value), name=name, shown=value)
        return parse_duration(value, name=name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        todo = "write seconds, or '500ms', '30s', '5m', '1h30m'"
        raise ConfigError(what=f"{name} = {value!r} is not a duration", todo=todo)
    return positive(float(value), name=name, shown=value)


def read_count(value: Any, *, name: str, least: int) -> int:
    """A whole number of at least `least`, as a number or a text. Raises ConfigError."""
    text = value.strip() if isinstance(value, str) else value
    is_whole = isinstance(text, int) and not isinstance(text, bool)
    if not is_whole and not (isinstance(text, str) and re.fullmatch(r"[+-]?[0-9]{1,12}", text)):
        raise ConfigError(what=f"{name} = {value!r} is not a whole number", todo=f"write {least} or more")
    if int(text) < least:
        raise ConfigError(what=f"{name} = {value} cannot be used", todo=f"write {least} or more")
    return int(text)


def positive(seconds: float, *, name: str, shown: Any) -> float:
    """`seconds` if it is a finite number above zero. Raises ConfigError."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise ConfigError(what=f"{name} = {shown} cannot be used", todo="a duration is above zero and finite")
    return seconds


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text))


def suggestion(word: str, known: Iterable[str]) -> str:
    """` (did you mean x?)` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def mask_url(url: str) -> str:
    """An address that may be shown: scheme, host and port.

    User, password, the path of a webhook and the query are left out. A Redis address keeps its path, which is
    the number of the database; a socket address keeps its file.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    where = f"{host}:{port}" if (port := _port(parts.netloc)) else host
    user = "***@" if "@" in parts.netloc else ""
    rest = parts.path
    if parts.scheme in ("http", "https"):
        rest = "/…" if rest.strip("/") or parts.query else ""
    return f"{parts.scheme}://{user}{where}{rest}"


def _port(netloc: str) -> str:
    found = re.search(r":(\d+)$", netloc)
    return found.group(1) if found else ""
