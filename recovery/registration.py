"""A member's registration: its incarnation, its lease, its end."""

from __future__ import annotations

import secrets
from typing import Literal

import msgspec

from unknot.recovery.answers import ask, ask_as_member
from unknot.recovery.errors import ConfigError, LeaseLost
from unknot.recovery.points import reached
from unknot.recovery.ports import Store
from unknot.recovery.values import shown

DEFAULT_LEASE_S = 5.0


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A registered process. `locks_freed` and `items_put_back` are what older incarnations had to give up."""

    member: str
    role: str
    incarnation: int
    boot: str
    lease_s: float
    locks_freed: int = 0
    items_put_back: int = 0

    @property
    def source(self) -> str:
        """`role/name#incarnation`."""
        return f"{self.member}#{self.incarnation}"


class Fenced(msgspec.Struct, frozen=True, kw_only=True):
    """What a fence did. `incarnation` is the one that now stands; `done` is False when a newer one already stood."""

    member: str
    incarnation: int
    done: bool
    locks_freed: int = 0
    items_put_back: int = 0


def new_boot() -> str:
    """A token for one process start: registering twice with it is one registration."""
    return secrets.token_hex(8)


def register(
    store: Store,
    member: str,
    *,
    role: str,
    pid: int,
    host: str,
    boot: str,
    lease_s: float = DEFAULT_LEASE_S,
    actor_id: str = "",
) -> Registration:
    """Register this process as `member`: the first act of every member, before any user code.

    Every older incarnation is void from this moment: its locks are passed on, its places in queues are gone, its
    unacknowledged items are back in their mailboxes, and whatever it writes is refused with FencedError.

    Args:
        store: of the run.
        member: `role/name`.
        role: trainer, agent, judge, environment, driver, ...
        pid: process id, on `host`.
        host: name of the node.
        boot: from `new_boot`, one per process start.
        lease_s: seconds without a heartbeat after which the member counts as dead.
        actor_id: Ray's id of the actor, '' if there is none.

    Raises:
        ConfigError: `member` is not `role/name`.
        StoreUnavailable: Redis did not answer within the store's limit.
    """
    check_member(member)
    reached("register.before", member)
    answer = ask(store, "register", member, role, pid, host, boot, lease_s, actor_id)
    reached("register.after", member)
    return Registration(
        member=member,
        role=role,
        incarnation=answer.number(0),
        boot=boot,
        lease_s=lease_s,
        locks_freed=answer.number(1),
        items_put_back=answer.number(2),
    )


def expect(store: Store, member: str, *, role: str) -> None:
    """Say that `member` will be started: it counts as one that runs until it registers or is said to have ended.

    For whoever starts members, before it does. Without it, members that wait for one whose process is still being
    made would wait, as far as anybody knows, for nobody.

    Raises:
        ConfigError: `member` is not `role/name`.
    """
    check_member(member)
    ask(store, "member_expect", member, role)


def heartbeat(store: Store, registration: Registration) -> str:
    """Renew the lease; the run's state (`live`, `closing`, `closed`, '' if no driver claimed it). FencedError."""
    return ask_as_member(store, "heartbeat", registration.member, registration.incarnation).text()


def end(
    store: Store, member: str, incarnation: int, *, state: Literal["done", "dead"] = "done", error: str = ""
) -> None:
    """Say that this incarnation's process has ended; saying it twice is nothing.

    What it holds stays held, and shows as held by a dead member, until its next registration or a fence.

    Raises:
        FencedError: a newer incarnation stands.
    """
    ask_as_member(store, "member_end", member, incarnation, state, error)


def crashed(store: Store, member: str, incarnation: int, *, how: str) -> Fenced:
    """Say that this incarnation's process is gone and that its successor is being started: a fence, and an expectation.

    For whoever saw it end and starts it again. From now on nobody who waits for the member is stuck.

    Args:
        store: of the run.
        member: `role/name`.
        incarnation: the one that is gone; nothing is done if a newer one stands.
        how: it ended, for people.
    """
    answer = ask(store, "member_crashed", member, incarnation, how)
    done = answer.word == "ok"
    return Fenced(
        member=member,
        incarnation=answer.number(0),
        done=done,
        locks_freed=answer.number(1) if done else 0,
        items_put_back=answer.number(2) if done else 0,
    )


def fence(store: Store, member: str, incarnation: int, *, why: str, leader_token: int | None = None) -> Fenced:
    """Void `incarnation` of a member that will not be started again, or may live on where nobody reaches it.

    Raises:
        LeaseLost: `leader_token` was given and is not the leader's any more.
    """
    token = "" if leader_token is None else leader_token
    answer = ask(store, "fence", member, incarnation, token, why)
    if answer.word == "stale":
        raise LeaseLost(what="the lead", holder=f"token {answer.text()}")
    done = answer.word == "ok"
    return Fenced(
        member=member,
        incarnation=answer.number(0),
        done=done,
        locks_freed=answer.number(1) if done else 0,
        items_put_back=answer.number(2) if done else 0,
    )


def is_member(name: object) -> bool:
    """Whether `name` is role/name, without signs that separate."""
    if not isinstance(name, str):
        return False
    role, slash, own = name.partition("/")
    return bool(role and slash and own) and "/" not in own and not any(sign in name for sign in "#| \n")


def check_member(member: str) -> None:
    """ConfigError unless `member` is role/name, without signs that separate."""
    if not is_member(member):
        raise ConfigError(what=f"{shown(member)} is no member", todo="name it role/name, such as agent/rollout-3")


class Crash(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a member that was lost and replaced. `at`: when that was told, Redis' time in seconds."""

    incarnation: int
    at: float
    how: str


class MemberInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the store has it: its newest incarnation. Times are Redis' time in seconds since the epoch.

    state: `starting`, `alive`, `done` or `dead`; `unknown` for a member that nobody has heard of. silent_s: how long ago the
    last heartbeat was, by Redis' clock. ended_at: 0 while it lives. records: number of the last record that its process says
    it has written, 0 if it says nothing. crash: the last one. progress_n, progress_at: how much its process has marked in all
    (0: nothing), and when last.
    """

    member: str
    role: str
    incarnation: int
    state: str
    pid: int = 0
    host: str = ""
    lease_s: float = DEFAULT_LEASE_S
    registered_at: float = 0.0
    beat_at: float = 0.0
    silent_s: float = 0.0
    ended_at: float = 0.0
    error: str = ""
    actor_id: str = ""
    records: int = 0
    crash: Crash | None = None
    progress_n: int = 0
    progress_at: float = 0.0

    @property
    def source(self) -> str:
        """`role/name#incarnation`."""
        return f"{self.member}#{self.incarnation}"

    @property
    def lease_passed(self) -> bool:
        """Whether an alive member has been silent for longer than its lease."""
        return self.state == "alive" and self.silent_s > self.lease_s


def members(store: Store) -> list[MemberInfo]:
    """All members that are expected or have registered in this run, sorted by name, at one instant."""
    at, *found = store.script("members", [store.key()], [])
    return [_member_info(name.decode(), flat, float(at)) for name, flat in found]


def one_member(store: Store, member: str) -> MemberInfo:
    """One member; state `unknown` and incarnation 0 if nobody has heard of it."""
    found = (info for info in members(store) if info.member == member)
    return next(found, MemberInfo(member=member, role=member.partition("/")[0], incarnation=0, state="unknown"))


def end_other(store: Store, member: str, *, state: Literal["done", "dead"], error: str = "") -> MemberInfo:
    """Say for another process that the member's present incarnation has ended; the member as it was before.

    For a driver or monitor that saw it end. A member that has registered anew in between is left alone.
    """
    before = one_member(store, member)
    if before.state != "unknown":
        ask(store, "member_end", member, before.incarnation, state, error)
    return before


def _member_info(name: str, flat: list[bytes], at: float) -> MemberInfo:
    fields = {key.decode(): value.decode(errors="replace") for key, value in zip(flat[::2], flat[1::2], strict=True)}
    beat_at = float(fields.get("beat_at") or 0)
    marks = _marks(fields.get("progress"))
    return MemberInfo(
        member=name,
        role=fields.get("role", ""),
        incarnation=int(fields.get("incarnation") or 0),
        state=fields.get("state", ""),
        pid=int(fields.get("pid") or 0),
        host=fields.get("host", ""),
        lease_s=float(fields.get("lease_s") or DEFAULT_LEASE_S),
        registered_at=float(fields.get("registered_at") or 0),
        beat_at=beat_at,
        silent_s=max(0.0, at - beat_at),
        ended_at=float(fields.get("ended_at") or 0),
        error=fields.get("error", ""),
        actor_id=fields.get("actor_id", ""),
        records=int(fields.get("n") or 0),
        crash=_crash(fields.get("crash")),
        progress_n=sum(mark.n for mark in marks),
        progress_at=max((mark.at for mark in marks), default=0.0),
    )


class _Marked(msgspec.Struct, frozen=True):
    n: int
    at: float


def _marks(text: str | None) -> list[_Marked]:
    """Of another version's process, none."""
    try:
        return list(msgspec.json.decode(text or "{}", type=dict[str, _Marked]).values())
    except msgspec.DecodeError:
        return []


def _crash(text: str | None) -> Crash | None:
    if text is None:
        return None
    incarnation, at, how = text.split("|", 2)
    return Crash(incarnation=int(incarnation), at=float(at), how=how)
