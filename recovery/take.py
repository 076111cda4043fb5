"""Takes of a trainer group: every rank gets the same items, and so does every repeat of the step.

Ranks of one group step in lock-step, but they ask at different moments, and a step may be repeated by another process in another
generation, from a manifest that lies several steps back. So who gets what is not decided by who asks first: the take of (group,
step, call) has slots in the store. Whichever item is due next goes into the next free slot once, whoever of the ranks waits, and
the take answers when all its slots are filled; asked again it answers the same. Several ranks may wait for one take: each stands
in the mailbox' queue, visibly, and all are woken together.

A taken item is in nobody's hands: no death of a rank puts it back. It stays stored until `settle` says that its step will never
be repeated. It does not count as unconsumed, so it never blocks a sender; its own bound is `limit`, and a trainer asks
`is_nearly_full` and writes a manifest in time.

Dropping. What to do with items that were made with abandoned weights is decided by `drop`, a function of the item, in the rank
that sees the complete take first; the store keeps the decision, so that ranks which look later, when the weights have changed
again, decide nothing. Rejected: that every rank decides for itself, since two ranks may see different weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from unknot.graph.events import Atom, Clause
from unknot.recovery.answers import Answer, ask, check_name, refuse_fenced
from unknot.recovery.errors import ConfigError, KeptItemsFull
from unknot.recovery.items import Item, unpack
from unknot.recovery.mailbox import Ack, Mailbox
from unknot.recovery.points import reached
from unknot.recovery.ports import Recorder, Store
from unknot.recovery.values import whole
from unknot.recovery.waiting import Mode, Request, obtain

_NEARLY = 0.8


class _Take(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    seq: int
    call: int
    mailbox: str
    n: int
    limit: int | None

    @property
    def place(self) -> tuple[str, int, int]:
        return self.group, self.seq, self.call


def take(
    store: Store,
    recorder: Recorder,
    *,
    group: str,
    seq: int,
    call: int,
    mailbox: str,
    n: int,
    timeout_s: float | None = None,
    limit: int | None = None,
    drop: Callable[[Item], bool] | None = None,
) -> list[Item]:
    """The items of the `call`-th take of step `seq`: `n` of them, in the mailbox' order.

    Args:
        store: of the run.
        recorder: of this rank's process.
        group: name of the trainer group.
        seq: of the step.
        call: how many takes the step made before this one.
        mailbox: its name.
        n: how many items; at least 1.
        timeout_s: seconds to wait at most; None for ever, 0 to not wait. Items that came are kept for the next try.
        limit: how many items the group may keep in all, this take included; None: any number.
        drop: whether to consume an item without using it; asked about all items of a take, by one rank for all. The others
            need a function too, for they may be the first.

    Raises:
        WaitTimeout: (a TimeoutError) not enough items in time.
        KeptItemsFull: the group would keep more than `limit`; nothing was taken.
        ConfigError: n below 1, this member may not receive there, no such mailbox, or the step took otherwise before.
        DeadlockInterrupted, StaleGeneration, RunClosed, FencedError: as every wait.
    """
    box = Mailbox(mailbox, store, recorder)
    n = whole(n, name=f"take from mailbox {mailbox}: n", least=1)
    wanted = _Take(group=check_name("group", group), seq=seq, call=call, mailbox=mailbox, n=n, limit=limit)
    box.check_receive(None)
    while True:
        answer = obtain(store, recorder, _request(store, recorder, wanted, box), timeout_s=timeout_s)
        items = _items(_checked(answer, wanted, store), mailbox)
        reached("take.granted", recorder.member)
        if drop is None or answer.number(0) == 1 or _decided(store, recorder, wanted, items, drop=drop):
            return items


def _request(store: Store, recorder: Recorder, wanted: _Take, box: Mailbox) -> Request:
    participant, ticket = recorder.participant(), recorder.next_ticket()
    resource = box.resource

    def ask_take(mode: Mode) -> Answer:
        return ask(
            store, "take", *wanted.place, wanted.mailbox, wanted.n, "" if wanted.limit is None else wanted.limit,
            recorder.member, recorder.incarnation, participant, ticket, mode,
        )  # fmt: skip

    needs = (Clause(k=1, of=(Atom(r=resource.r, op="recv"),)),)
    return Request(participant, ticket, resource, needs, ask_take, lambda _: None)


def _checked(answer: Answer, wanted: _Take, store: Store) -> Answer:
    if answer.word == "over":
        assert wanted.limit is not None
        raise KeptItemsFull(group=wanted.group, kept=answer.number(), limit=wanted.limit)
    if answer.word == "differs":
        raise ConfigError(
            what=f"take {wanted.call} of step {wanted.seq} of group {wanted.group} asks for {wanted.n} of {wanted.mailbox}, "
            f"before it took {answer.text(1)} of {answer.text(0)}",
            todo="let a step take the same way each time and on every rank: what it takes must not depend on chance",
        )
    if answer.word == "unknown":
        raise ConfigError(
            what=f"run {store.run} has no mailbox {wanted.mailbox}", todo=f"declare it: run.mailbox({wanted.mailbox!r})"
        )
    return answer


def _items(answer: Answer, mailbox: str) -> list[Item]:
    flat: Sequence[Any] = answer.rest[1:]
    return [unpack(mailbox, *flat[i : i + 3]) for i in range(0, len(flat), 3)]


def _decided(
    store: Store, recorder: Recorder, wanted: _Take, items: Sequence[Item], *, drop: Callable[[Item], bool]
) -> bool:
    numbers = [item.id.rpartition("/")[2] for item in items]
    unwanted = [number for number, item in zip(numbers, items, strict=True) if drop(item)]
    me = (recorder.member, recorder.incarnation)
    answer = ask(store, "take_decide", *wanted.place, *me, ",".join(numbers), *unwanted)
    return refuse_fenced(answer, *me).word == "decided"


def settle(
    store: Store, group: str, before_seq: int, *, ack: Ack, recorder: Recorder | None = None
) -> int:
    """Consume what the group took in steps before `before_seq`; how many items. Twice is once.

    Args:
        store: of the run.
        group: its name.
        before_seq: the first step that may still be repeated.
        ack: `step` when the step before it was voted done: items of mailboxes with ack `step`. `manifest` when a manifest of
            `before_seq` was committed: items of all mailboxes.
        recorder: of the rank that asks, None for the driver.

    Raises:
        FencedError: a newer incarnation of the asking member stands.
    """
    me = ("", "") if recorder is None else (recorder.member, recorder.incarnation)
    answer = ask(store, "take_settle", group, before_seq, ack, *me)
    if recorder is not None:
        refuse_fenced(answer, recorder.member, recorder.incarnation)
    return answer.number()


def kept_items(store: Store, group: str) -> int:
    """How many items the group has taken and not settled."""
    return sum(int(count) for count in store.command("HVALS", store.key("kept", group)))


def is_nearly_full(store: Store, group: str, limit: int) -> bool:
    """Whether four fifths of `limit` are kept: time for a manifest, before a take is refused."""
    return kept_items(store, group) >= _NEARLY * limit
