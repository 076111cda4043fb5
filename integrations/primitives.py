"""Locks, mailboxes, weights, outside waits and progress marks of the run this process belongs to."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from datetime import timedelta
from typing import Literal, get_args

from unknot.graph.events import Atom, Clause
from unknot.recovery import lock, mailbox, weights
from unknot.recovery.errors import ConfigError
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
        ConfigError: an unknown kind.
        NotAMember: the process belongs to no run.
    """
    if kind not in get_args(Kind):
        near = difflib.get_close_matches(kind, get_args(Kind), n=1)
        raise ConfigError(
            what=f"unknown kind {kind!r} of external wait",
            todo=f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(get_args(Kind))}",
        )
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
        NotAMember: the process belongs to no run.
        ConfigError: `what` is no text, or `n` no whole number.
    """
    process = current("unknot.progress")
    if not isinstance(what, str) or not isinstance(n, int) or isinstance(n, bool):
        raise ConfigError(what=f"unknot.progress({what!r}, {n!r})", todo="give a text and a whole number, such as progress('step', 1)")
    process.progress[what] = process.progress.get(what, 0) + n


__all__: list[str] = ["Lock", "Mailbox", "Weights", "external", "progress"]
