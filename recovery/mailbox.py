"""A mailbox: bounded, in order, durable until acknowledged.

An item that was received stays the receiver's, unacknowledged, until it is acknowledged or put back; when the
receiver's member registers again its items go back to the front, in the order of sending. So a crash between receive
and acknowledgement loses nothing, and an item is consumed once per acknowledgement.

Senders number their items per mailbox (1, 2, ... per incarnation), and the store recognises a send that it has
already done, so an answer lost on the network does not put an item in twice; an incarnation that was replaced is refused. A
full mailbox makes senders wait in order; their value waits with them in Redis, and whoever makes space moves it in.

Order. By `arrival`: first in, first out. By `origin`: each item carries who brought it into the run first and as that member's
how-manieth (`Origin`), and is delivered by (number, place of the origin in the list `origins`), whatever relays it passed and
whatever order it arrives in. Two runs that make the same items so consume them in the same order, which arrival cannot give: it
depends on who was faster. The price is waiting for the slowest. A turn whose item can never come is passed over
(`lua/lib/origins.lua`). A full mailbox always lets the one due item in, when it has none that is due: else it would wait for
room behind items that wait for it. The excess is bounded by the items of one commit.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from unknot.graph.events import Atom, Clause, Resource
from unknot.graph.unmatched import unmatched
from unknot.recovery.answers import Answer, ask, ask_as_member, check_name
from unknot.recovery.errors import ConfigError
from unknot.recovery.items import VALUE_LIMIT, id_of, pack, unpack
from unknot.recovery.items import Item as Item
from unknot.recovery.mailbox_settings import DEFAULT_CAPACITY, MailboxSettings, settings_of
from unknot.recovery.mailbox_settings import Ack as Ack
from unknot.recovery.mailbox_settings import Order as Order
from unknot.recovery.ports import Recorder, Store
from unknot.recovery.registration import check_member
from unknot.recovery.waiting import Mode, Request, obtain


class MailboxStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """A mailbox as Redis sees it. `unacked` counts items received, or taken by a group, and not yet consumed.

    `receivers_waiting` holds the ranks of waiting takes too, `senders_waiting` the steps whose commit waits for room, last.
    """

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
        """Received or taken, and not yet consumed."""
        return self.taken - self.acked


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
        self._known: MailboxSettings | None = None

    def declare(
        self,
        capacity: int = DEFAULT_CAPACITY,
        senders: str | Sequence[str] | None = None,
        receivers: str | Sequence[str] | None = None,
        *,
        ack: Ack = "step",
        order: Order = "arrival",
        origins: Sequence[str] | None = None,
    ) -> Mailbox:
        """Make the mailbox, or find it made the same way; self.

        Args:
            capacity: how many unconsumed items make it full; at least 1.
            senders: patterns of member names such as `agent/*`; None: anybody may, an empty list: nobody.
            receivers: as senders.
            ack: when items that a trainer group takes are consumed: `step` (the step is done) or `manifest` (a manifest
                covers it). Items received in a step of any other member are consumed by its commit.
            order: `arrival`, or `origin` for runs that are to be repeated exactly.
            origins: with order `origin`, the members that items come from first, in the order of their turns.

        Raises:
            ConfigError: it exists with other settings, or these cannot be: the message names the one that cannot.
        """
        wanted = settings_of(
            self.name, capacity=capacity, senders=senders, receivers=receivers, ack=ack, order=order, origins=origins
        )
        answer = ask(self._store, "mbox_declare", self.name, *_as_arguments(wanted))
        if answer.word == "differs":
            named = zip(MailboxSettings.__struct_fields__, (answer.text(i) for i in range(6)), strict=True)
            raise ConfigError(
                what=f"mailbox {self.name} is already declared otherwise ("
                + ", ".join(f"{what} {value or 'anybody'}" for what, value in named if value or what != "origins")
                + ")",
                todo="declare it the same way everywhere, or use another run name",
            )
        self._known = wanted
        return self

    def send(self, value: Any, timeout_s: float | None = None, meta: Any = None, *, to: str | None = None) -> int:
        """Put `value` in; waits while the mailbox is full. This member's number of the item.

        Args:
            value: anything that pickle takes, up to `value_limit` bytes.
            timeout_s: seconds to wait for space at most; None for ever, 0 to not wait.
            meta: a small companion of the value, for the receiver.
            to: the only member that may receive it; None: whoever may receive here.

        Raises:
            WaitTimeout: (a TimeoutError) no space in time; the item is not in.
            ConfigError: this member may not send here, the mailbox is not declared, or the value is too large.
            DeadlockInterrupted, RunClosed, FencedError: as every wait.
        """
        self.check_send(to)
        body = self.packed(value, meta)
        granted = obtain(self._store, self._recorder, self._sending(body, to or ""), timeout_s=timeout_s)
        return self._declared(granted).number()

    def receive(
        self,
        timeout_s: float | None = None,
        *,
        sender: str | None = None,
        give_up: Callable[[], Exception | None] | None = None,
    ) -> Item:
        """Take the next item; waits while there is none. It stays unacknowledged until `ack`.

        Args:
            timeout_s: seconds to wait at most; None for ever, 0 to not wait.
            sender: take only what this member sent, past what others did; None: whatever is next.
            give_up: asked every few seconds of waiting; what it answers is raised, after leaving.

        Raises:
            WaitTimeout: (a TimeoutError) none came in `timeout_s` seconds (None: for ever, 0: do not wait).
            ConfigError: this member may not receive here, or the mailbox is not declared.
            DeadlockInterrupted, RunClosed, FencedError: as every wait.
        """
        self.check_receive(sender)
        request = self._receiving(sender or "")
        if give_up is not None:
            request = request._replace(ask=_unless_given_up(request.ask, give_up))
        granted = obtain(self._store, self._recorder, request, timeout_s=timeout_s)
        return unpack(self.name, *self._declared(granted).rest)

    def ack(self, *items: Item | str) -> int:
        """Acknowledge items or ids: they are consumed. How many were still unacknowledged. FencedError; ConfigError: no items."""
        ids = [id_of(item) for item in items]
        if not ids:
            return 0
        return ask_as_member(self._store, "mbox_ack", *self._me(), *ids).number()

    def requeue(self, item: Item) -> bool:
        """Put one item that this member received here back where it was, in order; whether it was still unacknowledged."""
        number = item.id.rpartition("/")[2]
        return ask_as_member(self._store, "mbox_requeue", *self._me(), self.name, number).number() == 1

    def requeue_unacked(self) -> int:
        """Put everything this member received here and did not acknowledge back in front, in order. How many."""
        return ask_as_member(self._store, "mbox_requeue", *self._me(), self.name, "").number()

    def statistics(self) -> MailboxStatistics:
        """The mailbox as Redis sees it now. ConfigError when it is not declared."""
        capacity = self.settings().capacity
        command, key = self._store.command, self._store.key
        sent, taken, acked = command("HMGET", key("mbox", self.name), "sent", "taken", "acked")
        return MailboxStatistics(
            name=self.name,
            capacity=capacity,
            queued=int(command("LLEN", key("mboxq", self.name))) + int(command("ZCARD", key("mboxo", self.name))),
            sent=int(sent or 0),
            taken=int(taken or 0),
            acked=int(acked or 0),
            receivers_waiting=_waiters(command("LRANGE", key("mboxr", self.name), 0, -1)),
            senders_waiting=_waiters(
                [*command("LRANGE", key("mboxs", self.name), 0, -1), *command("LRANGE", key("mboxc", self.name), 0, -1)]
            ),
        )

    def unmatched(self, members: Collection[str]) -> list[str]:
        """In words, which of its lists of rights none of these members matches. ConfigError when it is not declared."""
        known = self.settings()
        told = (unmatched("senders", known.senders, members), unmatched("receivers", known.receivers, members))
        return [one for one in told if one]

    def __repr__(self) -> str:
        known = f"capacity {self._known.capacity}" if self._known else "not looked up yet"
        return f"<Mailbox {self.name} of run {self._store.run}, {known}>"

    @property
    def resource(self) -> Resource:
        """The mailbox as the graph knows it."""
        known = self.settings()
        return Resource(
            r=f"mbox:{self.name}",
            type="mailbox",
            capacity=known.capacity,
            senders=known.senders,
            receivers=known.receivers,
        )

    def _me(self) -> tuple[str, int]:
        return self._recorder.member, self._recorder.incarnation

    def settings(self) -> MailboxSettings:
        """How it is declared. ConfigError when it is not."""
        if self._known is None:
            found = self._store.command("HMGET", self._store.key("mbox", self.name), *MailboxSettings.__struct_fields__)
            if found[0] is None:
                raise self._undeclared()
            self._known = _from_fields(found)
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

    def check_send(self, to: str | None) -> None:
        """ConfigError if this member may not send here, or not to a chosen receiver."""
        known = self.settings()
        self._check_right("send", known.senders)
        self._check_choice(known, "to", to)

    def check_receive(self, sender: str | None) -> None:
        """ConfigError if this member may not receive here, or not from a chosen sender."""
        known = self.settings()
        self._check_right("receive", known.receivers)
        self._check_choice(known, "sender", sender)

    def _check_choice(self, known: MailboxSettings, what: str, member: str | None) -> None:
        if member is None:
            return
        check_member(member)
        if known.order == "origin":
            raise ConfigError(
                what=f"{what}={member!r} in mailbox {self.name}, whose order is by origin",
                todo="use a mailbox of its own for chosen partners, with order='arrival'",
            )

    def packed(self, value: Any, meta: Any) -> bytes:
        """The bytes of an item for this mailbox. ConfigError: it does not pickle, or is too large."""
        return pack(value, meta, mailbox=self.name, limit=self.value_limit)

    def _sending(self, body: bytes, to: str) -> Request:
        who = self._new_request()
        unsent = [body]

        def ask_send(mode: Mode) -> Answer:
            answer = ask(self._store, "mbox_send", self.name, *who, mode, to, *unsent)
            if answer.word == "queued":
                unsent.clear()
            elif answer.word == "lost":
                unsent.append(body)
                answer = ask(self._store, "mbox_send", self.name, *who, mode, to, body)
            return answer

        return self._request(who, "send", ask_send, lambda _: None)

    def _receiving(self, sender: str) -> Request:
        who = self._new_request()

        def ask_receive(mode: Mode) -> Answer:
            return ask(self._store, "mbox_receive", self.name, *who, mode, sender)

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
        if answer.word == "no origin":
            raise no_origin(self.name, self._recorder.member)
        return answer


def _unless_given_up(
    ask_in: Callable[[Mode], Answer], give_up: Callable[[], Exception | None]
) -> Callable[[Mode], Answer]:
    """The same question; but who would go on waiting leaves and raises what `give_up` says."""

    def ask_or_leave(mode: Mode) -> Answer:
        answer = ask_in(mode)
        error = give_up() if answer.word == "queued" else None
        if error is None:
            return answer
        left = ask_in("leave")
        if left.word == "granted":
            return left
        raise error

    return ask_or_leave


def _as_json(names: tuple[str, ...] | None) -> str:
    return "" if names is None else json.dumps(names)


def _from_json(found: bytes | None) -> tuple[str, ...] | None:
    return None if found is None else tuple(json.loads(found))


def _as_arguments(known: MailboxSettings) -> tuple[str, ...]:
    rights = (_as_json(known.senders), _as_json(known.receivers))
    return (str(known.capacity), *rights, known.ack, known.order, _as_json(known.origins))


def _from_fields(found: Sequence[bytes | None]) -> MailboxSettings:
    capacity, senders, receivers, ack, order, origins = found
    assert capacity is not None
    assert ack is not None
    assert order is not None
    return msgspec.convert(
        {
            "capacity": int(capacity), "senders": _from_json(senders), "receivers": _from_json(receivers),
            "ack": ack.decode(), "order": order.decode(), "origins": _from_json(origins),
        },
        MailboxSettings,
    )  # fmt: skip


def no_origin(mailbox: str, member: str) -> ConfigError:
    """Whose items have no turn in a mailbox in order of origin."""
    return ConfigError(
        what=f"{member} is not one of the origins of mailbox {mailbox}",
        todo="add it to origins=, or send what it received: a step that receives exactly one item passes its origin on",
    )


def _waiters(entries: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(entry.decode().rpartition("|")[0] for entry in entries)
