"""Calls of a trainer group by the driver: what is sent, what comes back, and which calls have failed.

A call is an item of a mailbox that the ranks `take`, so all of them get it in the same step and again whenever that step is
repeated; a reply is an item of another mailbox, sent once the step counts. So a wait for either is one that the detector knows, and
that the store can vouch for. A call whose method raised is marked as failed, in the store and before its generation is broken:
the next generation passes it over, on every rank alike, and tells the error.
"""

from __future__ import annotations

import msgspec

from unknot.recovery.answers import ask, refuse_fenced
from unknot.recovery.errors import CallFailed
from unknot.recovery.group import GroupSlot
from unknot.recovery.mailbox import Ack, Mailbox
from unknot.recovery.ports import Recorder, Store

# Nobody ever waits for room in either: one call is under way, and replies to calls that were given up are few.
_CAPACITY = 100_000


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call: `body` holds the arguments. Without a method it is an empty step."""

    id: str
    method: str
    body: bytes


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call has failed, of the first rank that said so: `cause` is the pickled error, empty where it does not pickle."""

    source: str
    error: str
    cause: bytes = b""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank answers: in which generation the call's step counted, and its result or the call's failure."""

    call: str
    generation: int
    body: bytes = b""
    failure: Failure | None = None


def calls_name(group: str) -> str:
    """The mailbox of a group's calls."""
    return f"calls.{group}"


def replies_name(group: str) -> str:
    """The mailbox of its replies."""
    return f"replies.{group}"


def declare_calls(
    store: Store, recorder: Recorder, group: str, ranks: tuple[str, ...], *, ack: Ack
) -> tuple[Mailbox, Mailbox]:
    """The mailboxes of a group's calls and replies, made by the driver before the ranks start.

    Args:
        store: of the run.
        recorder: of the driver.
        group: its name.
        ranks: its members.
        ack: until when calls are kept for repeats: `manifest` for trainers that have a state.
    """
    me = recorder.member
    calls = Mailbox(calls_name(group), store, recorder).declare(_CAPACITY, me, ranks, ack=ack)
    return calls, Mailbox(replies_name(group), store, recorder).declare(_CAPACITY, ranks, me)


def note_failure(store: Store, slot: GroupSlot, call: str, failure: Failure) -> None:
    """The call has failed, unless that was said before or this generation is over. FencedError."""
    me = (slot.member, slot.incarnation)
    body = msgspec.msgpack.encode(failure)
    refuse_fenced(ask(store, "call_failed", slot.name, slot.generation, *me, call, body), *me)


def failure_of(store: Store, call: str) -> Failure | None:
    """Why a call has failed, None if it has not."""
    body = store.command("HGET", store.key("call_errors"), call)
    return None if body is None else msgspec.msgpack.decode(body, type=Failure)


def note_answered(store: Store, slot: GroupSlot, seq: int) -> None:
    """This rank has sent its reply to the call of step `seq`."""
    store.command("HSET", store.key("calls_done"), f"{slot.name}/{slot.rank}", seq + 1)


def answered_by_all(store: Store, slot: GroupSlot) -> int:
    """How many calls all ranks have answered: where a group without a state goes on."""
    fields = [f"{slot.name}/{rank}" for rank in range(slot.size)]
    return min(int(count or 0) for count in store.command("HMGET", store.key("calls_done"), *fields))


def error_of(failure: Failure, *, target: str, method: str) -> CallFailed:
    """What the caller is told."""
    return CallFailed(target=target, method=method, member=failure.source, error=failure.error)


def text_of(error: BaseException) -> str:
    """An error in a line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:2000]
