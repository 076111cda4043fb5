"""Locks, mailboxes, weights, outside waits and progress marks of the run this process belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Literal, get_args

from unknot.graph.events import Atom, Clause
from unknot.recovery import lock, mailbox, weights
from unknot.recovery.values import choice, limit_s, text, whole
from unknot.supervisor.process import current

Kind = Literal["http", "human", "file", "llm", "subprocess", "other"]


class Lock(lock.DistributedLock):
    """A lock of the whole run: first come first served, with a fencing token, freed when its holder's member dies.

    Args:
        name: the lock's name within the run.
        reentrant: whether its holder may acquire it again.

    Raises:
        NotAMember: the process belongs to no run.
    """

    def __init__(self, name: str, *, reentrant: bool = False) -> None:
        process = current("unknot.Lock")
        super().__init__(name, process.store, process.recorder, reentrant=reentrant)


class Mailbox(mailbox.Mailbox):
    """A bounded, ordered, durable mailbox of the run; items stay until acknowledged.

    Raises:
        NotAMember: the process belongs to no run.
    """

    def __init__(self, name: str) -> None:
        process = current("unknot.Mailbox")
        super().__init__(name, process.store, process.recorder)


class Weights(weights.Weights):
    """Published weights under a name: the newest version, with its number and digest.

    Raises:
        NotAMember: the process belongs to no run.
    """

    def __init__(self, name: str) -> None:
        process = current("unknot.Weights")
        super().__init__(name, process.store, process.recorder, keep=process.config.weights_kept)


@contextlib.contextmanager
def external(
    label: str, *, kind: Kind = "http", who: str | None = None, limit: timedelta | None = None
) -> Iterator[None]:
    """The block waits for something outside the run: a person, a service, a file.

    Args:
        label: what is waited for, such as "approval".
        kind: what sort of thing it is; a human wait is told apart from everything else.
        who: who was asked.
        limit: when the outside gives up; shown, never an escape.

    Raises:
        ConfigError: an unknown kind, a label or name that is no text, or a limit that is no timedelta.
        NotAMember: the process belongs to no run.
    """
    text(label, name="unknot.external: label")
    if who is not None:
        text(who, name="unknot.external: who")
    choice(kind, get_args(Kind), name="unknot.external: kind")
    limit_s(limit, name="unknot.external: limit")
    process = current("unknot.external")
    if process.table is None:
        yield
        return
    asked = f"{kind}: {label}" + (f" (asked {who})" if who else "") + (f" (limit {limit})" if limit else "")
    need = Clause(k=1, of=(Atom(external=label),))
    table = process.table
    with table.wait(table.next_ticket(), [need], interruptible=False, label=asked):
        yield


def progress(what: str = "step", n: int = 1) -> None:
    """Mark that real work was done: `n` more of `what`.

    Raises:
        ConfigError: `what` is no text, or `n` no whole number from 0 up.
        NotAMember: the process belongs to no run.
    """
    text(what, name="unknot.progress: what")
    count = whole(n, name="unknot.progress: n", least=0)
    current("unknot.progress").progressed(what, count)


__all__: list[str] = ["Lock", "Mailbox", "Weights", "external", "progress"]
