"""What an evaluation says: findings, suspects, slow chains, and the verdict around them. Values only."""

from __future__ import annotations

from typing import Literal

import msgspec

from unknot.graph.needs import Via

Cause = Literal["deadlock", "mismatch", "absent", "dead"]
Kind = Literal["cycle", "self", "knot", "timed", "mismatch", "absent", "never-set", "orphan", "orphaned-lock"]
CAUSE_OF: dict[Kind, Cause] = {
    "cycle": "deadlock", "self": "deadlock", "knot": "deadlock", "timed": "deadlock", "mismatch": "mismatch",
    "absent": "absent", "never-set": "absent", "orphan": "dead", "orphaned-lock": "dead",
}  # fmt: skip


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """`participant` waits for `resource` since `since` (seconds), and `helper` could end that.

    `via` says why it could: it holds, owes (a send, an arrival, a signal), stands ahead in the queue, or is
    itself what is waited for. `helper` is empty where nobody could; `gone` says that it has ended.
    """

    participant: str
    resource: str
    helper: str
    via: Via
    since: float
    site: str | None = None
    seq: int | None = None
    gone: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One root cause.

    core: whom a remedy may choose from. stuck: dragged along behind the core. closure: the core and all on
    whom it depends, the closed set that a confirmation asks. interruptible: core members whose interruptible
    wait, if ended, frees something they hold that the core needs. groups: collective groups that the core
    waits in. mailboxes: those that the closure waits for. deadline: when a timed ring ends by itself. `key`
    is the same as long as the core's waits are.
    """

    cause: Cause
    kind: Kind
    core: tuple[str, ...]
    stuck: tuple[str, ...]
    closure: tuple[str, ...]
    culprits: tuple[str, ...]
    victims: tuple[str, ...]
    edges: tuple[Edge, ...]
    tickets: dict[str, int]
    closing_wait_at: float
    deadline: float | None = None
    interruptible: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    mailboxes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Names this root cause by its kind and the waits of its core."""
        return f"{self.kind}:" + ",".join(f"{pid}|{self.tickets[pid]}" for pid in self.core)


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A wait that only somebody unknown can end: never proof, only an age."""

    participant: str
    resource: str
    label: str
    since: float
    site: str | None = None
    external: bool = False


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """Different operations issued as one number of a group, whether or not anybody waits; by participant."""

    resource: str
    seq: int
    issued: dict[str, tuple[str | int | None, ...]]


class SlowChain(msgspec.Struct, frozen=True, kw_only=True):
    """Old waits that all lead to one end: running participants (any of `roots` could help) or the outside.

    `waiters` wait directly or through others, `oldest_age_s` is the age of the oldest of these, `resource` is
    what the last of the chain waits for, `by` is that last one.
    """

    kind: Literal["running", "external"]
    roots: tuple[str, ...]
    resource: str
    by: str
    waiters: tuple[str, ...]
    oldest_age_s: float
    site: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of one state of the graph at `now` (seconds); findings are candidates until confirmed."""

    now: float
    stuck: tuple[str, ...]
    core: tuple[str, ...]
    running: tuple[str, ...]
    unknown: tuple[str, ...]
    suspects: tuple[Suspect, ...]
    findings: tuple[Finding, ...]
    mismatches: tuple[Mismatch, ...]
