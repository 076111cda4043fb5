"""Records into the single, numbered events of a trace: what changed from one picture of a process to the next.

Processes report pictures (each record rebuilds all that is known), a trace holds events. Of a picture, only what differs from
the one before is written: waits that are over wake, holds that are gone are released, what is new is told. The numbers of a
source are made anew, from 1 without gaps, since one record may be many events or none.

A thread that is in no picture any more has ended, or is not worth telling. Its name may come again, and an end is for ever, so
it is not told as ended: it counts as running, which can hide a standstill and never makes one up. When its process
ends, all its threads end with it.

A record that was lost leaves no trace here: the next picture tells the difference to what was told last, and until then the
source has answered no round, so nothing about it is proved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from unknot.graph import events as ev
from unknot.graph.ids import parse
from unknot.graph.trace import Line

_HeldKey = tuple[str, str, str]
_IssuedKey = tuple[str, str, int]


@dataclass(slots=True)
class _Picture:
    """What is known of one source, as far as it is told again in each picture."""

    waits: dict[str, ev.Wait] = field(default_factory=dict)
    holds: dict[_HeldKey, int] = field(default_factory=dict)
    issued: dict[_IssuedKey, ev.Arrive] = field(default_factory=dict)
    started: dict[str, ev.Start] = field(default_factory=dict)
    marks: dict[tuple[str, str], ev.Progress] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Unfolder:
    """Turns records, in the order in which a watcher takes them in, into lines of a trace of order `arrival`."""

    _pictures: dict[str, _Picture] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _declared: dict[tuple[str, str], ev.Resource] = field(default_factory=dict)
    _line: int = 1

    def unfold(self, record: ev.Record) -> list[Line]:
        """The lines that `record` adds; none if it tells nothing new."""
        told = list(self._full(record) if record.full else self._parts(record))
        return [self._numbered(record, event) for event in told]

    def _numbered(self, record: ev.Record, event: ev.Event) -> Line:
        n = self._numbers[record.src] = self._numbers.get(record.src, 0) + 1
        self._line += 1
        if isinstance(event, ev.Beat):
            event = msgspec.structs.replace(event, n=n, t=event.t or record.t)
        elif not event.t:
            event = msgspec.structs.replace(event, t=record.t)
        return Line(number=self._line, event=event, src=record.src, n=n)

    # --- parts ---

    def _parts(self, record: ev.Record) -> Iterator[ev.Event]:
        """Events that are changes already. The store's are about participants of others, and change what is known of these."""
        for event in record.events:
            if isinstance(event, ev.Resource) and self._is_declared(record.src, event):
                continue
            if event.p:
                _change(self._pictures.setdefault(parse(event.p).source, _Picture()), event)
            yield event
            if isinstance(event, ev.End):
                yield from self._ghosts(event)

    def _ghosts(self, end: ev.End) -> Iterator[ev.Event]:
        """The threads that end with their process."""
        if parse(end.p).source != end.p:
            return
        known = self._pictures.get(end.p, _Picture())
        for pid in known.started:
            if pid not in known.ended and pid != end.p:
                known.ended.add(pid)
                yield ev.End(p=pid, how=end.how, t=end.t)
        known.ended.add(end.p)

    def _is_declared(self, source: str, event: ev.Resource) -> bool:
        """Whether `source` has declared it in these words before; rights may differ in the words of another."""
        same = self._declared.get((source, event.r)) == event
        self._declared[source, event.r] = event
        return same

    # --- whole pictures ---

    def _full(self, record: ev.Record) -> Iterator[ev.Event]:
        known, now = self._pictures.setdefault(record.src, _Picture()), _Picture()
        others = [event for event in record.events if not _note(now, event)]
        declared = [event for event in others if isinstance(event, ev.Resource)]
        yield from (event for event in declared if not self._is_declared(record.src, event))
        yield from _over(known, now, record.t)
        yield from _new(known, now)
        rest = [event for event in others if not isinstance(event, ev.Resource)]
        yield from (event for event in rest if not isinstance(event, ev.Beat) and not _is_told(known, event))
        yield from (event for event in rest if isinstance(event, ev.Beat))
        known.waits, known.holds, known.issued = now.waits, now.holds, now.issued
        known.started |= now.started
        known.marks |= now.marks


def _note(picture: _Picture, event: ev.Event) -> bool:
    """Take the event into the picture; False if it is none that a picture holds."""
    if isinstance(event, ev.Wait):
        picture.waits[event.p] = event
    elif isinstance(event, ev.Wake):
        picture.waits.pop(event.p, None)
    elif isinstance(event, ev.Hold):
        key = (event.p, event.r, event.mode)
        picture.holds[key] = picture.holds.get(key, 0) + event.units
    elif isinstance(event, ev.Arrive):
        picture.issued[event.p, event.r, event.seq] = event
    elif isinstance(event, ev.Start):
        picture.started[event.p] = event
    elif isinstance(event, ev.Progress):
        picture.marks[event.p, event.what] = event
    else:
        return False
    return True


def _change(picture: _Picture, event: ev.Event) -> None:
    if isinstance(event, ev.Release):
        for key in [key for key in picture.holds if key[:2] == (event.p, event.r)]:
            del picture.holds[key]
    else:
        _note(picture, event)


def _over(known: _Picture, now: _Picture, at: float) -> Iterator[ev.Event]:
    for pid, wait in known.waits.items():
        later = now.waits.get(pid)
        if later is None or later.ticket != wait.ticket:
            yield ev.Wake(p=pid, ticket=wait.ticket, t=at)
    for (pid, r, mode), units in known.holds.items():
        fewer = units - now.holds.get((pid, r, mode), 0)
        if fewer > 0:
            yield ev.Release(p=pid, r=r, units=fewer, t=at)


def _new(known: _Picture, now: _Picture) -> Iterator[ev.Event]:
    for pid, start in now.started.items():
        if pid not in known.started:
            yield start
    for (pid, r, mode), units in now.holds.items():
        more = units - known.holds.get((pid, r, mode), 0)
        if more > 0:
            yield ev.Hold(p=pid, r=r, mode=mode, units=more)
    for key, arrive in now.issued.items():
        if known.issued.get(key) != arrive:
            yield arrive
    yield from _work(known, now)
    for pid, wait in now.waits.items():
        before = known.waits.get(pid)
        if before is None or before.ticket != wait.ticket:
            yield wait


def _work(known: _Picture, now: _Picture) -> Iterator[ev.Event]:
    """A picture has totals, a trace has what was added."""
    for mark, progress in now.marks.items():
        before = known.marks[mark].n if mark in known.marks else 0
        if progress.n > before:
            yield msgspec.structs.replace(progress, n=progress.n - before)


def _is_told(known: _Picture, event: ev.Event) -> bool:
    """Whether an end is told already: it is in each picture for as long as what the thread held is."""
    if not isinstance(event, ev.End):
        return False
    told = event.p in known.ended
    known.ended.add(event.p)
    return told
