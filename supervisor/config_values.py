"""How single settings are read and shown: durations, secrets, addresses without passwords, near misses."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.recovery.values import COUNT_LIMIT, SECONDS_LIMIT, shown

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SWITCH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("", "0", "false", "no", "off"), False)}
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


def parse_duration(text: str, *, name: str, least_s: float = 0.0) -> float:
    """Seconds of a text such as `500ms`, `30s`, `5m` or `1h30m`.

    `name` is the setting, for the message. A number without a unit is refused, as are zero, nothing, and less than `least_s`.
    Raises ConfigError.
    """
    cleaned = text.strip().replace(" ", "")
    if _is_number(cleaned):
        raise ConfigError(what=f"{name} = {shown(text)} has no unit", todo=f"write {cleaned[:20]}s, or {cleaned[:20]}ms")
    if not _WHOLE.fullmatch(cleaned):
        raise ConfigError(what=f"{name} = {shown(text)} is not a duration", todo="write 500ms, 30s, 5m or 1h30m")
    total = sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(cleaned))
    return usable(total, name=name, given=text, least_s=least_s)


def read_seconds(value: Any, *, name: str, least_s: float = 0.0) -> float:
    """Seconds of a setting whose name ends in `_s`: a number of seconds, or a duration with units.

    Raises ConfigError for anything else, and for what is not above zero or below `least_s`.
    """
    if isinstance(value, str):
        if not _is_number(value.strip()):
            return parse_duration(value, name=name, least_s=least_s)
        return usable(float(value), name=name, given=value, least_s=least_s)
    if isinstance(value, bool) or not isinstance(value, int | float):
        todo = "write seconds, or '500ms', '30s', '5m', '1h30m'"
        raise ConfigError(what=f"{name} = {shown(value)} is not a duration", todo=todo)
    return usable(value, name=name, given=value, least_s=least_s)


def read_count(value: Any, *, name: str, least: int, most: int = COUNT_LIMIT) -> int:
    """A whole number from `least` to `most`, as a number or a text. Raises ConfigError."""
    text = value.strip() if isinstance(value, str) else value
    is_whole = isinstance(text, int) and not isinstance(text, bool)
    if not is_whole and not (isinstance(text, str) and re.fullmatch(r"[+-]?[0-9]{1,30}", text)):
        raise ConfigError(what=f"{name} = {shown(value)} is not a whole number", todo=f"write {least} or more")
    if int(text) < least:
        raise ConfigError(what=f"{name} = {shown(value)} cannot be used", todo=f"write {least} or more")
    if int(text) > most:
        raise ConfigError(what=f"{name} = {shown(value)} is too large", todo=f"write at most {most}")
    return int(text)


def read_switch(text: str, *, name: str) -> bool:
    """Whether a variable is on. Empty is off. Raises ConfigError for what is neither, since a guess would turn the wrong thing off."""
    word = text.strip().lower()
    if word not in _SWITCH:
        raise ConfigError(what=f"{name} = {shown(text)} is neither on nor off", todo="write 1, true, yes or on; or 0, false, no or off")
    return _SWITCH[word]


def read_path(text: str, *, name: str) -> Path:
    """The path that a text names, `~` put in. Raises ConfigError for blank, a control character, or a home that there is not."""
    if not text.strip() or _CONTROL.search(text):
        raise ConfigError(what=f"{name} = {shown(text)} is no path", todo="write a path in one line, or leave it out")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ConfigError(what=f"{name} = {shown(text)} names no home directory", todo="write the whole path") from None


def check_host(host: str, *, name: str) -> None:
    """ConfigError if no name server can know `host`. It is not quoted: where a URL was cut wrongly, it can be part of a password."""
    try:
        host.encode("idna")
    except UnicodeError:
        what = f"the host of {name} cannot be one: a part between its dots is empty, too long (63 is the most), or has a sign that none has"
        raise ConfigError(what=what, todo="write a name such as redis.example.org, or a number such as 127.0.0.1 or [::1]") from None
    if _CONTROL.search(host) or " " in host:
        raise ConfigError(what=f"the host of {name} has a space or a control character", todo="write the bare name")


def usable(seconds: float, *, name: str, given: Any, least_s: float) -> float:
    """`seconds` if it is a finite number above zero, not below `least_s`, and no more than any clock takes. Raises ConfigError."""
    if not seconds > 0 or seconds == math.inf:
        raise ConfigError(what=f"{name} = {shown(given)} cannot be used", todo="a duration is above zero and finite")
    if seconds < least_s:
        todo = f"write {least_s * 1000:g}ms or more"
        raise ConfigError(what=f"{name} = {shown(given)} is too short to be kept", todo=todo)
    if seconds > SECONDS_LIMIT:
        raise ConfigError(what=f"{name} = {shown(given)} is too long", todo=f"write at most {SECONDS_LIMIT:g} seconds")
    return float(seconds)


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", text))


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
