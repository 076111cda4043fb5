"""The address of a Redis: checked before use, and shown without its password."""

from __future__ import annotations

from urllib.parse import urlsplit

from unknot.recovery.errors import ConfigError

_SCHEMES = ("redis", "rediss", "unix")
_EXAMPLE = "give it as redis://:PASSWORD@HOST:PORT/0 (rediss:// for TLS, unix:///PATH for a socket)"


def shown_address(url: str) -> str:
    """`url` without scheme, user and password: safe for messages. ConfigError when it is no Redis URL."""
    # The parser's own messages can quote a part of the password, so they are dropped, not chained.
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(what="the URL of Redis cannot be read (its port is no number)", todo=_EXAMPLE) from None
    if parts.scheme not in _SCHEMES:
        scheme = f"starts with {parts.scheme}://" if "://" in url else "has no scheme such as redis://"
        raise ConfigError(what=f"the URL of Redis {scheme}", todo=_EXAMPLE)
    if parts.scheme == "unix":
        return parts.path
    if not parts.hostname:
        raise ConfigError(what="the URL of Redis names no host", todo=_EXAMPLE)
    return f"{parts.hostname}:{port or 6379}{parts.path if parts.path != '/' else ''}"
