"""What the detector costs: a full evaluation, one event, a knot that closes and opens, and its memory.

`python benchmarks/graph.py` runs all of it in about two minutes; `--curve` adds the full evaluation of a million participants,
which needs 4 GiB. The clock is the processor time of this process, so that waiting for a busy machine does not count; what other
work does to caches and clock rates still does.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import networkx
from graph_traces import Workplace, random_knots, ring, rings
from measuring import alternate, ratio_of, show_machine, show_target

from unknot.graph import events as ev
from unknot.graph.gates import from_scratch
from unknot.graph.live import LiveGraph
from unknot.graph.wiring import all_nodes

SIZES = (1_000, 10_000, 100_000)
EVENTS = 60_000
RECORD = 100


def seconds(what: Callable[[], Any]) -> float:
    before = time.process_time()
    what()
    return time.process_time() - before


def fed(events: list[ev.Event]) -> LiveGraph:
    graph = LiveGraph()
    for event in events:
        graph.apply(event)
    graph.stuck()
    return graph


def full(sizes: tuple[int, ...]) -> None:
    for people in sizes:
        events = random_knots(people)
        atoms = sum(len(c.of) for e in events if isinstance(e, ev.Wait) for c in e.needs)
        built = time.process_time()
        graph = fed(events)
        built = time.process_time() - built
        nodes = list(all_nodes(graph))
        took = statistics.median(seconds(partial(from_scratch, nodes)) for _ in range(3))
        print(f"full evaluation, {people} participants, {atoms} atoms: {took:.3f} s ({took / atoms * 1e9:.0f} ns an atom; "
              f"built from events in {built:.1f} s)")  # fmt: skip
        if people == SIZES[-1]:
            show_target("full evaluation of 100,000", took, 0.3, " s")
            against_networkx(events, graph)


def against_networkx(events: list[ev.Event], graph: LiveGraph) -> None:
    """The same edges in networkx, built and decomposed into components, which is less than we answer."""
    edges = [(e.p, atom.p) for e in events if isinstance(e, ev.Wait) for c in e.needs for atom in c.of]
    nodes = list(all_nodes(graph))

    def theirs() -> None:
        list(networkx.strongly_connected_components(networkx.DiGraph(edges)))

    pairs = alternate(lambda: seconds(theirs), lambda: seconds(lambda: from_scratch(nodes)), pairs=5)
    ratio = ratio_of(pairs)
    verdict = "met" if ratio.value >= 10 else "NOT met"
    print(f"networkx, built and decomposed, to full evaluation: {ratio}, target at least 10: {verdict}")


def mixed(people: int) -> None:
    place = Workplace(people)
    place.run(EVENTS)
    opening, events = place.events[: place.opening], place.events[place.opening :]
    waits = sum(isinstance(e, ev.Wait) for e in events)
    pack = msgspec.msgpack.encode
    records = [pack(ev.Record(src="w", n=1, t=0.0, events=tuple(events[at : at + RECORD]))) for at in range(0, EVENTS, RECORD)]

    def each() -> float:
        graph = fed(opening)
        return seconds(partial(one_by_one, graph, events)) / len(events)

    def streamed() -> float:
        graph = fed(opening)
        return seconds(partial(stream, graph, records)) / EVENTS

    alone = statistics.median(each() for _ in range(3)) * 1e6
    print(f"{people} participants, {waits / len(events):.0%} of the events are waits:")
    show_target("  mean of an event, stuck set kept after each", alone, 5, " us")
    rate = 1 / statistics.median(streamed() for _ in range(3))
    print(f"  decode and graph, asked after each record of {RECORD}: {rate:,.0f} events/s, target 200,000: "
          f"{'met' if rate >= 200_000 else 'NOT met'}")  # fmt: skip


def one_by_one(graph: LiveGraph, events: list[ev.Event]) -> None:
    apply, settle = graph.apply, graph.wiring.settle
    for event in events:
        apply(event)
        settle()


def stream(graph: LiveGraph, records: list[bytes]) -> None:
    decode, apply = msgspec.msgpack.Decoder(ev.Record).decode, graph.apply
    for record in records:
        for event in decode(record).events:
            apply(event)
        graph.stuck()


def yardstick() -> float:
    """Nanoseconds of one call of an empty function on this machine as it is now: what the other times may be scaled by."""

    def nothing() -> None:
        pass

    def calls() -> None:
        for _ in range(1_000_000):
            nothing()

    return statistics.median(seconds(calls) for _ in range(5)) * 1000


def knots(people: int) -> None:
    graph = LiveGraph()
    rings(graph, people)
    every: list[float] = []
    for size in (2, 4, 8, 16, 32, 64):
        first, close, open_ = ring(size, name=f"trainer/s{size}r")
        for event in first:
            graph.apply(event)
        graph.stuck()
        closing, opening = timed(graph, close, open_)
        every += [*closing, *opening]
        print(f"  {people} bystanders, ring of {size}: closes in {statistics.median(closing):.1f} us, "
              f"opens in {statistics.median(opening):.1f} us")  # fmt: skip
    show_target(f"median over rings of 2 to 64 beside {people} bystanders", statistics.median(every), 20, " us")


def timed(graph: LiveGraph, close: ev.Event, open_: ev.Event) -> tuple[list[float], list[float]]:
    closing, opening, clock = [], [], time.perf_counter
    for _ in range(300):
        start = clock()
        graph.apply(close)
        graph.wiring.settle()
        shut = clock()
        graph.apply(open_)
        graph.wiring.settle()
        opening.append((clock() - shut) * 1e6)
        closing.append((shut - start) * 1e6)
    return closing, opening


def memory(what: str, make: Callable[[], list[ev.Event]]) -> None:
    told = [msgspec.msgpack.encode(event) for event in make()]
    decoder = msgspec.msgpack.Decoder(ev.Event)
    gc.collect()
    tracemalloc.start()
    graph = LiveGraph()
    for one in told:
        graph.apply(decoder.decode(one))
    graph.stuck()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    show_target(f"memory for each that waits, {what}", used / len(graph.waiting()), 1536, " B")


def ring_events(size: int) -> list[ev.Event]:
    first, close, _ = ring(size)
    return [*first, close]


def queue_events(people: int) -> list[ev.Event]:
    """`people` that wait for one of a thousand locks."""
    events: list[ev.Event] = [ev.Resource(r=f"lock:{n}", type="lock") for n in range(1000)]
    events += [ev.Hold(p=f"judge/h{n}#1", r=f"lock:{n}") for n in range(1000)]
    for number in range(people):
        needs = (ev.Clause(k=1, of=(ev.Atom(r=f"lock:{number % 1000}"),)),)
        events.append(ev.Wait(p=f"agent/w{number}#1", ticket=number, needs=needs, t=float(number), site="agents.py:31"))
    return events


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--curve", action="store_true", help="go on to a million participants")
    curve = parser.parse_args().curve
    show_machine()
    print(f"yardstick: {yardstick():.0f} ns for a call of an empty function")
    full((*SIZES, 300_000, 1_000_000) if curve else SIZES)
    for people in SIZES:
        mixed(people)
    for people in SIZES:
        knots(people)
    memory("in one queue of twenty", lambda: queue_events(20_000))
    memory("each for a lock of its own, each holding one", lambda: ring_events(20_000))
    memory("each for four others", lambda: random_knots(20_000))


if __name__ == "__main__":
    main()
