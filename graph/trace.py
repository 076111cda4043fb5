"""Recorded traces, line by line: JSON Lines as in docs/trace_format.md, decoded one at a time and checked.

Values in, values out: the caller brings lines (bytes) from wherever they are and gets events. Nothing is kept but
the header, so a trace may be as long as it likes. What cannot be read is a TraceError with its line number,
whatever the bytes are; nothing is guessed. Lines longer than `LINE_LIMIT` are refused before they are decoded:
the caller reads with `LINE_LIMIT + 1` as its limit, so that one line cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import msgspec

from unknot.graph import events as ev
from unknot.graph.errors import TraceError

SCHEMA = "unknot.trace/1"
LINE_LIMIT = 16 * 1024 * 1024
_PROBLEM_LIMIT = 300
# In order of arrival, `n` is the process' own number of the line, so what these count is called `amount` there.
_COUNTED = (ev.Send, ev.Recv, ev.Signal, ev.Add, ev.Progress)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Line 1. `order`: `total` = lines stand in the true order, `arrival` = as a watcher learned of them."""

    schema: str
    run: str = ""
    order: Literal["total", "arrival"] = "total"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a trace, with its line number; `src` and `n` (its number there) in traces of order `arrival`."""

    number: int
    event: ev.Event
    src: str = ""
    n: int = 0


class _Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    src: str
    n: int
    amount: int | Literal["all"] = 1


_HEADERS = msgspec.json.Decoder(Header)
_EVENTS: msgspec.json.Decoder[Any] = msgspec.json.Decoder(ev.Event)
_ORIGINS = msgspec.json.Decoder(_Origin)
_ENCODER = msgspec.json.Encoder()


def header(line: bytes) -> Header:
    """The header in line 1. Raises TraceError."""
    found: Header = _decode(_HEADERS.decode, line, 1, "a header such as {\"schema\":\"unknot.trace/1\",\"order\":\"total\"}")
    if found.schema != SCHEMA:
        raise TraceError(what=f"schema {found.schema[:80]!r}", expected=f"the schema {SCHEMA}", line=1)
    return found


def event(line: bytes, number: int, *, order: str) -> Line:
    """The event in line `number`. Raises TraceError."""
    found: ev.Event = _decode(_EVENTS.decode, line, number, "one event of docs/trace_format.md as a JSON object")
    if order == "total":
        _check(found, number)
        return Line(number=number, event=found)
    origin: _Origin = _decode(_ORIGINS.decode, line, number, "src and n beside each event of a trace of order arrival")
    if origin.n < 1 or not origin.src:
        raise TraceError(what=f"src {origin.src[:80]!r} with n {origin.n}", expected="a process, and its number from 1", line=number)
    if isinstance(found, _COUNTED):
        found = _with_amount(found, origin, number)
    elif isinstance(found, ev.Beat) and (found.src, found.n) != (origin.src, origin.n):
        raise TraceError(what="a beat of another process", expected="its own src and n", line=number)
    _check(found, number)
    return Line(number=number, event=found, src=origin.src, n=origin.n)


def _with_amount(found: Any, origin: _Origin, number: int) -> ev.Event:
    if origin.amount == "all" and not isinstance(found, ev.Signal):
        raise TraceError(what="amount all", expected="a number", line=number)
    counted: ev.Event = msgspec.structs.replace(found, n=origin.amount)
    return counted


def at_line(error: TraceError, number: int) -> TraceError:
    """The same error with its line, and short enough to be one."""
    what, expected = (text[:_PROBLEM_LIMIT] for text in (error.what, error.expected))
    return TraceError(what=what, expected=expected, line=number)


def read(
    lines: Iterable[bytes], *, on_bad: Callable[[TraceError], None] | None = None
) -> tuple[Header, Iterator[Line]]:
    """The header, and the events as they are asked for.

    `on_bad` is told of each line that cannot be read, which is then skipped; without it the first one raises
    TraceError. A header that cannot be read always does.
    """
    numbered = enumerate(lines, 1)
    _, first = next(numbered, (1, b""))
    found = header(first)
    return found, _events(numbered, found.order, on_bad)


def _events(
    numbered: Iterator[tuple[int, bytes]], order: str, on_bad: Callable[[TraceError], None] | None
) -> Iterator[Line]:
    for number, line in numbered:
        if line.isspace():
            continue
        try:
            yield event(line, number, order=order)
        except TraceError as error:
            if on_bad is None:
                raise
            on_bad(error)


def encode_header(head: Header) -> bytes:
    """The header as line 1."""
    return _ENCODER.encode(head) + b"\n"


def encode(line: Line) -> bytes:
    """One event as a line; with `src` and `n` if it has them. The number of the line is not written."""
    event = line.event
    if not line.src or isinstance(event, ev.Beat):
        return _ENCODER.encode(event) + b"\n"
    origin = _Origin(src=line.src, n=line.n)
    if isinstance(event, _COUNTED):
        origin = _Origin(src=line.src, n=line.n, amount=event.n)
        event = msgspec.structs.replace(event, n=1)
    return _ENCODER.encode(event)[:-1] + b"," + _ENCODER.encode(origin)[1:] + b"\n"


def _decode(decode: Callable[[bytes], Any], line: bytes, number: int, expected: str) -> Any:
    if len(line) > LINE_LIMIT:
        raise TraceError(what=f"a line of more than {LINE_LIMIT} bytes", expected=expected, line=number)
    try:
        return decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        told = " ".join(str(error).split())[:_PROBLEM_LIMIT] or type(error).__name__
        raise TraceError(what=told, expected=expected, line=number) from error


# --- what the types alone do not say ---


def _check(event: ev.Event, number: int) -> None:
    problem = _CHECKS[type(event)](event) if type(event) in _CHECKS else None
    if problem is not None:
        raise at_line(TraceError(what=problem[0], expected=problem[1]), number)


_Problem = tuple[str, str] | None


def _resource(event: ev.Resource) -> _Problem:
    for key in ("capacity", "units", "count", "initial"):
        value = getattr(event, key)
        if value is not None and value < 0:
            return f"{key} {value} of {event.r}", "zero or more"
    return None if event.r else ("a resource without an id", "the key r")


def _wait(event: ev.Wait) -> _Problem:
    if event.ticket < 0:
        return f"ticket {event.ticket}", "zero or more"
    for clause in event.needs:
        if not 0 <= clause.k <= len(clause.of):
            return f"{clause.k} of {len(clause.of)} atoms", "k between 0 and the number of atoms"
        for atom in clause.of:
            if sum(part is not None for part in (atom.r, atom.p, atom.external)) != 1:
                return "an atom with none or several of r, p, external", "exactly one of them"
            if atom.units <= 0:
                return f"{atom.units} units", "a positive number"
            if atom.seq is not None and atom.seq < 0:
                return f"operation number {atom.seq}", "zero or more"
    return None


def _units(event: ev.Hold | ev.Release) -> _Problem:
    return (f"{event.units} units of {event.r}", "a positive number") if event.units <= 0 else None


def _count(event: ev.Send | ev.Recv | ev.Signal) -> _Problem:
    wrong = isinstance(event.n, int) and event.n <= 0
    return (f"a count of {event.n} for {event.r}", "a positive number") if wrong else None


def _arrive(event: ev.Arrive) -> _Problem:
    return (f"operation number {event.seq}", "zero or more") if event.seq < 0 else None


def _end(event: ev.End) -> _Problem:
    return None if event.p else ("end without a participant", "the key p")


def _progress(event: ev.Progress) -> _Problem:
    return (f"progress {event.n}", "zero or more") if event.n < 0 else None


def _fence(event: ev.Fence) -> _Problem:
    return (f"incarnation {event.incarnation}", "zero or more") if event.incarnation < 0 else None


def _beat(event: ev.Beat) -> _Problem:
    return (f"number {event.n} of {event.src}", "zero or more") if event.n < 0 else None


_CHECKS: dict[type, Callable[[Any], _Problem]] = {
    ev.Resource: _resource, ev.Wait: _wait, ev.End: _end, ev.Progress: _progress, ev.Fence: _fence, ev.Beat: _beat,
    ev.Hold: _units, ev.Release: _units, ev.Send: _count, ev.Recv: _count, ev.Signal: _count, ev.Arrive: _arrive,
}  # fmt: skip
