"""Readers of traces meet anything: they refuse it with its line, or read it; nothing else happens."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.trace.lines import ARRIVAL, TOTAL, crossed, encoded, from_sources, one, replayed, wait
from unknot.graph import trace as tracing
from unknot.graph.errors import TraceError
from unknot.graph.events import Beat, Event, Hold, Send, Signal
from unknot.graph.trace import Header, Line, encode, encode_header, read


def kinds() -> list[dict[str, Any]]:
    """Events of every kind, in an order that can be."""
    resources = [
        one("resource", r="coll:g@g1", type="collective", members=["a#1", "b#1"], match=["op"], alike=[["x:1", "y:2"]]),
        one("resource", r="mbox:m", type="mailbox", capacity=2, senders=["agent/*"], receivers=[]),
        one("resource", r="sem:s", type="semaphore", capacity=3, policy="fifo-strict"),
        one("resource", r="rw:r", type="rwlock", conflicts={"w": ["w", "r"]}, policy="writer-pref"),
        one("resource", r="event:e", type="event", setters=["b"]), one("resource", r="cond:c", type="condition"),
        one("resource", r="latch:l", type="latch", count=2),
    ]  # fmt: skip
    acts = [
        one("arrive", "a#1", r="coll:g@g1", seq=1, op="all_reduce", shape="[[4]]", site="x:1"),
        one("send", "a#1", r="mbox:m", n=2), one("recv", "b#1", r="mbox:m"), one("close", "a#1", r="mbox:m"),
        one("hold", "d#1", r="sem:s", units=2), one("release", "d#1", r="sem:s", how="lease"),
        one("set", "a#1", r="event:e"), one("clear", "a#1", r="event:e"), one("signal", "a#1", r="cond:c", n="all"),
        one("add", "a#1", r="latch:l", n=-1), one("progress", "d#1", what="step", n=3),
        wait("d#1", 1, {"external": "ok"}, {"p": "a#1"}, {"r": "coll:g@g1", "seq": 2}, deadline=9, label="x"),
        wait("e#1", 1, {"r": "mbox:m", "op": "send"}, {"r": "rw:r", "mode": "r"}), one("end", "e#1", how="crash"),
        one("fence", member="d", incarnation=2), one("beat", src="a#1", n=9, tickets={"a#1": None}, round=4),
    ]  # fmt: skip
    return [*resources, *crossed(), *acts, one("wake", "a#1", ticket=1, how="timeout")]


TRACES = [encoded(*kinds()), encoded(*from_sources(*kinds()), head=ARRIVAL)]
ODD = [
    b"\xff", b"\x00", b"{", b"}", b"[", b'"', b"-1", b"1e400", b"9" * 30, b"null", b"NaN", b"\xed\xa0\x80", b"\\ud800",
    b"[" * 5000, b'{"a":' * 5000, b"#1", b"#\xc2\xb2", b"#" + b"9" * 30, b"*", b"@g" + b"9" * 30, b"true", b",", b":",
]  # fmt: skip


def test_a_trace_with_events_of_every_kind_is_read() -> None:
    for lines in TRACES:
        assert replayed(lines).events == len(lines) - 1


def mutate(lines: list[bytes], seed: int) -> list[bytes]:
    """The same trace with some damage: bytes, lines, numbers."""
    draw = random.Random(seed)
    made = list(lines)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(made))
        line = bytearray(made[at])
        what = draw.randrange(7)
        place = draw.randrange(len(line) + 1)
        if what == 0:
            line[place:place] = draw.choice(ODD)
        elif what == 1:
            line[place : place + draw.randint(1, 9)] = draw.choice(ODD)
        elif what == 2:
            del line[place:]
        elif what == 3:
            line = bytearray(_other_value(bytes(line), draw))
        elif what == 4:
            made.insert(at, made[draw.randrange(len(made))])
        elif what == 5 and len(made) > 1:
            other = draw.randrange(len(made))
            line, made[other] = bytearray(made[other]), bytes(line)
        made[at] = bytes(line)
    return made


def _other_value(line: bytes, draw: random.Random) -> bytes:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return line
    if not isinstance(event, dict) or not event:
        return line
    odd: list[Any] = [None, -1, 0, 2**63, 2**80, 1.5, "", "#", "a#\u00b2", "a/b/c", [], {}, [[]], True, "lock:1", "a#1"]
    event[draw.choice(list(event))] = draw.choice(odd)
    return json.dumps(event).encode() + b"\n"


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**48), which=st.sampled_from((0, 1)))
def test_a_damaged_trace_is_refused_with_its_line_or_read(seed: int, which: int) -> None:
    lines = mutate(TRACES[which], seed)
    refused = refusal(lines)
    if refused is not None:
        assert refused.line is not None
        assert 1 <= refused.line <= len(lines)
        assert len(str(refused)) < 2000


def refusal(lines: list[bytes]) -> TraceError | None:
    try:
        replayed(lines)
    except TraceError as error:
        return error
    return None


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=5))
def test_a_trace_of_any_bytes_is_refused_with_its_line(lines: list[bytes]) -> None:
    with pytest.raises(TraceError):
        replayed([*lines[:1], b"x", *lines[1:]])


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**48))
def test_a_lenient_reader_skips_what_it_counts(seed: int) -> None:
    lines = mutate(TRACES[0], seed)
    bad: list[TraceError] = []
    _, events = read([TRACES[0][0], *lines[1:]], on_bad=bad.append)
    good = list(events)
    blank = sum(line.isspace() for line in lines[1:])
    assert len(good) + len(bad) + blank == len(lines) - 1


def test_an_empty_file_lacks_its_header() -> None:
    with pytest.raises(TraceError, match=r"line 1: .*; expected a header"):
        read([])


def test_another_version_is_refused_by_name() -> None:
    with pytest.raises(TraceError, match=r"schema 'unknot.trace/2'; expected the schema unknot.trace/1"):
        read(encoded(head={**TOTAL, "schema": "unknot.trace/2"}))


def test_in_order_of_arrival_every_line_says_whose_it_is() -> None:
    with pytest.raises(TraceError, match=r"line 2: .*expected src and n"):
        replayed(encoded(*crossed(), head=ARRIVAL))


def test_a_line_beyond_the_limit_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "LINE_LIMIT", 100)
    with pytest.raises(TraceError, match=r"line 2: a line of more than 100 bytes"):
        replayed(encoded(one("start", "a" * 200)))


@pytest.mark.parametrize("order", ["total", "arrival"])
def test_what_is_written_is_read_back(order: str) -> None:
    src, n = ("a#1", 3) if order == "arrival" else ("", 0)
    told: list[Event] = [Hold(p="a#1", r="lock:1", t=1.5, site="x:1"), Send(r="mbox:m", n=4), Signal(r="cond:c", n="all")]
    lines = [Line(number=at, event=event, src=src, n=n) for at, event in enumerate(told, 2)]
    head = Header(schema=tracing.SCHEMA, run="r", order=order)  # type: ignore[arg-type]
    found, events = read([encode_header(head), *map(encode, lines)])
    assert found == head
    assert list(events) == lines


def test_an_answer_to_a_round_carries_its_number_once() -> None:
    beat = Beat(src="a#1", n=7, tickets={}, round=1)
    assert encode(Line(number=2, event=beat, src="a#1", n=7)).count(b'"n"') == 1


@pytest.mark.parametrize("order", ["total", "arrival"])
@pytest.mark.parametrize(
    ("event", "what"),
    [
        (one("hold", "a#1", r="lock:1", units=0), "0 units of lock:1"),
        (one("release", "a#1", r="lock:1", units=-2), "-2 units of lock:1"),
        (one("send", "a#1", r="mbox:m", n=-1), "a count of -1 for mbox:m"),
        (one("signal", "a#1", r="cond:c", n=0), "a count of 0 for cond:c"),
        (one("arrive", "a#1", r="coll:g", seq=-1), "operation number -1"),
        (one("wait", "a#1", ticket=1, needs=[{"k": 3, "of": [{"r": "lock:1"}]}]), "3 of 1 atoms"),
        (wait("a#1", 1, {"r": "lock:1", "p": "b#1"}), "several of r, p, external"),
        (wait("a#1", 1, {"r": "lock:1", "units": -1}), "-1 units"),
        (wait("a#1", 1, {"r": "coll:g", "seq": -5}), "operation number -5"),
        (wait("a#1", -1, {"r": "lock:1"}), "ticket -1"),
        (one("progress", "a#1", n=-4), "progress -4"),
    ],
)
def test_a_number_that_cannot_be_is_refused_in_either_order(order: str, event: dict[str, Any], what: str) -> None:
    head = {**TOTAL, "order": order}
    with pytest.raises(TraceError, match=f"line 2: .*{what}.*; expected"):
        replayed(encoded(*from_sources(event), head=head) if order == "arrival" else encoded(event, head=head))
