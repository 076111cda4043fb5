"""The store over redis-py: everything of one run, scripts by name, with retries that cannot run anything twice.

A lost answer is the hard case: the connection breaks after Redis has run a script and before it could say so. The
store simply asks again until its limit, and each script is written so that the same question gets the same answer
(by ticket, by boot token, by number). So retries sit here, once, and no caller has any. redis-py's own retries are
switched off: two nested loops would multiply their limits.

Blocking pops have a pool of their own: their sockets may stay silent for as long as a pop may last, while a
silent socket of any other command is a failure. Both pools make new connections in a forked child.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
import tenacity

from unknot.recovery.errors import RunClosed, StoreUnavailable
from unknot.recovery.ports import RedisValue
from unknot.supervisor.store.address import shown_address
from unknot.supervisor.store.location import validate_run_name
from unknot.supervisor.store.probe import check_rights, check_server
from unknot.supervisor.store.refusals import refusal
from unknot.supervisor.store.scripts import Script, load_script
from unknot.supervisor.store.subscription import Subscription

if TYPE_CHECKING:
    import redis

T = TypeVar("T")
# Redis answers a BLPOP up to a tenth of a second late; a longer pop is made of slices of this length.
POP_SLICE_S = 5.0


class StoreLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long the store waits, in seconds: to connect, for one answer, and in all before it gives up."""

    connect_s: float = 5.0
    answer_s: float = 5.0
    retry_s: float = 10.0


class _Clients(NamedTuple):
    pid: int
    quick: redis.Redis
    popping: redis.Redis


class RedisStore:
    """One run in one Redis. Safe to share between threads, and usable in a forked child.

    Attributes: `run`, `where` (the address as it may be shown, without password), `limits`, `warnings` (what of the server a person
    should know, found by `connect`).
    """

    def __init__(self, url: str, run: str, limits: StoreLimits) -> None:
        self._url = url
        self._run = validate_run_name(run)
        self._prefix = f"unknot:{{{run}}}:"
        self._lock = threading.Lock()
        self._clients: _Clients | None = None
        self._inherited: list[_Clients] = []
        self._ended = False
        self.where = shown_address(url)
        self.limits = limits
        self.warnings: tuple[str, ...] = ()

    @classmethod
    def connect(cls, url: str, run: str, *, limits: StoreLimits | None = None, writes: bool = True) -> RedisStore:
        """A store whose Redis has been reached and found usable.

        `writes` False is for who only looks: a replica, and a Redis without memory left, can be looked at.

        Raises:
            ConfigError: `url` is no Redis URL, or `run` cannot name a run.
            StoreUnavailable: not reachable within `limits.connect_s`, wrong password, not Redis (Ray's GCS uses the
                same default port), older than 6.2, permissions that its user lacks, or no writes (a replica, no memory). The
                message holds no password.
        """
        store = cls(url, run, limits or StoreLimits())
        try:
            client = store._client().quick
            check_server(client, url, store.where)
            store.warnings = check_rights(client, store.where, store.key(), writes=writes)
        except BaseException:
            store.close()
            raise
        return store

    @property
    def run(self) -> str:
        """The run's name."""
        return self._run

    def key(self, *parts: str) -> str:
        """The full key `unknot:{run}:part:part`; without parts the prefix that scripts take as KEYS[1]."""
        return self._prefix + ":".join(parts)

    def script(self, name: str, keys: Sequence[str], args: Sequence[RedisValue]) -> Any:
        """Run the script `name`.lua. Runs again when the answer was lost, so scripts must answer the same twice.

        Raises:
            StoreUnavailable: not answered within `limits.retry_s`.
            redis.ResponseError: the script itself failed.
        """
        script = load_script(name)
        return self._persist(lambda: self._run_script(script, keys, args))

    def command(self, *args: RedisValue) -> Any:
        """Run one plain command; it may run twice when its answer is lost. Errors as `script`."""
        return self._persist(lambda: self._client().quick.execute_command(*args))  # type: ignore[no-untyped-call]

    def blocking_pop(self, key: str, *, timeout_s: float) -> bytes | None:
        """Take the first element of the list `key`, waiting up to `timeout_s` seconds; None if there was none.

        An element that was popped while the connection broke is lost; callers treat it as a hint, not as the truth.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            # BLPOP takes 0 as "for ever".
            slice_s = max(0.01, min(POP_SLICE_S, deadline - time.monotonic()))
            popped = self._persist(functools.partial(self._pop_once, key, slice_s))
            if popped is not None:
                return popped
            if time.monotonic() >= deadline:
                return None

    def publish(self, channel: str, payload: bytes) -> int:
        """Send `payload` to the subscribers of the run's `channel`; how many there were."""
        return int(self.command("PUBLISH", self.key(channel), payload))

    def listen(self, channels: Sequence[str]) -> Subscription:
        """A subscription to the run's `channels` (without prefix), on a connection of its own."""
        return Subscription(self._new_client(POP_SLICE_S + self.limits.answer_s), self._prefix, tuple(channels))

    def pipeline(self) -> redis.client.Pipeline:
        """A pipeline of redis-py, one transaction, without retries, for a publisher that drops and counts instead of waiting."""
        return self._client().quick.pipeline(transaction=True)

    def time(self) -> float:
        """The time by Redis' clock, in seconds since the epoch."""
        seconds, micros = self.command("TIME")
        return int(seconds) + int(micros) / 1e6

    def close(self) -> None:
        """Give the connections back. The store connects again if it is used again."""
        with self._lock:
            clients, self._clients = self._clients, None
        if clients is not None and clients.pid == os.getpid():
            clients.quick.connection_pool.disconnect()
            clients.popping.connection_pool.disconnect()

    def end(self) -> None:
        """Close for good: the run is over, and whoever still uses the store gets RunClosed at once. Idempotent."""
        self._ended = True
        self.close()

    def __enter__(self) -> RedisStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RedisStore run {self._run} at {self.where}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return RedisStore, (self._url, self._run, self.limits)

    def _client(self) -> _Clients:
        clients = self._clients
        if clients is not None and clients.pid == os.getpid():
            return clients
        with self._lock:
            if self._clients is not None and self._clients.pid != os.getpid():
                # A forked child must neither use nor close the parent's sockets, so they are kept, unused.
                self._inherited.append(self._clients)
                self._clients = None
            if self._clients is None:
                quick = self._new_client(self.limits.answer_s)
                popping = self._new_client(POP_SLICE_S + self.limits.answer_s)
                self._clients = _Clients(os.getpid(), quick, popping)
            return self._clients

    def _pop_once(self, key: str, slice_s: float) -> bytes | None:
        popped: Any = self._client().popping.blpop([key], timeout=slice_s)
        return None if popped is None else bytes(popped[1])

    def _new_client(self, silence_s: float) -> redis.Redis:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis.from_url(
            self._url,
            socket_timeout=silence_s,
            socket_connect_timeout=self.limits.connect_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )

    def _run_script(self, script: Script, keys: Sequence[str], args: Sequence[RedisValue]) -> Any:
        from redis.exceptions import NoScriptError

        client = self._client().quick
        try:
            return client.evalsha(script.sha, len(keys), *keys, *args)
        except NoScriptError:
            return client.eval(script.text, len(keys), *keys, *args)

    def _persist(self, attempt: Callable[[], T]) -> T:
        """Run `attempt` until it is answered or the limit has passed."""
        from redis import exceptions as failures

        try:
            try:
                return self._attempted(attempt)
            except (failures.ConnectionError, failures.TimeoutError):
                return self._again(attempt)
        except (failures.AuthenticationError, failures.ResponseError) as error:
            known = refusal(error, self.where, self._client().quick)
            if known is None:
                raise
            raise known from None

    def _attempted(self, attempt: Callable[[], T]) -> T:
        if self._ended:
            raise self._is_over()
        try:
            return attempt()
        except Exception:
            # Whoever stands in it when the connections go meets whatever the closed socket says.
            if self._ended:
                raise self._is_over() from None
            raise

    def _is_over(self) -> RunClosed:
        return RunClosed(run=self._run, call="what belongs to it")

    def _again(self, attempt: Callable[[], T]) -> T:
        from redis import exceptions as failures

        # Of these only a refused password does not pass by itself.
        lost = (failures.ConnectionError, failures.TimeoutError)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, lost) and not isinstance(error, failures.AuthenticationError)
            ),
            stop=tenacity.stop_after_delay(self.limits.retry_s),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=0.5),
            reraise=True,
        )
        try:
            return retrying(lambda: self._attempted(attempt))
        except failures.AuthenticationError:
            raise
        except lost as error:
            raise StoreUnavailable(
                where=self.where,
                why=f"no answer within {self.limits.retry_s:g} s ({type(error).__name__})",
                todo="check that Redis runs and can be reached from this host",
            ) from None
