"""The members of a run as Redis has them."""

from __future__ import annotations

import msgspec

from unknot.recovery.ports import Store

# What a wait for a process that Ray still starts is called: slow at most, never an outside service.
STARTING = "start of "


class MemberInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One member: its newest incarnation and how it fares. Times are Redis' seconds; `ended_at` 0 while it lives.

    `records`: number of the last record that its process says it has written, 0 if it says nothing.
    """

    member: str
    role: str
    incarnation: int
    state: str
    pid: int
    host: str
    beat_at: float
    lease_s: float
    actor_id: str = ""
    error: str = ""
    ended_at: float = 0.0
    records: int = 0

    @property
    def source(self) -> str:
        """`role/name#incarnation`."""
        return f"{self.member}#{self.incarnation}"


def read_members(store: Store) -> list[MemberInfo]:
    """All members that ever registered, by name."""
    names = sorted(name.decode() for name in store.command("SMEMBERS", store.key("members")))
    return [read_member(store, name) for name in names]


def read_member(store: Store, member: str) -> MemberInfo:
    """One member; with incarnation 0 if it never registered."""
    flat = store.command("HGETALL", store.key("member", member))
    fields = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
    text = {key.decode(): value.decode(errors="replace") for key, value in fields.items()}
    return MemberInfo(
        member=member,
        role=text.get("role", member.partition("/")[0]),
        incarnation=int(text.get("incarnation", 0)),
        state=text.get("state", "unknown"),
        pid=int(text.get("pid", 0)),
        host=text.get("host", ""),
        beat_at=float(text.get("beat_at", 0)),
        lease_s=float(text.get("lease_s", 0)),
        actor_id=text.get("actor_id", ""),
        error=text.get("error", ""),
        ended_at=float(text.get("ended_at", 0)),
        records=int(text.get("n", 0)),
    )
