"""What Redis means by an error that is no fault of the call: one clear error, and whether waiting helps.

A script's error arrives wrapped in a text of its own, with the word that says what it is inside; a plain command's arrives as a class of
redis-py, without that word. Both are read here, once.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from unknot.recovery.errors import StoreUnavailable

if TYPE_CHECKING:
    import redis

# What a run uses, and no more: found by running one as a user that has only this.
RIGHTS = "on resetchannels ~unknot:* &unknot:* +@read +@write +@scripting +@pubsub +@transaction +@connection +info +time"
_DENIED_IN_SCRIPT = re.compile(r"NOPERM|ACL failure|executing the script can't|can't access at least one of the keys")
# How Redis says that it cannot write to disk, or not to enough replicas.
_NO_WRITES = ("MISCONF", "NOREPLICAS")


def refusal(error: Exception, where: str, client: redis.Redis) -> StoreUnavailable | None:
    """The error to raise instead of `error`, None for one that is the call's own fault. `client` is asked what is missing."""
    import redis

    said = one_line(error)
    if isinstance(error, redis.AuthenticationError):
        return StoreUnavailable(where=where, why=_login(said), todo="check user and password in the URL", lasting=True)
    if isinstance(error, redis.exceptions.NoPermissionError):
        return _denied(said, where)
    if _DENIED_IN_SCRIPT.search(said):
        return _denied(_missing(client) or said, where)
    if isinstance(error, redis.exceptions.ReadOnlyError) or "READONLY" in said:
        return _read_only(where, client)
    if isinstance(error, redis.exceptions.OutOfMemoryError) or "OOM " in said:
        return StoreUnavailable(
            where=where, why="it takes no writes (OOM: it uses all the memory that its maxmemory allows)",
            todo="raise maxmemory, remove what it need not keep, or use another Redis",
        )  # fmt: skip
    if any(word in said for word in _NO_WRITES):
        todo = "mend that in Redis; INFO persistence and INFO replication say more"
        return StoreUnavailable(where=where, why=f"it takes no writes ({said})", todo=todo)
    return None


def one_line(error: Exception) -> str:
    """The first line of what `error` says, or its class."""
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _login(said: str) -> str:
    if "required" in said.lower() or "NOAUTH" in said:
        return "it wants a password (NOAUTH)"
    return "it refuses this user or password (WRONGPASS)"


def _denied(said: str, where: str) -> StoreUnavailable:
    if "keys" in said or "a key" in said:
        missing = "the keys unknot:*"
    elif "channel" in said:
        missing = "the channels unknot:*"
    else:
        command = re.search(r"'([\w|-]+)'", said)
        missing = f"the command {command[1].upper()}" if command else "one of the commands"
    return StoreUnavailable(
        where=where, why=f"its user has no permission (NOPERM) for {missing}",
        todo=f"have its administrator run ACL SETUSER NAME {RIGHTS}", lasting=True,
    )  # fmt: skip


def _missing(client: redis.Redis) -> str | None:
    """Redis does not say which command a script may not use, but it does say which plain command it refuses."""
    import redis

    key = "unknot:{check}:check"
    for command in (("TIME",), ("GET", key), ("SET", key, "1", "PX", 1), ("DEL", key)):
        try:
            client.execute_command(*command)  # type: ignore[no-untyped-call]
        except redis.exceptions.NoPermissionError as error:
            return one_line(error)
        except redis.RedisError:
            continue
    return None


def _read_only(where: str, client: redis.Redis) -> StoreUnavailable:
    primary = _primary(client)
    return StoreUnavailable(
        where=where, why="this is a read-only replica (READONLY)",
        todo=f"use the address of its primary{f', which it says is {primary}' if primary else ''}",
    )  # fmt: skip


def _primary(client: redis.Redis) -> str | None:
    import redis

    with contextlib.suppress(redis.RedisError):
        told = client.info("replication")
        if told.get("master_host"):
            return f"{told['master_host']}:{told.get('master_port', '')}"
    return None
