"""Who stands ahead in the queue of a lock or of units, and whose place a change may concern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unknot.graph.resources import UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unknot.graph.events import Atom
    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import Participant
    from unknot.graph.resources import ResourceState


def ahead(graph: LiveGraph, one: Participant, state: ResourceState, atom: Atom) -> list[str]:
    """The waiters that must be served before `one` is: nobody where it has no place or the queue is not fair."""
    own = state.declared
    if own is None or own.policy == "any" or not state.queue or one.id not in state.queue:
        return []
    mode = None if own.type in UNITS else atom.mode
    if own.policy == "writer-pref":
        if mode is None or state.exclusive(mode):
            return []
        return [pid for pid in state.queue if pid != one.id and excludes(graph, state, pid, mode)]
    place = len(state.queue) - 1 if state.queue[-1] == one.id else state.queue.index(one.id)
    found = []
    for pid in _before(state.queue, place):
        if mode is None or excludes(graph, state, pid, mode):
            found.append(pid)
            if stands_for_all(graph, state, pid):
                break
    return found


def _before(queue: list[str], place: int) -> Iterator[str]:
    for number in range(place - 1, -1, -1):
        yield queue[number]


def excludes(graph: LiveGraph, state: ResourceState, pid: str, mode: str) -> bool:
    """Whether the waiter `pid` asks for a mode beside which `mode` cannot be had."""
    return any(state.excludes(mode, asked) for asked in graph.asked_modes(pid, state.id))


def stands_for_all(graph: LiveGraph, state: ResourceState, pid: str) -> bool:
    """Whether the waiter `pid` is itself behind everybody before it: then nobody behind it needs to look further."""
    wait = graph.participants[pid].wait
    assert wait is not None
    if not wait.simple or wait.deadline is not None:
        return False
    own = state.declared
    if own is None or own.type != "rwlock":
        return True
    return not own.conflicts and state.exclusive(wait.needs[0].of[0].mode)


def concerned(graph: LiveGraph, state: ResourceState, place: int) -> list[str]:
    """Who, from `place` of the queue on, may have had somebody ahead who came or left right before it."""
    if state.declared is not None and state.declared.policy == "writer-pref":
        return list(state.queue)
    found = []
    for number in range(place, len(state.queue)):
        pid = state.queue[number]
        found.append(pid)
        if stands_for_all(graph, state, pid):
            break
    return found
