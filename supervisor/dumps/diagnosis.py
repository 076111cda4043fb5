"""What the dumps of a run say together: the same graph and the same sentences as for a live run, and a roll call.

Each dump becomes events: what a rank issued, and for what of it has not completed the wait of its group's queue. A rank
whose queues stand is taken to stand too, at what it issued last: the dumps are written when a time-out strikes, minutes
after. So rings through several groups are found, and ranks that disagree. That is the dumps' word and not a proof; a rank
without a dump may have done anything, and is never accused, only missed.

Where nothing is closed, each group with an operation that stands is told by roll call: who has arrived, who has not and what these
issued last. A rank that is missing everywhere and has completed all it issued is elsewhere: in its own code, or gone.

The records of a ring buffer begin at different operations in different ranks; only operations that both still have are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from unknot.graph import events as ev
from unknot.graph.advice import advice, mismatch_advice
from unknot.graph.call_sites import CallSites, Mixing
from unknot.graph.collectives import minority
from unknot.graph.explain import headline, mismatch_headline, mismatch_text, sentences, text
from unknot.graph.live import LiveGraph
from unknot.graph.verdict import evaluate
from unknot.graph.wording import age, listed
from unknot.supervisor.dumps.flight import Dump, Entry

_MATCH = ("op", "shape", "dtype")
_UNKNOWN = "site unknown"
DEFAULT = "default_pg"


class Diagnosed(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong. `seq`: the operation of `group` on which it shows; `culprits` and `waiting`: ranks."""

    cause: str
    kind: str
    group: str
    seq: int | None
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    text: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found. `missing`: ranks that some group names and that left no dump."""

    ranks: tuple[int, ...]
    missing: tuple[int, ...]
    findings: tuple[Diagnosed, ...]
    mixings: tuple[Mixing, ...]
    has_frames: bool


@dataclass(slots=True)
class _Group:
    """One group: its members, and per rank what it issued, by number."""

    name: str
    members: set[int] = field(default_factory=set)
    issued: dict[int, dict[int, Entry]] = field(default_factory=dict)

    @property
    def resource(self) -> str:
        return f"coll:{self.name}"

    def last(self, rank: int) -> int:
        """The newest operation that `rank` has issued, 0 for none."""
        return max(self.issued.get(rank, ()), default=0)

    def standing(self, rank: int) -> Entry | None:
        """The oldest operation of `rank` that has not completed."""
        return next((e for _, e in sorted(self.issued.get(rank, {}).items()) if not e.done), None)


def diagnose(
    dumps: Sequence[Dump], *, at: float, run: str = "", world_size: int = 0, alike: tuple[tuple[str, ...], ...] = ()
) -> Diagnosis:
    """What `dumps` say.

    `at`: when they were written, seconds since the epoch; `world_size`: how many ranks the default group had, where the dumps
    do not tell; `alike`: see call_sites.py.
    """
    groups = _groups(dumps)
    if DEFAULT in groups:
        groups[DEFAULT].members.update(range(world_size))
    now = max([at, *(entry.at for dump in dumps for entry in dump.entries)])
    graph, sites = LiveGraph(), CallSites()
    for event in _events(dumps, groups, alike):
        graph.apply(event)
        sites.observe(graph, event)
    found = [*_mismatches(graph, run, now), *_rings(graph, run, now)]
    told = {rank for one in found for rank in one.waiting}
    found += [one for group in groups.values() for one in _roll_call(group, groups, told, now=now)]
    known = tuple(dump.rank for dump in dumps)
    named = {rank for group in groups.values() for rank in group.members}
    return Diagnosis(
        ranks=known,
        missing=tuple(sorted(named.difference(known))),
        findings=tuple(found),
        mixings=sites.warnings(),
        has_frames=any(dump.has_frames for dump in dumps),
    )


def _groups(dumps: Iterable[Dump]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for dump in dumps:
        for name, ranks in dump.ranks.items():
            groups.setdefault(name, _Group(name)).members.update(ranks)
        for entry in dump.entries:
            group = groups.setdefault(entry.group, _Group(entry.group))
            group.members.add(dump.rank)
            if not entry.is_p2p:
                _add(group.issued.setdefault(dump.rank, {}), entry)
    return groups


def _add(issued: dict[int, Entry], entry: Entry) -> None:
    """Coalesced operations share one number: they are one, which is done when all are."""
    known = issued.get(entry.seq)
    if known is not None:
        together = known.op if known.op == entry.op else f"{known.op}+{entry.op}"[:100]
        entry = msgspec.structs.replace(known, op=together, done=known.done and entry.done)
    issued[entry.seq] = entry


# --- events ---


def _me(rank: int) -> str:
    return f"rank/{rank}#1"


def _number(pid: str) -> int:
    return int(pid.removeprefix("rank/").partition("#")[0])


def _events(
    dumps: Sequence[Dump], groups: dict[str, _Group], alike: tuple[tuple[str, ...], ...]
) -> Iterator[ev.Event]:
    for group in groups.values():
        members = tuple(_me(rank) for rank in sorted(group.members))
        yield ev.Resource(r=group.resource, type="collective", members=members, match=_MATCH, alike=alike or None)
    for dump in dumps:
        yield ev.Start(p=_me(dump.rank))
    for group in groups.values():
        everything = [(seq, rank, e) for rank, issued in group.issued.items() for seq, e in issued.items()]
        for seq, rank, entry in sorted(everything, key=lambda one: one[:2]):
            yield ev.Arrive(
                p=_me(rank), r=group.resource, seq=seq, op=entry.op or None, shape=entry.shape or None,
                dtype=entry.dtype or None, site=entry.site, t=entry.at,
            )  # fmt: skip
    channels: set[str] = set()
    for dump in dumps:
        yield from _waits(dump, groups, channels)


def _waits(dump: Dump, groups: dict[str, _Group], channels: set[str]) -> Iterator[ev.Event]:
    """The queues of a rank that stand, and the rank that stands with them."""
    me, needs, last = _me(dump.rank), [], None
    for group in groups.values():
        entry = group.standing(dump.rank)
        if entry is None:
            continue
        queue = f"{me}/queue:{group.name}"
        need = ev.Clause(k=1, of=(ev.Atom(r=group.resource, seq=entry.seq),))
        yield ev.Wait(p=queue, t=entry.at, ticket=1, needs=(need,), site=entry.site or _UNKNOWN, label=entry.op)
        needs.append(ev.Atom(p=queue))
        last = entry if last is None or entry.at > last.at else last
    for entry in dump.entries:
        if entry.is_p2p and not entry.done and entry.peer is not None:
            yield from _channel(entry, groups[entry.group], channels)
            op: Literal["send", "recv"] = "send" if _rank_in(groups[entry.group], entry.peer[0]) == dump.rank else "recv"
            needs.append(ev.Atom(r=_channel_name(entry, groups[entry.group]), op=op))
            last = entry if last is None or entry.at > last.at else last
    if last is not None:
        clauses = tuple(ev.Clause(k=1, of=(atom,)) for atom in needs)
        yield ev.Wait(p=me, t=last.at, ticket=1, needs=clauses, site=last.site or _UNKNOWN, label=last.op)


def _rank_in(group: _Group, number: int) -> int:
    """The rank whose number within `group` is `number`."""
    members = sorted(group.members)
    return members[number] if number < len(members) else number


def _channel_name(entry: Entry, group: _Group) -> str:
    assert entry.peer is not None
    sender, receiver = (_rank_in(group, number) for number in entry.peer)
    return f"mbox:{group.name} {sender} to {receiver}"


def _channel(entry: Entry, group: _Group, known: set[str]) -> Iterator[ev.Event]:
    name = _channel_name(entry, group)
    if name in known or entry.peer is None:
        return
    known.add(name)
    sender, receiver = (_me(_rank_in(group, number)) for number in entry.peer)
    yield ev.Resource(r=name, type="mailbox", capacity=0, senders=(sender,), receivers=(receiver,))


# --- findings ---


def _mismatches(graph: LiveGraph, run: str, now: float) -> Iterator[Diagnosed]:
    """The first operation of each group on which ranks disagree."""
    verdict = evaluate(graph, now)
    told: set[str] = set()
    for one in verdict.mismatches:
        if one.resource in told:
            continue
        told.add(one.resource)
        standing = next(
            (f for f in verdict.findings if f.kind == "mismatch" and any(e.resource == one.resource for e in f.edges)), None
        )
        waiting = standing.core if standing is not None else ()
        yield Diagnosed(
            cause="mismatch", kind="mismatch", group=one.resource.removeprefix("coll:"), seq=one.seq,
            culprits=_ranks(minority(one.issued)), waiting=_ranks(waiting),
            text=f"{mismatch_headline(one, run)}\n{mismatch_text(graph, one, standing, now)}\n"
            f"What to do: {mismatch_advice(graph, one.resource, one.seq)}",
        )  # fmt: skip


def _rings(graph: LiveGraph, run: str, now: float) -> Iterator[Diagnosed]:
    for one in evaluate(graph, now).findings:
        if one.kind == "mismatch":
            continue
        group = one.groups[0].removeprefix("coll:") if one.groups else ""
        seq = next((edge.seq for edge in one.edges if edge.seq is not None), None)
        told = f"{headline(one, run, now)}\n{text(sentences(graph, one, now))}\nWhat to do: {advice(graph, one)}"
        yield Diagnosed(
            cause=one.cause, kind=one.kind, group=group, seq=seq, culprits=_ranks(one.culprits),
            waiting=_ranks((*one.core, *one.stuck)), text=told,
        )  # fmt: skip


def _ranks(participants: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({_number(pid) for pid in participants}))


def _roll_call(group: _Group, groups: dict[str, _Group], told: set[int], *, now: float) -> Iterator[Diagnosed]:
    """The oldest operation of a group that stands, if no ring or mismatch tells it already."""
    standing = {rank: entry for rank in group.members if (entry := group.standing(rank)) is not None}
    if not standing or standing.keys() <= told:
        return
    seq = min(entry.seq for entry in standing.values())
    arrived = sorted(rank for rank in group.members if group.last(rank) >= seq)
    absent = sorted(group.members.difference(arrived))
    entry = next(one for one in standing.values() if one.seq == seq)
    where = entry.site or _UNKNOWN
    head = f"{entry.op or 'operation'} #{seq} of group {group.name} ({where}) stands for {age(now - entry.at)}"
    lines = [f"{head}: {len(arrived)} of {len(group.members)} ranks arrived"]
    lines += [f"rank {rank} is missing: {_elsewhere(rank, groups, now)}" for rank in absent]
    if not absent:
        lines.append(
            "all known ranks arrived and it has not completed: a rank that left no dump and is named nowhere may be missing "
            "(tell how many there were), one may have been stopped inside it, or the network fails"
        )
    told_first = f"ABSENT: {listed([f'rank {rank}' for rank in absent])}" if absent else "SLOW"
    numbered = [f"{number}. {line}." for number, line in enumerate(lines, 1)]
    yield Diagnosed(
        cause="absent" if absent else "slow", kind="absent" if absent else "running", group=group.name, seq=seq,
        culprits=tuple(absent), waiting=tuple(sorted(standing)),
        text="\n".join([f"{told_first} in group {group.name}", *numbered]),
    )  # fmt: skip


def _elsewhere(rank: int, groups: dict[str, _Group], now: float) -> str:
    """What a rank did last."""
    issued = [(e.at, g, e) for g in groups.values() for e in g.issued.get(rank, {}).values()]
    if not issued:
        return "it left no dump, or none of its operations is in it"
    at, group, entry = max(issued, key=lambda one: one[0])
    state = "completed" if entry.done else "not completed"
    where = entry.site or _UNKNOWN
    return f"its last operation, {age(now - at)} ago, was {entry.op} #{entry.seq} of group {group.name} ({where}), {state}"
