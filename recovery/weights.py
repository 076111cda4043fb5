"""Published weights: the newest version under a name, and waits for it.

A version is (generation, n, digest). The newest generation wins, since an older one is an abandoned time-line;
within a generation n never falls. Publishing what stands already is nothing, so a repeated step or a lost answer
does no harm.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Sequence
from typing import Any

import msgspec

from unknot.graph.events import Atom, Clause, Resource
from unknot.recovery.answers import Answer, ask, check_name, refuse_fenced
from unknot.recovery.errors import ConfigError, StaleWeights
from unknot.recovery.ports import Recorder, Store
from unknot.recovery.waiting import Mode, Request, obtain

# Redis takes strings of up to 512 MiB.
VALUE_LIMIT = 500 * 1024 * 1024


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """Which weights: name, generation of the group that published them, number, digest of their bytes."""

    name: str
    generation: int
    n: int
    digest: str


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Weights with their version. `at` is when they were published: Redis' time, seconds since the epoch."""

    version: Version
    value: Any
    at: float


class Weights:
    """The weights `name` of a run.

    Args:
        name: theirs in the run.
        store: of the run.
        recorder: of this process.
        publishers: participants that are the only ones who publish, so that a wait for weights that can never come
            is proved; None: anybody may.
        value_limit: bytes of one version at most.

    Raises:
        ConfigError: `name` cannot name weights.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        recorder: Recorder,
        *,
        publishers: Sequence[str] | None = None,
        value_limit: int = VALUE_LIMIT,
    ) -> None:
        self.name = check_name("set of weights", name)
        self.value_limit = value_limit
        self._publishers = None if publishers is None else tuple(publishers)
        self._store = store
        self._recorder = recorder

    def publish(self, value: Any, generation: int = 0, *, n: int | None = None) -> Version:
        """Make `value` the newest version.

        Args:
            value: anything that pickle takes.
            generation: of the group that made it; 0 outside of groups.
            n: its number; None: the next one.

        Raises:
            StaleWeights: a newer generation, or a larger n of this one, is published.
            ConfigError: the value is too large.
            FencedError: a newer incarnation of this member has registered.
        """
        body = pickle.dumps(value, protocol=5)
        if len(body) > self.value_limit:
            raise ConfigError(
                what=f"weights {self.name} of {len(body)} bytes are too large (limit {self.value_limit})",
                todo="publish a reference to them (a path, an ObjectRef), or a smaller state",
            )
        digest = hashlib.blake2b(body, digest_size=16).hexdigest()
        wanted = "" if n is None else n
        answer = ask(self._store, "weights_publish", self.name, *self._who(), wanted, generation, digest, body)
        refuse_fenced(answer, self._recorder.member, self._recorder.incarnation)
        if answer.word == "stale":
            current_n, current_generation = answer.number(0), answer.number(1)
            raise StaleWeights(
                name=self.name,
                n=current_n + 1 if n is None else n,
                generation=generation,
                current_n=current_n,
                current_generation=current_generation,
            )
        return Version(name=self.name, generation=generation, n=answer.number(), digest=digest)

    def latest(self, at_least: int | None = None, timeout_s: float | None = None) -> Published:
        """The newest version; waits until there is one whose n is `at_least` (None: any).

        Raises:
            WaitTimeout: (a TimeoutError) none in `timeout_s` seconds (None: for ever, 0: do not wait).
            DeadlockInterrupted, RunClosed, FencedError: as every wait.
        """
        granted = obtain(self._store, self._recorder, self._asking(at_least or 0), timeout_s=timeout_s)
        version = Version(name=self.name, n=granted.number(0), generation=granted.number(1), digest=granted.text(2))
        return Published(version=version, at=float(granted.text(3)), value=pickle.loads(granted.rest[4]))

    def __repr__(self) -> str:
        return f"<Weights {self.name} of run {self._store.run}>"

    def _who(self) -> tuple[str, int, str, int]:
        me = self._recorder
        return me.member, me.incarnation, me.participant(), me.next_ticket()

    def _asking(self, at_least: int) -> Request:
        who = self._who()
        event = Resource(r=f"event:weights:{self.name}:{max(at_least, 1)}", type="event", setters=self._publishers)

        def ask_latest(mode: Mode) -> Answer:
            return ask(self._store, "weights_latest", self.name, *who, mode, at_least)

        return Request(
            participant=who[2],
            ticket=who[3],
            resource=event,
            needs=(Clause(k=1, of=(Atom(r=event.r),)),),
            ask=ask_latest,
            give_back=lambda _: None,
        )
