"""Says what listens at an address where Redis was expected, and whether a Redis is one that can be used.

Ray's GCS listens on 6379 too, the usual port of Redis, and both are often on one head node. A gRPC server answers
a Redis client with an HTTP/2 settings frame or by closing; redis-py then reports a protocol error that helps nobody.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.store.server_binary import MINIMUM_VERSION

if TYPE_CHECKING:
    import redis

_ANSWER_LIMIT_S = 1.0
_OWN_PORT = "start Redis on a port of its own and name that port in the URL"


def check_server(client: redis.Redis, url: str, where: str) -> None:
    """Return if `client` reaches a Redis or Valkey that is 6.2 or newer and accepts the password.

    Raises:
        StoreUnavailable: with what is wrong and what to do; `where` is the address as it may be shown.
    """
    import redis

    try:
        client.ping()
        info: Mapping[str, Any] = client.info("server")
    except redis.AuthenticationError as error:
        raise StoreUnavailable(
            where=where, why=_refused(str(error)), todo="check user and password in the URL"
        ) from None
    except (redis.BusyLoadingError, redis.ResponseError) as error:
        no_database = "DB index" in str(error)
        todo = "name a database that it has, such as /0" if no_database else "try again, or ask its owner"
        raise StoreUnavailable(where=where, why=f"it answers {_one_line(error)}", todo=todo) from None
    except (redis.RedisError, OSError) as error:
        raise _unreachable(error, url, where) from None
    _check_version(info, where)


def _refused(said: str) -> str:
    if "required" in said.lower() or "NOAUTH" in said:
        return "it wants a password (NOAUTH)"
    return "it refuses this user or password (WRONGPASS)"


def _check_version(info: Mapping[str, Any], where: str) -> None:
    # Valkey reports the Redis version that it is compatible with (7.2.4) in redis_version.
    said = str(info.get("redis_version", ""))
    match = re.match(r"(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) < MINIMUM_VERSION:
        raise StoreUnavailable(
            where=where,
            why=f"it is Redis {said or 'of unknown version'}, 6.2 or newer is needed",
            todo="upgrade it, or give the URL of another one",
        )


def _unreachable(error: Exception, url: str, where: str) -> StoreUnavailable:
    parts = urlsplit(url)
    spoken = _what_answers(parts.hostname or "", parts.port or 6379) if parts.scheme == "redis" else None
    if spoken == "grpc":
        return StoreUnavailable(
            where=where,
            why="a gRPC server answers there, most likely Ray's GCS, whose default port is also 6379",
            todo=_OWN_PORT,
        )
    if spoken == "mute":
        return StoreUnavailable(
            where=where,
            why="what listens there is not Redis: it gave no answer to PING (Ray's GCS, whose default port is also 6379?)",
            todo=_OWN_PORT,
        )
    if spoken == "http":
        return StoreUnavailable(where=where, why="an HTTP server answers there", todo=_OWN_PORT)
    return StoreUnavailable(
        where=where, why=f"it cannot be reached ({_one_line(error)})", todo="check host, port and that Redis runs"
    )


def _what_answers(host: str, port: int) -> str | None:
    """`grpc`, `http`, `mute` (connects, but says nothing that Redis says), or None: nobody, or Redis itself."""
    try:
        with socket.create_connection((host, port), timeout=_ANSWER_LIMIT_S) as line:
            line.sendall(b"PING\r\n")
            said = line.recv(64)
    except ConnectionRefusedError:
        return None
    except TimeoutError:
        return "mute"
    except OSError as error:
        return None if isinstance(error, socket.gaierror) or error.errno in _NO_ROUTE else "mute"
    return classify(said)


def classify(said: bytes) -> str | None:
    """What kind of server begins its answer to `PING` with these bytes; None for Redis."""
    if said[:1] in (b"+", b"-"):
        return None
    # An HTTP/2 frame: three bytes of length, then the type: 4 is SETTINGS, 7 is GOAWAY.
    if len(said) >= 9 and said[0] == 0 and said[3] in (4, 7):
        return "grpc"
    return "http" if said.startswith(b"HTTP/") else "mute"


_NO_ROUTE = (101, 110, 113)


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
