"""A mailbox: bounded, in order, durable until acknowledged.

An item that was received stays the receiver's, unacknowledged, until it is acknowledged or put back; when the
receiver's member registers again its items go back to the front, in the order of sending. So a crash between receive
and acknowledgement loses nothing, and an item is consumed once per acknowledgement.

Senders number their items per mailbox (1, 2, ... per incarnation), and the store recognises a send that it has
already done, so an answer lost on the network does not put an item in twice. A full mailbox makes senders wait in
order; their value waits with them in Redis, and whoever makes space moves it in.
"""

from __future__ import annotations

import fnmatch
import json
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from unknot.graph.events import Atom, Clause, Resource
from unknot.recovery.answers import Answer, ask, ask_as_member, check_name
from unknot.recovery.errors import ConfigError
from unknot.recovery.ports import Recorder, Store
from unknot.recovery.waiting import Mode, Request, obtain

DEFAULT_CAPACITY = 1024
VALUE_LIMIT = 64 * 1024 * 1024


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One received item. `id` is unique in the run; `number` counts the sender's items in this mailbox from 1.

    `sender` is the sending incarnation (`agent/a#2`); `sent_at` is Redis' time in seconds since the epoch.
    """

    id: str
    sender: str
    number: int
    sent_at: float
    value: Any
    meta: Any = None


class MailboxStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A mailbox as Redis sees it. `unacked` counts items received and not yet acknowledged."""

    name: str
    capacity: int
    queued: int
    sent: int
    taken: int
    acked: int
    receivers_waiting: tuple[str, ...]
    senders_waiting: tuple[str, ...]

    @property
    def unacked(self) -> int:
        """Received and not yet acknowledged."""
        return self.taken - self.acked


class _Rights(msgspec.Struct, frozen=True):
    capacity: int
    senders: tuple[str, ...] | None
    receivers: tuple[str, ...] | None


class Mailbox:
    """The mailbox `name` of a run, for the threads of one member.

    Raises:
        ConfigError: `name` cannot name a mailbox.
    """

    def __init__(self, name: str, store: Store, recorder: Recorder, *, value_limit: int = VALUE_LIMIT) -> None:
        self.name = check_name("mailbox", name)
        self.value_limit = value_limit
        self._store = store
        self._recorder = recorder
        self._known: _Rights | None = None

    def declare(
        self,
        capacity: int = DEFAULT_CAPACITY,
        senders: str | Sequence[str] | None = None,
        receivers: str | Sequence[str] | None = None,
    ) -> Mailbox:
        """Make the mailbox, or find it made the same way; self.

        Args:
            capacity: how many unconsumed items make it full; at least 1.
            senders: patterns of member names such as `agent/*`; None: anybody may.
            receivers: as senders.

        Raises:
            ConfigError: it exists with other settings, or capacity is below 1.
        """
        if capacity < 1:
            raise ConfigError(what=f"mailbox {self.name} cannot have capacity {capacity}", todo="give at least 1")
        rights = _Rights(capacity, _patterns(senders), _patterns(receivers))
        wanted = (str(capacity), _as_json(rights.senders), _as_json(rights.receivers))
        answer = ask(self._store, "mbox_declare", self.name, *wanted)
        if answer.word == "differs":
            stands = ", ".join(
                f"{what} {answer.text(i) or 'anybody'}" for i, what in enumerate(("capacity", "senders", "receivers"))
            )
            raise ConfigError(
                what=f"mailbox {self.name} is already declared otherwise ({stands})",
                todo="declare it the same way everywhere, or use another run name",
            )
        self._known = rights
        return self

    def send(self, value: Any, timeout_s: float | None = None, meta: Any = None) -> int:
        """Put `value` in; waits while the mailbox is full. This member's number of the item.

        Args:
            value: anything that pickle takes, up to `value_limit` bytes.
            timeout_s: seconds to wait for space at most; None for ever, 0 to not wait.
            meta: a small companion of the value, for the receiver.

        Raises:
            WaitTimeout: (a TimeoutError) no space in time; the item is not in.
            ConfigError: this member may not send here, the mailbox is not declared, or the value is too large.
            DeadlockInterrupted, RunClosed, FencedError: as every wait.
        """
        self._check_right("send", self._rights().senders)
        body = self._packed(value, meta)
        granted = obtain(self._store, self._recorder, self._sending(body), timeout_s=timeout_s)
        return self._declared(granted).number()

    def receive(self, timeout_s: float | None = None) -> Item:
        """Take the oldest item; waits while there is none. It stays unacknowledged until `ack`.

        Raises:
            WaitTimeout: (a TimeoutError) none came in `timeout_s` seconds (None: for ever, 0: do not wait).
            ConfigError: this member may not receive here, or the mailbox is not declared.
            DeadlockInterrupted, RunClosed, FencedError: as every wait.
        """
        self._check_right("receive", self._rights().receivers)
        granted = obtain(self._store, self._recorder, self._receiving(), timeout_s=timeout_s)
        return self._item(self._declared(granted))

    def ack(self, *items: Item | str) -> int:
        """Acknowledge items or ids: they are consumed. How many were still unacknowledged. FencedError."""
        ids = [item if isinstance(item, str) else item.id for item in items]
        if not ids:
            return 0
        return ask_as_member(self._store, "mbox_ack", *self._me(), *ids).number()

    def requeue_unacked(self) -> int:
        """Put everything this member received here and did not acknowledge back in front, in order. How many."""
        return ask_as_member(self._store, "mbox_requeue", *self._me(), self.name, "").number()

    def statistics(self) -> MailboxStatistics:
        """The mailbox as Redis sees it now. ConfigError when it is not declared."""
        capacity = self._rights().capacity
        command, key = self._store.command, self._store.key
        sent, taken, acked = command("HMGET", key("mbox", self.name), "sent", "taken", "acked")
        return MailboxStatistics(
            name=self.name,
            capacity=capacity,
            queued=int(command("LLEN", key("mboxq", self.name))),
            sent=int(sent or 0),
            taken=int(taken or 0),
            acked=int(acked or 0),
            receivers_waiting=_waiters(command("LRANGE", key("mboxr", self.name), 0, -1)),
            senders_waiting=_waiters(command("LRANGE", key("mboxs", self.name), 0, -1)),
        )

    def __repr__(self) -> str:
        known = f"capacity {self._known.capacity}" if self._known else "not looked up yet"
        return f"<Mailbox {self.name} of run {self._store.run}, {known}>"

    @property
    def resource(self) -> Resource:
        """The mailbox as the graph knows it."""
        known = self._rights()
        return Resource(
            r=f"mbox:{self.name}",
            type="mailbox",
            capacity=known.capacity,
            senders=known.senders,
            receivers=known.receivers,
        )

    def _me(self) -> tuple[str, int]:
        return self._recorder.member, self._recorder.incarnation

    def _rights(self) -> _Rights:
        if self._known is None:
            fields = ("capacity", "senders", "receivers")
            found = self._store.command("HMGET", self._store.key("mbox", self.name), *fields)
            if found[0] is None:
                raise self._undeclared()
            self._known = _Rights(int(found[0]), _from_json(found[1]), _from_json(found[2]))
        return self._known

    def _undeclared(self) -> ConfigError:
        return ConfigError(
            what=f"run {self._store.run} has no mailbox {self.name}",
            todo=f"declare it first: run.mailbox({self.name!r})",
        )

    def _check_right(self, verb: str, patterns: tuple[str, ...] | None) -> None:
        member = self._recorder.member
        if patterns is not None and not any(fnmatch.fnmatchcase(member, pattern) for pattern in patterns):
            allowed = ", ".join(patterns) or "nobody"
            raise ConfigError(
                what=f"{member} may not {verb} in mailbox {self.name} ({allowed} may)",
                todo=f"add it to the mailbox's {verb}ers" if verb == "send" else "add it to the mailbox's receivers",
            )

    def _packed(self, value: Any, meta: Any) -> bytes:
        body = pickle.dumps((value, meta), protocol=5)
        if len(body) > self.value_limit:
            raise ConfigError(
                what=f"an item of {len(body)} bytes is too large for mailbox {self.name} (limit {self.value_limit})",
                todo="send a reference to it (a path, an ObjectRef), or raise value_limit",
            )
        return body

    def _sending(self, body: bytes) -> Request:
        who = self._new_request()
        unsent = [body]

        def ask_send(mode: Mode) -> Answer:
            answer = ask(self._store, "mbox_send", self.name, *who, mode, *unsent)
            if answer.word == "queued":
                unsent.clear()
            elif answer.word == "lost":
                unsent.append(body)
                answer = ask(self._store, "mbox_send", self.name, *who, mode, body)
            return answer

        return self._request(who, "send", ask_send, lambda _: None)

    def _receiving(self) -> Request:
        who = self._new_request()

        def ask_receive(mode: Mode) -> Answer:
            return ask(self._store, "mbox_receive", self.name, *who, mode)

        def put_back(granted: Answer) -> None:
            ask_as_member(self._store, "mbox_requeue", *self._me(), self.name, granted.text())

        return self._request(who, "recv", ask_receive, put_back)

    def _new_request(self) -> tuple[str, int, str, int]:
        return (*self._me(), self._recorder.participant(), self._recorder.next_ticket())

    def _request(self, who: tuple[str, int, str, int], op: Any, ask_in: Any, give_back: Any) -> Request:
        resource = self.resource
        return Request(
            participant=who[2],
            ticket=who[3],
            resource=resource,
            needs=(Clause(k=1, of=(Atom(r=resource.r, op=op),)),),
            ask=ask_in,
            give_back=give_back,
        )

    def _declared(self, answer: Answer) -> Answer:
        if answer.word == "unknown":
            self._known = None
            raise self._undeclared()
        return answer

    def _item(self, answer: Answer) -> Item:
        sender, number, sent_at = answer.text(1).split("|")
        value, meta = pickle.loads(answer.rest[2])
        return Item(
            id=f"{self.name}/{answer.number()}",
            sender=sender,
            number=int(number),
            sent_at=float(sent_at),
            value=value,
            meta=meta,
        )


def _patterns(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)


def _as_json(patterns: tuple[str, ...] | None) -> str:
    return "" if patterns is None else json.dumps(patterns)


def _from_json(found: bytes | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(json.loads(found))


def _waiters(entries: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(entry.decode().rpartition("|")[0] for entry in entries)
