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
from unknot.supervisor.store.refusals import one_line, refusal
from unknot.supervisor.store.scripts import load_script
from unknot.supervisor.store.server_binary import MINIMUM_VERSION

if TYPE_CHECKING:
    import redis

_ANSWER_LIMIT_S = 1.0
_OWN_PORT = "start Redis on a port of its own and name that port in the URL"


def check_server(client: redis.Redis, url: str, where: str) -> None:
    """Return if `client` reaches a Redis or Valkey that is 6.2 or newer and accepts the password. See check_rights for the rest.

    Raises:
        StoreUnavailable: with what is wrong and what to do; `where` is the address as it may be shown.
    """
    import redis

    try:
        client.ping()
        info: Mapping[str, Any] = client.info("server")
    except (redis.AuthenticationError, redis.BusyLoadingError, redis.ResponseError) as error:
        raise _answered(error, where, client) from None
    except (redis.RedisError, OSError) as error:
        raise _unreachable(error, url, where) from None
    _check_version(info, where)


def check_rights(client: redis.Redis, where: str, prefix: str, *, writes: bool) -> tuple[str, ...]:
    """Try what a run needs under its `prefix`: scripts, and for who writes writes, expiries and messages. Warnings, to be told once.

    Raises:
        StoreUnavailable: the permission that the user lacks and how it is given; or why there can be no writes.
    """
    import redis

    try:
        _try_script(client, prefix, "write" if writes else "read")
        if not writes:
            return ()
        client.publish(f"{prefix}check", b"")
        return _eviction(client.info("memory"), where)
    except (redis.AuthenticationError, redis.BusyLoadingError, redis.ResponseError) as error:
        raise _answered(error, where, client) from None
    except (redis.RedisError, OSError) as error:
        raise StoreUnavailable(where=where, why=f"it went away ({one_line(error)})", todo="check that Redis runs") from None


def _try_script(client: redis.Redis, prefix: str, how: str) -> None:
    import redis

    script = load_script("check_rights")
    try:
        client.evalsha(script.sha, 1, prefix, how)
    except redis.exceptions.NoScriptError:
        client.eval(script.text, 1, prefix, how)


def _eviction(memory: Mapping[str, Any], where: str) -> tuple[str, ...]:
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction" or not int(memory.get("maxmemory", 0)):
        return ()
    return (f"Redis at {where} may evict keys of the run when its memory is full (maxmemory-policy {policy}); set it to noeviction",)


def _answered(error: Exception, where: str, client: redis.Redis) -> StoreUnavailable:
    known = refusal(error, where, client)
    if known is not None:
        return known
    no_database = "DB index" in str(error)
    todo = "name a database that it has, such as /0" if no_database else "try again, or ask its owner"
    return StoreUnavailable(where=where, why=f"it answers {one_line(error)}", todo=todo, lasting=no_database)


def _check_version(info: Mapping[str, Any], where: str) -> None:
    # Valkey reports the Redis version that it is compatible with (7.2.4) in redis_version.
    said = str(info.get("redis_version", ""))
    match = re.match(r"(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) < MINIMUM_VERSION:
        raise StoreUnavailable(
            where=where,
            why=f"it is Redis {said or 'of unknown version'}, 6.2 or newer is needed",
            todo="upgrade it, or give the URL of another one",
            lasting=True,
        )


def _unreachable(error: Exception, url: str, where: str) -> StoreUnavailable:
    parts = urlsplit(url)
    spoken = _what_answers(parts.hostname or "", parts.port or 6379) if parts.scheme == "redis" else None
    if spoken == "grpc":
        return StoreUnavailable(
            where=where,
            why="a gRPC server answers there, most likely Ray's GCS, whose default port is also 6379",
            todo=_OWN_PORT,
            lasting=True,
        )
    if spoken == "mute":
        return StoreUnavailable(
            where=where,
            why="what listens there is not Redis: it gave no answer to PING (Ray's GCS, whose default port is also 6379?)",
            todo=_OWN_PORT,
        )
    if spoken == "http":
        return StoreUnavailable(where=where, why="an HTTP server answers there", todo=_OWN_PORT, lasting=True)
    return StoreUnavailable(
        where=where, why=f"it cannot be reached ({one_line(error)})", todo="check host, port and that Redis runs"
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
