"""The invariants of the live graph: every index agrees with the facts that it indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unknot.graph.check_net import check_net
from unknot.graph.ids import parse

if TYPE_CHECKING:
    from unknot.graph.live import LiveGraph
    from unknot.graph.participants import Participant
    from unknot.graph.resources import ResourceState


def check(graph: LiveGraph) -> None:
    """Raise AssertionError, naming what disagrees, unless the whole graph is consistent."""
    _check_facts(graph)
    check_net(graph)


def _check_facts(graph: LiveGraph) -> None:
    for pid, one in graph.participants.items():
        assert one.id == pid, pid
        assert pid in graph.members[one.member], f"{pid} missing in members"
        assert pid in graph.by_source[one.source], f"{pid} missing in by_source"
        _check_participant(graph, one)
    for index in (graph.members, graph.by_source):
        for key, pids in index.items():
            assert pids, f"{key} indexes nobody"
            assert all(pid in graph.participants for pid in pids), f"{key} indexes a stranger"
    for r, state in graph.resources.items():
        assert state.id == r, r
        _check_resource(graph, state)
    drivers = {pid for pid, one in graph.participants.items() if one.role == "driver" and not one.is_queue}
    assert graph.drivers.keys() == drivers, "the drivers are others"
    for name, source in graph.sources.items():
        assert graph.heard[parse(name).member] >= parse(name).incarnation, f"{name} was not heard of"
        assert all(n > source.absorbed + 1 or source.lost for n in source.pending), name
        assert source.unknown or not source.pending, name


def _check_participant(graph: LiveGraph, one: Participant) -> None:
    assert one.how is None or one.wait is None, f"{one.id} ended and waits"
    fenced = one.incarnation < graph.fences.get(one.member, 0)
    assert not fenced or one.how == "fence", f"{one.id} outlives its fence"
    assert not fenced or not one.holds, f"{one.id} holds after its fence"
    for r, units in one.holds.items():
        assert units > 0, f"{one.id} holds {units} of {r}"
        assert units == sum(graph.resources[r].holders[one.id].values()), f"{one.id} and {r} disagree"
    for r in one.wait.resources() if one.wait is not None else ():
        assert one.id in graph.resources[r].waiters, f"{r} does not know its waiter {one.id}"
    for r in one.issued:
        assert one.id in graph.resources[r].arrivals, f"{r} does not know what {one.id} issued"


def _check_resource(graph: LiveGraph, state: ResourceState) -> None:
    for pid, modes in state.holders.items():
        assert graph.participants[pid].holds.get(state.id) == sum(modes.values()), (
            f"{state.id} and {pid} disagree"
        )
        assert all(units > 0 for units in modes.values()), f"{state.id} is held by nothing of {pid}"
    for pid in state.waiters:
        wait = graph.participants[pid].wait
        assert wait is not None, f"{state.id} has the waiter {pid}, which does not wait"
        assert state.id in wait.resources(), f"{pid} does not wait for {state.id}"
    assert len(set(state.queue)) == len(state.queue), f"{state.id} queues somebody twice"
    assert set(state.queue) <= set(state.waiters), f"{state.id} queues somebody who does not wait"
    for pid, seq in state.arrivals.items():
        assert seq >= max((s for s, by in state.signatures.items() if pid in by), default=seq), state.id
