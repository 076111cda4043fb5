"""The graph of a live run as it is now, for one look: built as a new leader builds it, then left alone."""

from __future__ import annotations

from unknot.graph.events import Event, Record
from unknot.graph.live import STORE, LiveGraph
from unknot.recovery.registration import members
from unknot.supervisor.monitor.roster import Roster
from unknot.supervisor.monitor.stream import Stream, full_record
from unknot.supervisor.monitor.truth import StoreTruth
from unknot.supervisor.store.redis_store import RedisStore


def graph_now(store: RedisStore) -> tuple[LiveGraph, float]:
    """The graph by the last record of each process and the store's own word, and the time by Redis' clock.

    Nothing in it is confirmed: processes are read one after the other. Raises StoreUnavailable.
    """
    graph, now = LiveGraph(), store.time()
    stream, truth, roster = Stream(store), StoreTruth(), Roster()
    known = members(store)
    for member in known:
        for record in stream.readable(full_record(store, member.source), where=member.source):
            graph.absorb(record)
    for events in (roster.update(graph, known, now), _said(graph, stream, truth)):
        graph.absorb(Record(src=STORE, n=0, t=now, events=tuple(events)))
    return graph, now


def _said(graph: LiveGraph, stream: Stream, truth: StoreTruth) -> list[Event]:
    asked = truth.questions(graph)
    return truth.events(graph, stream.truth(asked)) if asked else []
