"""Items of mailboxes as values: how they are packed, and how the store tells them."""

from __future__ import annotations

import pickle
import re
from typing import Any

import msgspec

from unknot.recovery.errors import ConfigError

VALUE_LIMIT = 64 * 1024 * 1024
_ID = re.compile(r"[^\s|/]+/\d+")


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item comes from first: the `number`th item that `member` brought in. `sub` tells apart what relays made of one.

    A relay (a step that received exactly one item) passes the origin on; what it sends second into the same mailbox gets a
    sub-number.
    """

    member: str
    number: int
    sub: str = ""

    def nth(self, n: int) -> Origin:
        """The origin of the `n`th item (from 0) that a relay makes of this one for one mailbox."""
        return self if n == 0 else msgspec.structs.replace(self, sub=f"{self.sub}.{n:06d}")


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One received item. `id` is unique in the run; `number` counts the sender's items in this mailbox from 1.

    `sender` is the sending incarnation (`agent/a#2`); `sent_at` is Redis' time in seconds since the epoch; `to` is the only
    member that could receive it, '' for anybody.
    """

    id: str
    sender: str
    number: int
    sent_at: float
    origin: Origin
    to: str = ""
    value: Any
    meta: Any = None

    @property
    def mailbox(self) -> str:
        """The mailbox that it came from."""
        return self.id.rpartition("/")[0]


def id_of(item: Any) -> str:
    """The id of an item, or of what is one already. ConfigError for anything else."""
    found = item.id if isinstance(item, Item) else item
    if isinstance(found, str) and _ID.fullmatch(found):
        return found
    what = f"the text {item[:60]!r}" if isinstance(item, str) else f"a {type(item).__name__}"
    raise ConfigError(what=f"{what} is no item of a mailbox", todo="acknowledge what receive() returned: mailbox.ack(item)")


def pack(value: Any, meta: Any, *, mailbox: str, limit: int) -> bytes:
    """The bytes of an item.

    Raises:
        ConfigError: it does not pickle, or is larger than `limit` bytes.
    """
    body = pickled((value, meta), what=f"an item for mailbox {mailbox}")
    if len(body) > limit:
        raise ConfigError(
            what=f"an item of {len(body)} bytes is too large for mailbox {mailbox} (limit {limit})",
            todo="send a reference to it (a path, an ObjectRef), or raise value_limit",
        )
    return body


def pickled(value: Any, *, what: str) -> bytes:
    """`value` as bytes. ConfigError, which names `what`, if it does not pickle."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception as error:  # what __reduce__ of users' classes raises is theirs to choose
        raise ConfigError(
            what=f"{what} does not pickle ({type(error).__name__}: {error})",
            todo="give plain data: no open files, locks, lambdas or classes defined in functions",
        ) from error


def unpack(mailbox: str, seq: bytes, head: bytes, body: bytes) -> Item:
    """The item that the store told as number, head and value."""
    sender, number, sent_at, origin, origin_number, sub, to = head.decode().split("|")
    value, meta = pickle.loads(body)
    return Item(
        id=f"{mailbox}/{seq.decode()}",
        sender=sender,
        number=int(number),
        sent_at=float(sent_at),
        origin=Origin(member=origin, number=int(origin_number), sub=sub),
        to=to,
        value=value,
        meta=meta,
    )
