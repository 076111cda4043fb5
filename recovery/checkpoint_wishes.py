"""What a driver asks of those who save, and what they tell of saves that failed.

A wish for a manifest is a token that the first rank of the group finds at its next step boundary; it says at which step of which
generation it has begun, so that the driver waits for that manifest and for no older one. A generation that is lost with the save under way
leaves the wish standing, and the next one begins it again. A failed save stands under its group until the next commit.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

import msgspec

from unknot.recovery.answers import ask, refuse_fenced
from unknot.recovery.checkpoint_errors import CheckpointFailed
from unknot.recovery.checkpoints import Place
from unknot.recovery.ports import Store


class FailedSave(msgspec.Struct, frozen=True, kw_only=True):
    """The last save of a group that failed, while none was committed since.

    since: when the first of them did, by Redis' clock. n: how many there are. first: why the first one failed. committed: the step
    of the manifest that the group goes on from, None if it has none.
    """

    group: str
    generation: int
    seq: int
    source: str
    why: str
    todo: str
    since: str = ""
    n: int = 1
    first: str = ""
    committed: int | None = None

    def told(self) -> str:
        """All of them in a sentence."""
        many = f"{self.n} checkpoints" if self.n > 1 else "1 checkpoint"
        since = "" if self.committed is None else f" since step {self.committed}"
        return f"{many} of group {self.group} failed, none was committed{since}: {self.first or self.why}"

    def error(self) -> CheckpointFailed:
        """The same as an error."""
        return CheckpointFailed(group=self.group, seq=self.seq, why=self.why, todo=self.todo)


class Begun(NamedTuple):
    """Where the save that was asked for has begun."""

    generation: int
    seq: int


def wish(store: Store, group: str) -> str:
    """Ask a group for a manifest at its next step boundary; the wish's token."""
    token = secrets.token_hex(8)
    store.command("HSET", store.key("manifest_wanted"), group, token)
    return token


def wished(store: Store, group: str) -> str:
    """The token of the wish that stands, '' if none does."""
    token = store.command("HGET", store.key("manifest_wanted"), group)
    return token.decode() if token else ""


def forget_wish(store: Store, group: str, token: str) -> None:
    """The driver waits for it no longer."""
    if wished(store, group) == token:
        store.command("HDEL", store.key("manifest_wanted"), group, f"{group}|begun")


def note_begun(store: Store, place: Place, token: str, seq: int) -> None:
    """The save that was asked for begins."""
    store.command("HSET", store.key("manifest_wanted"), f"{place.group}|begun", f"{token} {place.generation} {seq}")


def begun(store: Store, group: str, token: str) -> Begun | None:
    """Where the save asked for by this wish has begun last, None if it has not."""
    found = store.command("HGET", store.key("manifest_wanted"), f"{group}|begun")
    if found is None:
        return None
    of, generation, seq = found.decode().split(" ")
    return Begun(int(generation), int(seq)) if of == token else None


def note_failed_save(store: Store, place: Place, error: CheckpointFailed) -> None:
    """A save has failed, and not for its generation being over. FencedError."""
    failed = FailedSave(
        group=place.group, generation=place.generation, seq=error.seq, source=place.source, why=error.why, todo=error.todo
    )  # fmt: skip
    me = (place.member, place.incarnation)
    body = msgspec.json.encode(failed)
    refuse_fenced(ask(store, "manifest_failed", place.group, place.generation, *me, error.seq, body), *me)


def failed_saves(store: Store) -> dict[str, FailedSave]:
    """By group: the last failed save of each whose newest save was not committed."""
    flat = store.command("HGETALL", store.key("manifest_failed"))
    pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return {group.decode(): _failed_save(text) for group, text in pairs}


def _failed_save(text: bytes) -> FailedSave:
    head, newest, first = text.split(b"\n")
    since, _, n, step = head.decode().split(" ")
    return msgspec.structs.replace(
        msgspec.json.decode(newest, type=FailedSave), since=since, n=int(n),
        first=msgspec.json.decode(first, type=FailedSave).why, committed=None if step == "-" else int(step),
    )  # fmt: skip
