"""The event model: one struct for each line of the trace format, one record for each report of a process.

See docs/trace_format.md. The live graph and recorded traces consume these same structs; there is one event model.
Ids of resources carry their kind: `lock:weights`, `mbox:raw`, `coll:policy@g2`, `event:x`, `slots:env`. Ids of
participants are `role/name#incarnation`, with `/thread` for threads that are not the main one and
`/queue:group` for the queue of a collective group.

None of these can be part of a reference cycle, so the collector is told not to look at them: a live graph keeps hundreds of thousands.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ResourceType = Literal[
    "lock", "rwlock", "semaphore", "slots", "reservation", "mailbox", "event", "condition", "latch", "collective", "external"
]  # fmt: skip
Policy = Literal["fifo", "fifo-strict", "writer-pref", "any"]


class Atom(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, gc=False):
    """One thing that can be waited for; exactly one of `r`, `p`, `external` is set.

    `r` names a resource: with `mode` and `units` for locks and units, `op` for mailboxes, `seq` for collectives.
    `p` names a participant: until it answers or ends. `external` is a label: nobody in the run can help, unless
    `closed` says that the list of those who could is complete.
    """

    r: str | None = None
    p: str | None = None
    external: str | None = None
    mode: str = "x"
    units: int = 1
    op: Literal["recv", "send"] | None = None
    seq: int | None = None
    closed: bool = False


class Clause(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """`k` of the atoms `of` must be served: AND is k = n, OR is k = 1."""

    k: int
    of: tuple[Atom, ...]


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="ev", gc=False):
    t: float = 0.0
    p: str = ""
    site: str | None = None
    stack: tuple[str, ...] | None = None


class Resource(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="resource"):
    """Declares a resource before its first use. An absent rights list means anybody may, an empty one nobody.

    `alike`: lists of call sites of a collective group that may meet in one operation (see call_sites.py).
    """

    r: str
    type: ResourceType
    capacity: int | None = None
    units: int | None = None
    policy: Policy = "fifo"
    reentrant: bool = False
    conflicts: dict[str, tuple[str, ...]] | None = None
    members: tuple[str, ...] | None = None
    match: tuple[str, ...] | None = None
    senders: tuple[str, ...] | None = None
    receivers: tuple[str, ...] | None = None
    setters: tuple[str, ...] | None = None
    closers: tuple[str, ...] | None = None
    returners: tuple[str, ...] | None = None
    count: int | None = None
    initial: int | None = None
    alike: tuple[tuple[str, ...], ...] | None = None


class Start(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="start"):
    """A participant begins."""

    member: str | None = None
    role: str | None = None
    incarnation: int | None = None


class End(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="end"):
    """A participant is gone; what it holds stays held until `release` or `fence`."""

    how: Literal["exit", "crash"] = "exit"


class Hold(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="hold"):
    """Now holds."""

    r: str
    units: int = 1
    mode: str = "x"


class Release(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="release"):
    """No longer holds."""

    r: str
    units: int = 1
    how: Literal["lease", "fence"] | None = None


class Wait(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="wait"):
    """Blocks; every clause must be met. `t` is when the wait began."""

    ticket: int
    needs: tuple[Clause, ...]
    deadline: float | None = None
    limit: float | None = None
    bypass: bool = True
    label: str | None = None
    interruptible: bool = False


class Wake(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="wake"):
    """No longer waits; a hold or recv that it was granted follows."""

    ticket: int
    how: Literal["granted", "timeout", "interrupted"] = "granted"


class Send(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="send"):
    """Messages put in."""

    r: str
    n: int = 1


class Recv(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="recv"):
    """Messages taken out."""

    r: str
    n: int = 1


class Close(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="close"):
    """No more messages; receivers no longer wait."""

    r: str


class Set(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="set"):
    """An event is set, and remembered until cleared."""

    r: str


class Clear(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="clear"):
    """An event is cleared."""

    r: str


class Signal(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="signal"):
    """A condition wakes present waiters only."""

    r: str
    n: int | Literal["all"] = 1


class Add(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="add"):
    """A latch's counter changes; waiters go on at zero."""

    r: str
    n: int = 1


class Arrive(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="arrive"):
    """Has issued operation `seq` of a collective group, and every one before it."""

    r: str
    seq: int
    op: str | None = None
    shape: str | None = None
    dtype: str | None = None
    root: int | None = None
    reduce_op: str | None = None


class Progress(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="progress"):
    """A mark that real work was done."""

    what: str = "step"
    n: int = 1


class Fence(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="fence"):
    """Incarnations of `member` older than `incarnation` are void."""

    member: str
    incarnation: int


class Beat(_Event, frozen=True, omit_defaults=True, kw_only=True, gc=False, tag="beat"):
    """A publisher's answer to a collection round: what each of its participants waits on, by ticket."""

    src: str
    n: int
    tickets: dict[str, int | None]
    round: int | None = None


Event = (
    Resource | Start | End | Hold | Release | Wait | Wake | Send | Recv | Close | Set | Clear | Signal | Add
    | Arrive | Progress | Fence | Beat
)  # fmt: skip


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One report of one process: its number `n` grows by one from 1; a gap means that something was lost.

    `full` says that `events` rebuild all that is known of the process: whatever it said before is void.
    """

    src: str
    n: int
    t: float
    full: bool = False
    events: tuple[Event, ...] = ()
