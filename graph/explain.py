"""A finding in sentences: what people read first. Numbered lines, a one-line headline, nothing to look up.

A thread that waits for its own group queue is told together with the queue: nobody thinks of them as two. A
rank that others wait for is named, not only its waiters. What ended comes first, since that is the cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from unknot.graph.collectives import minority
from unknot.graph.finding import Edge, Finding, Mismatch, SlowChain, Suspect
from unknot.graph.ids import parse, short, shown
from unknot.graph.wording import Words, age, bare, listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from unknot.graph.live import LiveGraph

LINES = 5
_SHOWN_IN_HEADLINE = 9


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One numbered line: who, where, for what, since when (seconds), and who could end it."""

    number: int
    participant: str
    resource: str
    text: str
    site: str | None = None
    since: float = 0.0
    helpers: tuple[str, ...] = ()
    culprit: bool = False


def headline(finding: Finding, run: str, now: float) -> str:
    """One line: `DEADLOCK in run ppo-17: trainer/0 → lock:weights → agent/b → … → trainer/0 (standing for 42 s)`."""
    standing = f"standing for {age(now - finding.closing_wait_at)}"
    if finding.deadline is not None:
        standing += f", ends by itself in {age(finding.deadline - now)}"
    return f"{finding.cause.upper()} in run {run}: {_path(finding)} ({standing})"


def _path(finding: Finding) -> str:
    if finding.kind == "mismatch":
        edge = next(edge for edge in finding.edges if edge.participant in finding.core)
        return (
            f"{short(edge.resource)} #{edge.seq} issued differently by {listed(map(bare, finding.culprits))}"
        )
    walk = _walk(finding)
    parts: list[str] = []
    for edge in walk:
        if not parse(edge.participant).is_queue:
            parts.append(bare(edge.participant))
        if edge.helper == "" or not parse(edge.helper).is_queue:
            parts.append(short(edge.resource) if edge.via != "peer" else "answer")
    last = walk[-1]
    parts.append(
        f"{bare(last.helper)} (gone)" if last.gone else bare(last.helper) if last.helper else "nobody"
    )
    if len(parts) > _SHOWN_IN_HEADLINE:
        parts = [*parts[:4], "…", parts[-1]]
    return " → ".join(parts)


def _walk(finding: Finding) -> list[Edge]:
    """Once round a shortest ring of the core, or the one step of a core that is no ring."""
    core = set(finding.core)
    links: dict[str, list[Edge]] = {}
    for edge in finding.edges:
        if edge.participant in core and edge.helper in core:
            links.setdefault(edge.participant, []).append(edge)
    if not links:
        return [next(edge for edge in finding.edges if edge.participant in core)]
    start = min((pid for pid in core if not parse(pid).is_queue), default=min(core))
    return _shortest_ring(links, start)


def _shortest_ring(links: dict[str, list[Edge]], start: str) -> list[Edge]:
    """Breadth first from `start` back to `start`."""
    paths: list[list[Edge]] = [[edge] for edge in links[start]]
    seen: set[str] = set()
    for path in paths:
        at = path[-1].helper
        if at == start:
            return path
        if at not in seen:
            seen.add(at)
            paths.extend([*path, edge] for edge in links.get(at, ()))
    return [links[start][0]]


def sentences(graph: LiveGraph, finding: Finding, now: float) -> list[Sentence]:
    """The finding line by line: what ended, the core in the order of its ring, then who is dragged along."""
    return _sentences(graph, finding, Words(graph, now))


def _sentences(graph: LiveGraph, finding: Finding, words: Words) -> list[Sentence]:
    gone = {edge.helper for edge in finding.edges if edge.gone}
    lines = [_gone(finding, words, pid) for pid in finding.culprits if pid in gone]
    told = _told(words, graph, finding)
    lines += [_line(graph, finding, words, pid) for pid in told]
    rest = len(lines) - LINES
    if rest > 1:
        more = Sentence(number=0, participant="", resource="", text=f"and {rest} more behind it")
        lines = [*lines[:LINES], more]
    return [msgspec.structs.replace(line, number=number) for number, line in enumerate(lines, 1)]


def _told(words: Words, graph: LiveGraph, finding: Finding) -> list[str]:
    """Who gets a line: no queue whose thread is told already."""
    around = [edge.participant for edge in _walk(finding)]
    order = dict.fromkeys([*around, *finding.core, *finding.closure, *_nearest_first(finding)])
    waiting = [graph.participants[pid] for pid in order if graph.ticket(pid) is not None]
    folded = {words.fold(one)[0].id for one in waiting if words.fold(one)[0] is not one}
    return [one.id for one in waiting if one.id not in folded]


def _nearest_first(finding: Finding) -> list[str]:
    """Those dragged along: first who waits for the core itself, then who waits for these, and so on."""
    behind: dict[str, list[str]] = {}
    for edge in finding.edges:
        behind.setdefault(edge.helper, []).append(edge.participant)
    order = dict.fromkeys(finding.core)
    for pid in (todo := list(order)):
        new = [one for one in behind.get(pid, ()) if one not in order]
        order |= dict.fromkeys(new)
        todo += dict.fromkeys(new)
    return [pid for pid in [*order, *finding.stuck] if pid in set(finding.stuck)]


def _gone(finding: Finding, words: Words, pid: str) -> Sentence:
    edges = [edge for edge in finding.edges if edge.helper == pid and edge.gone]
    resource = edges[0].resource if edges else ""
    does = {"hold": "still holds", "owe": "is still awaited at", "peer": "still owes an answer"}
    what = does.get(edges[0].via, "is awaited") if edges else "is awaited"
    named = "" if edges and edges[0].via == "peer" else f" {shown(resource)}"
    text = f"{pid} {words.fate(pid)} and {what}{named}."
    return Sentence(number=0, participant=pid, resource=resource, text=text, culprit=True)


def _line(graph: LiveGraph, finding: Finding, words: Words, pid: str) -> Sentence:
    one = graph.participants[pid]
    assert one.wait is not None
    teller, wait = words.fold(one)
    edges = [edge for edge in finding.edges if edge.participant == teller.id]
    return Sentence(
        number=0,
        participant=pid,
        resource=next((edge.resource for edge in edges), next(iter(wait.resources()), "")),
        text=words.sentence(pid),
        site=one.wait.site or wait.site,
        since=one.wait.t,
        helpers=tuple(dict.fromkeys(edge.helper for edge in edges if edge.helper)),
        culprit=pid in finding.culprits,
    )


def mismatch_headline(mismatch: Mismatch, run: str) -> str:
    """One line about the first operation of a group on which its ranks disagree."""
    rare = listed(map(bare, minority(mismatch.issued)))
    return f"MISMATCH in run {run}: {short(mismatch.resource)} #{mismatch.seq} issued differently by {rare}"


def mismatch_text(graph: LiveGraph, mismatch: Mismatch, finding: Finding | None, now: float) -> str:
    """What each rank issued and where, then who waits for it: in silence where nobody does."""
    words, state = Words(graph, now), graph.resources[mismatch.resource]
    head = (
        f"#{mismatch.seq} is the first operation of {shown(mismatch.resource)} on which the ranks disagree: "
        f"{words.disagreement_once(state, mismatch.seq)}."
    )
    if finding is None:
        return f"1. {head}\n2. Nobody waits for it: what follows may be wrong in silence."
    rest = [msgspec.structs.replace(one, number=one.number + 1) for one in _sentences(graph, finding, words)]
    return f"1. {head}\n{text(rest)}"


def slow_headline(chain: SlowChain, run: str, *, starved: bool = False) -> str:
    """One line about old waits that are no deadlock; `starved`: they wait for units that somebody keeps."""
    waiters = f"{len(chain.waiters)} wait" if len(chain.waiters) > 1 else f"{bare(chain.waiters[0])} waits"
    if chain.kind == "external":
        return f"EXTERNAL in run {run}: {waiters} for {short(chain.resource)} (for {age(chain.oldest_age_s)})"
    roots = listed(map(bare, chain.roots), "or")
    return f"{'STARVED' if starved else 'SLOW'} in run {run}: {waiters} for {roots} (for {age(chain.oldest_age_s)})"


def slow_sentence(chain: SlowChain) -> str:
    """Who waits for whom, and that the last one is at work, or outside the run."""
    site = f" at {chain.site}" if chain.site else ""
    behind = [pid for pid in chain.waiters if pid != chain.by]
    others = f"; behind it {listed(behind)}" if behind else ""
    root = f"{listed(chain.roots, 'or')} still runs" if chain.kind == "running" else "nobody in the run can help"
    what = chain.resource if chain.kind == "external" else shown(chain.resource)
    head = f"{chain.by} waits{site} for {what}, and {root}"
    return f"{head}{others}; the oldest wait is {age(chain.oldest_age_s)}."


def suspect_sentence(suspect: Suspect, now: float) -> str:
    """A wait that may or may not end."""
    site = f" at {suspect.site}" if suspect.site else ""
    what = suspect.label if suspect.label != suspect.resource else shown(suspect.resource)
    where = "outside the run" if suspect.external else "and who could end it is not known"
    return f"{suspect.participant} waits {age(now - suspect.since)}{site} for {what}, {where}."


def text(lines: Iterable[Sentence]) -> str:
    """The sentences as numbered lines."""
    return "\n".join(f"{line.number}. {line.text}" if line.participant else line.text for line in lines)
