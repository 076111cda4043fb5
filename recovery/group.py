"""Generations of a collective group: all ranks join, the generation runs, somebody breaks it, the next one forms.

A generation is complete when every rank has joined it, and from then on nobody can be exchanged in it: its ranks
meet at its own rendezvous, and a late packet of another generation must never reach that. So a rank that joins
anew, after an error of its own or as a new process, is proof that the generation in which it stood is over. Each
join carries a token, by which the store tells the same join asked again from a new one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from unknot.recovery.answers import Answer, ask, check_name, refuse_fenced
from unknot.recovery.errors import (
    ConfigError,
    DeadlockInterrupted,
    GroupDone,
    LeaseLost,
    RunClosed,
    StaleGeneration,
    WaitTimeout,
)
from unknot.recovery.points import reached
from unknot.recovery.ports import Store
from unknot.recovery.waiting import Mode

GroupState = Literal["", "forming", "running", "broken", "done"]
# The steps of a re-form at which a process may die, and of a group's end.
REFORM_POINTS = (
    "group.break.before",
    "group.break.marked",
    "group.break.after",
    "group.end.before",
    "group.end.after",
    "group.leave.before",
    "group.leave.shut",
    "group.leave.after",
    "group.join.before",
    "group.join.waiting",
    "group.joined",
    "group.told",
    "group.met",
    "group.reduced",
    "group.connected",
    "group.saving.connected",
    "group.running.before",
    "group.running",
    "group.unformed.before",
    "group.unformed.marked",
    "group.unformed.after",
    "group.agreed",
    "group.entered",
    "group.done.before",
    "group.done.after",
)
_SLICE_S = 0.25


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group as the store has it. `ranks` are sources (`trainer/0#1`), None where nobody has joined yet."""

    name: str
    generation: int
    state: GroupState
    size: int
    ranks: tuple[str | None, ...]
    reason: str = ""

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that have not joined."""
        return tuple(rank for rank, source in enumerate(self.ranks) if source is None)


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one join: `sources` by rank once all have joined, else empty."""

    generation: int
    complete: bool
    sources: tuple[str, ...] = ()


class GroupSlot:
    """One rank's place in one generation.

    Attributes: `name`, `generation`, `rank`, `size`, `sources` (of all ranks), `member`, `incarnation`.
    """

    def __init__(self, asking: _Asking, joined: Joined) -> None:
        self.name = asking.name
        self.generation = joined.generation
        self.rank = asking.rank
        self.size = asking.size
        self.sources = joined.sources
        self.member = asking.member
        self.incarnation = asking.incarnation
        self._store = asking.store

    @classmethod
    def join(
        cls,
        store: Store,
        name: str,
        *,
        size: int,
        rank: int,
        member: str,
        incarnation: int,
        give_up: Callable[[], Exception | None] = lambda: None,
        while_missing: Callable[[int], None] = lambda _generation: None,
        timeout_s: float | None = None,
    ) -> GroupSlot:
        """Join the next generation of group `name` and wait until all `size` ranks have.

        A generation in which this rank already stood, complete, is broken by that: it is over.

        Args:
            store: of the run.
            name: the group's.
            size: number of ranks.
            rank: of this process, from 0.
            member: of this process.
            incarnation: of this process.
            give_up: asked a few times a second; what it answers is raised, after leaving.
            while_missing: told the generation that forms, a few times a second until all ranks have joined it.
            timeout_s: seconds to wait at most, None for ever.

        Raises:
            ConfigError: rank and size do not fit, or a generation of another size is forming.
            GroupDone: every rank's run has returned, so there is nothing left to join for.
            WaitTimeout, DeadlockInterrupted, RunClosed, FencedError: as every wait.
        """
        asking = _Asking(store=store, name=name, size=size, rank=rank, member=member, incarnation=incarnation)
        asking.while_missing = while_missing
        return cls(asking, asking.until_complete(give_up, timeout_s))

    def running(self) -> None:
        """Say that the generation's process group works. StaleGeneration when the generation is over; FencedError."""
        self._mark("running")

    def done(self) -> None:
        """Say that this rank's run has returned; the group is done when all ranks say so. Errors as `running`."""
        self._mark("done")

    def reason_if_broken(self) -> str | None:
        """Why this generation is over, None while it stands."""
        status = group_status(self._store, self.name)
        if status.generation != self.generation:
            return f"generation {status.generation} has begun"
        return (status.reason or "broken") if status.state == "broken" else None

    def is_done(self) -> bool:
        """Whether every rank's run has returned in this generation."""
        status = group_status(self._store, self.name)
        return (status.generation, status.state) == (self.generation, "done")

    def break_(self, reason: str) -> bool:
        """End this generation; whether it is ended now by it (False: a later one stands, or it is done)."""
        return break_group(
            self._store, self.name, self.generation, reason=reason, source=(self.member, self.incarnation)
        )

    def __repr__(self) -> str:
        return f"<GroupSlot {self.name} generation {self.generation} rank {self.rank} of {self.size}>"

    def _mark(self, mark: str) -> None:
        me = (self.member, self.incarnation)
        answer = ask(self._store, "group_mark", self.name, *me, self.generation, self.rank, mark)
        refuse_fenced(answer, *me)
        if answer.word == "gone":
            reason = answer.text(2) or f"generation {answer.text()} is {answer.text(1)}"
            raise StaleGeneration(group=self.name, generation=self.generation, reason=reason)


class _Asking:
    """One wish to join: its token makes asking again the same wish."""

    def __init__(self, *, store: Store, name: str, size: int, rank: int, member: str, incarnation: int) -> None:
        if not 0 <= rank < size:
            raise ConfigError(what=f"rank {rank} does not fit size {size}", todo="ranks go from 0 to size - 1")
        self.store = store
        self.name = check_name("group", name)
        self.size = size
        self.rank = rank
        self.member = member
        self.incarnation = incarnation
        self.participant = f"{member}#{incarnation}/join:{name}"
        self.token = secrets.token_hex(8)
        self.while_missing: Callable[[int], None] = lambda _generation: None

    def once(self, mode: Mode = "wait") -> Joined | None:
        """Ask once; None after leaving."""
        who = (self.member, self.incarnation)
        answer = ask(
            self.store, "group_join", self.name, *who, self.participant, self.token, self.size, self.rank, mode
        )
        refuse_fenced(answer, *who)
        return self._understood(answer)

    def _understood(self, answer: Answer) -> Joined | None:
        if answer.word == "closed":
            raise RunClosed(run=self.store.run)
        if answer.word == "done":
            raise GroupDone(group=self.name, generation=answer.number())
        if answer.word == "interrupted":
            raise DeadlockInterrupted(
                participant=self.participant, resource=f"group {self.name}", incident=answer.text()
            )
        if answer.word == "differs":
            raise ConfigError(
                what=f"group {self.name} is forming with {answer.text()} ranks, not {self.size}",
                todo="give every rank the same size",
            )
        if answer.word == "left":
            return None
        complete = answer.word == "granted"
        sources = tuple(source.decode() for source in answer.rest[1:]) if complete else ()
        return Joined(generation=answer.number(), complete=complete, sources=sources)

    def until_complete(self, give_up: Callable[[], Exception | None], timeout_s: float | None) -> Joined:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        wake_key = self.store.key("wake", f"{self.participant}|{self.token}")
        joined = self.once()
        if joined is not None and not joined.complete:
            reached("group.join.waiting", self.member)
        while joined is None or not joined.complete:
            if joined is not None:
                self.while_missing(joined.generation)
            self.store.blocking_pop(wake_key, timeout_s=_SLICE_S)
            error = give_up()
            if error is None and deadline is not None and time.monotonic() >= deadline:
                error = WaitTimeout(
                    participant=self.participant, resource=f"group {self.name}", timeout_s=timeout_s or 0.0
                )
            joined = self.once("wait" if error is None else "leave")
            if error is not None and joined is None:
                raise error
        return joined


def join_once(store: Store, name: str, *, size: int, rank: int, member: str, incarnation: int, token: str) -> Joined:
    """Join without waiting; asking again with the same `token` is the same join. Errors as GroupSlot.join."""
    asking = _Asking(store=store, name=name, size=size, rank=rank, member=member, incarnation=incarnation)
    asking.token = token
    joined = asking.once("try")
    assert joined is not None, "only leaving answers nothing"
    return joined


def break_group(
    store: Store,
    name: str,
    generation: int,
    *,
    reason: str,
    source: tuple[str, int] | None = None,
    leader_token: int | None = None,
) -> bool:
    """End `generation` of a group, if it is the one that stands: whether it is broken now. Twice is once.

    Args:
        store: of the run.
        name: the group's.
        generation: the one to end.
        reason: for people, in a few words.
        source: (member, incarnation) of a rank; None for the supervisor.
        leader_token: of the monitor that decided it.

    Raises:
        FencedError: a newer incarnation than `source` stands.
        LeaseLost: another monitor leads.
    """
    member, incarnation = source or ("", "")
    token = "" if leader_token is None else leader_token
    answer = ask(store, "group_break", name, generation, reason, member, incarnation, token)
    if source is not None:
        refuse_fenced(answer, *source)
    if answer.word == "stale":
        raise LeaseLost(what="the lead", holder=f"token {answer.text()}")
    return answer.word == "broken"


def group_status(store: Store, name: str) -> GroupStatus:
    """The group as it stands; generation 0 and state '' when it never formed."""
    flat = store.command("HGETALL", store.key("group", name))
    pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    fields = {key.decode(): value.decode() for key, value in pairs}
    size = int(fields.get("size", 0))
    return GroupStatus(
        name=name,
        generation=int(fields.get("generation", 0)),
        state=fields.get("state", ""),
        size=size,
        ranks=tuple(fields.get(f"rank:{rank}") for rank in range(size)),
        reason=fields.get("reason", ""),
    )


def group_names(store: Store) -> tuple[str, ...]:
    """The names of all groups of the run, sorted."""
    return tuple(sorted(name.decode() for name in store.command("SMEMBERS", store.key("groups"))))
