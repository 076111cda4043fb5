"""What the live graph knows of one participant and of one source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unknot.graph.events import Clause, Record
from unknot.graph.gates import RUNNING, Node
from unknot.graph.ids import Identity, parse

How = Literal["exit", "crash", "fence"]
State = Literal["running", "waiting", "ended"]


@dataclass(slots=True)
class CurrentWait:
    """The one blocking need that a participant stands in. Times are seconds on the clock of the run.

    `placed` says that the order of the queues is known for it (events in true order); `passed` names
    resources that have let it go by a passing event (set, signal, close), whatever they look like now;
    `simple` says that it asks for one thing.
    """

    ticket: int
    needs: tuple[Clause, ...]
    t: float
    site: str | None
    deadline: float | None
    limit: float | None
    label: str | None
    interruptible: bool
    bypass: bool
    placed: bool
    passed: frozenset[str] = frozenset()
    simple: bool = False

    def resources(self) -> tuple[str, ...]:
        """The resources it names, each once, in order."""
        if self.simple:
            r = self.needs[0].of[0].r
            return () if r is None else (r,)
        return tuple(dict.fromkeys(atom.r for clause in self.needs for atom in clause.of if atom.r is not None))


@dataclass(slots=True)
class Participant:
    """A thread or a group queue. `how` is set once it has ended; `holds` counts units per resource,
    `issued` names the groups on which it has issued operations."""

    id: str
    member: str
    role: str
    incarnation: int
    source: str
    thread: str
    started_at: float
    wait: CurrentWait | None = None
    how: How | None = None
    ended_at: float | None = None
    holds: dict[str, int] = field(default_factory=dict)
    issued: frozenset[str] = frozenset()
    last_progress: float | None = None
    node: Node = field(default_factory=Node, repr=False, compare=False)

    @property
    def state(self) -> State:
        """Running, waiting or ended."""
        if self.how is not None:
            return "ended"
        return "running" if self.wait is None else "waiting"

    @property
    def is_queue(self) -> bool:
        """Whether this is the queue of a collective group, not a thread."""
        return self.thread.startswith("queue:")


def new_participant(pid: str, at: float, identity: Identity | None = None) -> Participant:
    """A running participant, with the parts that its id tells unless `identity` says otherwise."""
    own = identity or parse(pid)
    node = Node(pid)
    node.at, node.left, node.need, node.free = 0.0, 0, 0, RUNNING
    return Participant(
        id=pid,
        member=own.member,
        role=own.role,
        incarnation=own.incarnation,
        source=own.source,
        thread=own.thread,
        started_at=at,
        node=node,
    )


@dataclass(slots=True)
class SourceState:
    """How far one source's records have been read.

    `pending` are later ones that wait for a missing one; `lost` says that nothing but a full record can help.
    """

    absorbed: int = 0
    unknown: bool = False
    lost: bool = False
    pending: dict[int, Record] = field(default_factory=dict)
