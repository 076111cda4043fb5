"""The address of a Redis: checked before use, and shown without its password."""

from __future__ import annotations

import difflib
import re
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from unknot.recovery.errors import ConfigError
from unknot.supervisor.config_values import check_host

_SCHEMES = ("redis", "rediss", "unix")
_EXAMPLE = "give it as redis://:PASSWORD@HOST:PORT/0 (rediss:// for TLS, unix:///PATH for a socket)"
_ESCAPES = "write '#', '/', '?' and '@' of a password as %23, %2F, %3F and %40"
# What a URL may set beside the place. The rest of what redis-py takes (time-outs, retries, decoding) is for the store to say.
_OPTIONS = ("db", "username", "password", "client_name", "health_check_interval")
_OF_TLS = (
    "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname",
    "ssl_min_version", "ssl_ciphers",
)  # fmt: skip
_FORMS = {
    "db": (r"\d{1,9}", "the number of a database, such as 0"),
    "health_check_interval": (r"\d{1,9}", "whole seconds"),
    "ssl_min_version": (r"\d{1,9}", "the number of a TLS version, 771 for 1.2 or 772 for 1.3"),
    "ssl_cert_reqs": (r"none|optional|required", "none, optional or required"),
    "ssl_check_hostname": (r"(?i:true|false|yes|no|1|0)", "true or false"),
}


def shown_address(url: str) -> str:
    """`url` without scheme, user and password: safe for messages. ConfigError when it is no Redis URL that can be used.

    No message quotes a value of the URL: where its parts are not what was meant, any of them can be a part of the password.
    """
    parts, port = _split(url)
    if parts.scheme not in _SCHEMES:
        scheme = f"starts with {parts.scheme}://" if "://" in url else "has no scheme such as redis://"
        raise ConfigError(what=f"the URL of Redis {scheme}", todo=_EXAMPLE)
    if "@" in parts.path + parts.query or parts.fragment:
        raise ConfigError(what="the URL of Redis has an unescaped sign in its password, or a part after '#'", todo=_ESCAPES)
    _check_options(parts)
    if parts.scheme == "unix":
        if not parts.path.strip("/"):
            raise ConfigError(what="the URL of Redis names no socket", todo=_EXAMPLE)
        if "\0" in unquote(parts.path):
            raise ConfigError(what="the URL of Redis names a socket that cannot be: its path has a NUL", todo=_EXAMPLE)
        return parts.path
    if not parts.hostname:
        raise ConfigError(what="the URL of Redis names no host", todo=f"{_EXAMPLE}; {_ESCAPES}")
    check_host(unquote(parts.hostname), name="the URL of Redis")
    database = parts.path.strip("/")
    if database and not re.fullmatch(_FORMS["db"][0], database):
        raise ConfigError(what="the path of the URL of Redis is no number of a database", todo="end it with /0, or without a path")
    return f"{parts.hostname}:{port or 6379}{'/' + database if database else ''}"


def _split(url: str) -> tuple[SplitResult, int | None]:
    # The parser's own messages can quote a part of the password, so they are dropped, not chained.
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(what="the URL of Redis cannot be read", todo=f"{_EXAMPLE}; {_ESCAPES}") from None
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        todo = f"{_EXAMPLE}, with a port from 1 to 65535; {_ESCAPES}"
        raise ConfigError(what="the URL of Redis cannot be read (its port is no number of a port)", todo=todo)
    return parts, port


def _check_options(parts: SplitResult) -> None:
    takes = (*_OPTIONS, *(_OF_TLS if parts.scheme == "rediss" else ()))
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in takes:
            raise _no_option(name, takes)
        form, meant = _FORMS.get(name, (r".+", "a value"))
        if not re.fullmatch(form, value, re.DOTALL):
            raise ConfigError(what=f"the URL of Redis has {name}= with a value that it cannot have", todo=f"give {meant}")


def _no_option(name: str, takes: tuple[str, ...]) -> ConfigError:
    if name in _OF_TLS:
        return ConfigError(what=f"the URL of Redis has {name}=, which is for TLS", todo="begin it with rediss://")
    known = f" {name!r}" if re.fullmatch(r"[a-z_]{1,30}", name) else ""
    near = difflib.get_close_matches(name, takes, n=1)
    todo = f"did you mean {near[0]!r}?" if near else f"it may have {', '.join(takes)}"
    return ConfigError(what=f"the URL of Redis has an option{known} that Unknot does not take there", todo=todo)
