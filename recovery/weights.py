"""Published weights: the newest versions under a name, and waits for them.

A version is (generation, n, digest). The newest generation wins, since an older one is an abandoned time-line;
within a generation n never falls. Publishing what stands already is nothing, so a repeated step, a lost answer, or a whole
re-formed group that computes the same again does no harm. When a newer generation publishes other weights under a number,
those win, and the versions after them are void. The newest 16 are kept, so that `exact=n` finds what a repeated step asks for.

A version is provisional until a manifest covers it: it may be used, and may turn out to belong to an abandoned time-line.
"""

from __future__ import annotations

import hashlib
import pickle
from typing import Any

import msgspec

from unknot.graph.events import Atom, Clause, Resource
from unknot.graph.ids import WEIGHTS
from unknot.recovery.answers import Answer, ask, check_name, refuse_fenced
from unknot.recovery.errors import ConfigError, RunClosed, StaleWeights, WeightsGone
from unknot.recovery.items import pickled
from unknot.recovery.ports import Recorder, Store
from unknot.recovery.waiting import Mode, Request, obtain
from unknot.recovery.weight_rights import check_publish, rights_of

# Redis takes strings of up to 512 MiB.
VALUE_LIMIT = 500 * 1024 * 1024
VERSIONS_KEPT = 16


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """Which weights: name, generation of the group that published them, number, digest of their bytes."""

    name: str
    generation: int
    n: int
    digest: str


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """Weights with their version. `at` is when they were published: Redis' time, seconds since the epoch.

    `provisional`: no manifest covers them yet.
    """

    version: Version
    value: Any
    at: float
    provisional: bool = True


class Weights:
    """The weights `name` of a run.

    Args:
        name: theirs in the run.
        store: of the run.
        recorder: of this process.
        value_limit: bytes of one version at most.
        keep: how many versions are kept.

    Raises:
        ConfigError: `name` cannot name weights.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        recorder: Recorder,
        *,
        value_limit: int = VALUE_LIMIT,
        keep: int = VERSIONS_KEPT,
    ) -> None:
        self.name = check_name("set of weights", name)
        self.value_limit = value_limit
        self.keep = keep
        self._may_publish = False
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
            ConfigError: the value is too large, or this member may not publish here.
            FencedError: a newer incarnation of this member has registered.
        """
        self.check_publish()
        body, digest = self.packed(value)
        wanted = "" if n is None else n
        answer = ask(self._store, "weights_publish", self.name, *self._who(), wanted, generation, digest, self.keep, body)
        refuse_fenced(answer, self._recorder.member, self._recorder.incarnation)
        if answer.word == "stale":
            current_n, current_generation = answer.number(0), answer.number(1)
            raise StaleWeights(
                name=self.name, n=current_n + 1 if n is None else n, generation=generation, current_n=current_n,
                current_generation=current_generation,
            )  # fmt: skip
        return Version(name=self.name, generation=generation, n=answer.number(), digest=digest)

    def check_publish(self) -> None:
        """ConfigError if this member may not publish here."""
        if not self._may_publish:
            check_publish(self._store, self.name, self._recorder.member)
            self._may_publish = True

    def packed(self, value: Any) -> tuple[bytes, str]:
        """The bytes of a version and their digest. ConfigError: it does not pickle, or is too large."""
        body = pickled(value, what=f"weights {self.name}")
        if len(body) > self.value_limit:
            raise ConfigError(
                what=f"weights {self.name} of {len(body)} bytes are too large (limit {self.value_limit})",
                todo="publish a reference to them (a path, an ObjectRef), or a smaller state",
            )
        return body, hashlib.blake2b(body, digest_size=16).hexdigest()

    def latest(self, at_least: int | None = None, timeout_s: float | None = None, *, exact: int | None = None) -> Published:
        """The newest version; waits until there is one whose n is `at_least` (None: any), or for the version `exact`.

        Raises:
            WaitTimeout: (a TimeoutError) none in `timeout_s` seconds (None: for ever, 0: do not wait).
            WeightsGone: `exact` is older than the versions that are kept.
            DeadlockInterrupted, RunClosed, FencedError: as every wait.
        """
        wanted = (at_least or 0, "" if exact is None else exact)
        least = exact if exact is not None else max(at_least or 0, 1)
        answer = self._ask(self._who(), "try", wanted)
        if answer.word == "empty":
            request = self._request(wanted, least, rights_of(self._store, self.name).patterns())
            answer = obtain(self._store, self._recorder, request, timeout_s=timeout_s)
        if answer.word == "gone":
            raise WeightsGone(name=self.name, n=least, newest=answer.number())
        if answer.word == "closed":
            raise RunClosed(run=self._store.run)
        refuse_fenced(answer, self._recorder.member, self._recorder.incarnation)
        version = Version(name=self.name, n=answer.number(0), generation=answer.number(1), digest=answer.text(2))
        value = pickle.loads(answer.rest[5])
        return Published(version=version, at=float(answer.text(3)), provisional=answer.number(4) == 1, value=value)

    def __repr__(self) -> str:
        return f"<Weights {self.name} of run {self._store.run}>"

    def _who(self) -> tuple[str, int, str, int]:
        me = self._recorder
        return me.member, me.incarnation, me.participant(), me.next_ticket()

    def _ask(self, who: tuple[str, int, str, int], mode: Mode, wanted: tuple[int, int | str]) -> Answer:
        return ask(self._store, "weights_latest", self.name, *who, mode, *wanted)

    def _request(self, wanted: tuple[int, int | str], least: int, setters: tuple[str, ...] | None) -> Request:
        who = self._who()
        event = Resource(r=f"{WEIGHTS}{self.name}:{least}", type="event", setters=setters)
        return Request(
            participant=who[2],
            ticket=who[3],
            resource=event,
            needs=(Clause(k=1, of=(Atom(r=event.r),)),),
            ask=lambda mode: self._ask(who, mode, wanted),
            give_back=lambda _: None,
        )


def settle_weights(store: Store, name: str, n: int, *, generation: int = 0) -> bool:
    """Say that a manifest covers the versions up to `n` of weights `name`: later ones are provisional.

    Args:
        store: of the run.
        name: of the weights.
        n: the newest version that belongs to the manifest; 0 for none.
        generation: of the group that wrote it.

    Returns:
        False when a newer generation has published: its time-line is another one, nothing was changed.
    """
    return ask(store, "weights_settle", name, n, generation).word == "ok"


def standing_digest(store: Store, name: str, n: int) -> str | None:
    """The digest of the version `n` that stands now, '' if none does; None if it may have: it is not kept any more."""
    told, newest = store.command("HGET", store.key("weightsm", name), n), store.command("HGET", store.key("weights", name), "n")
    if told is not None:
        return str(told.decode().split("|")[1])
    return "" if newest is None or n > int(newest) else None
