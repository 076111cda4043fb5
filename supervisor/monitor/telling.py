"""From findings, chains and deaths to incidents: ids, headlines, lines. Pure."""

from __future__ import annotations

import hashlib

import msgspec

from unknot.graph.advice import advice
from unknot.graph.explain import headline, sentences, slow_headline
from unknot.graph.finding import Finding, SlowChain
from unknot.graph.ids import parse, shown
from unknot.graph.live import LiveGraph
from unknot.graph.resources import UNITS
from unknot.graph.wording import age, bare, stray_rights
from unknot.recovery.checkpoint_wishes import FailedSave
from unknot.recovery.registration import MemberInfo
from unknot.supervisor.incidents import Action, Cause, Incident, Line
from unknot.supervisor.members import STARTING
from unknot.supervisor.monitor.circling import Circle
from unknot.supervisor.monitor.what_to_do import AFTER_A_CRASH, about_circle, about_death, about_old_wait, about_silence

OLD_WAITS = frozenset({"slow", "external", "starved"})
_FOUND = frozenset({"deadlock", "mismatch", "absent", "dead"})


def is_worth_telling(finding: Finding, now: float, patience_s: float) -> bool:
    """Not so a ring that its own deadlines cut within `patience_s`: to wait for each other with short time-outs is polling."""
    return finding.deadline is None or finding.deadline - now > patience_s


def is_found(incident: Incident) -> bool:
    """Whether the incident comes from a finding of the graph, and is over once that is found no more."""
    return incident.cause in _FOUND and incident.kind not in ("member", "crash")


def incident_id(run: str, key: str) -> str:
    """A short id that is the same for the same root cause: two leaders never make two incidents of one."""
    return "inc_" + hashlib.sha256(f"{run}\0{key}".encode()).hexdigest()[:10]


def of_finding(graph: LiveGraph, finding: Finding, *, run: str, incident_id: str, now: float) -> Incident:
    """A confirmed finding as an incident."""
    return Incident(
        id=incident_id, run=run, cause=finding.cause, kind=finding.kind, state="confirmed",
        headline=headline(finding, run, now), lines=_lines(graph, finding, now), culprits=finding.culprits,
        victims=finding.victims, core=finding.core, stuck=finding.stuck, tickets=finding.tickets,
        opened_at=now, closing_wait_at=finding.closing_wait_at, confirmed_at=now, advice=advice(graph, finding),
    )  # fmt: skip


def _lines(graph: LiveGraph, finding: Finding, now: float) -> tuple[Line, ...]:
    return tuple(
        Line(
            participant=s.participant, resource=s.resource, text=s.text, site=s.site, since=s.since,
            helpers=s.helpers, culprit=s.culprit,
        )
        for s in sentences(graph, finding, now)
    )  # fmt: skip


def with_stacks(incident: Incident, stacks: dict[str, tuple[str, ...]]) -> Incident:
    """The incident with more evidence; for a slow one, a line that tells where each culprit is now."""
    lines = incident.lines
    if incident.cause in ("slow", "starved", "livelock"):
        told = {line.participant for line in lines}
        lines += tuple(
            Line(participant=f"{source} now", resource="", text=f"{source} is now at {_place(stack)}.", culprit=True)
            for source, stack in stacks.items()
            if f"{source} now" not in told and stack
        )
    return msgspec.structs.replace(incident, stacks=stacks, lines=lines)


_IN_VAIN = "was interrupted several times and came back to this at once"


def with_vain(incident: Incident, participants: list[str]) -> Incident:
    """The incident with a line for each of those whom interrupting did not help; told once."""
    told = {line.participant for line in incident.lines if _IN_VAIN in line.text}
    lines = tuple(
        Line(
            participant=pid, resource="", culprit=True,
            text=f"{pid} {_IN_VAIN}; it is left alone for a while: let its code give up what it holds when DeadlockInterrupted "
            "is raised.",
        )
        for pid in participants
        if pid not in told
    )  # fmt: skip
    return msgspec.structs.replace(incident, lines=incident.lines + lines)


def _place(stack: tuple[str, ...]) -> str:
    main = next((text for text in stack if text.startswith("MainThread: ")), stack[0])
    return main.partition(": ")[2].split(" < ")[0]


def unresponsive(graph: LiveGraph, finding: Finding, source: str, *, run: str, now: float) -> Incident:
    """A member of a candidate does not answer: its process is stopped or cannot run. Never called a deadlock."""
    after = f"everybody below waits, by the last records, and {source} has not answered; nothing is proved"
    first = Line(
        participant=source, resource="", culprit=True,
        text=f"{source} does not answer: its process is stopped, swapped out, or holds the interpreter lock; {after}.",
    )  # fmt: skip
    return Incident(
        id=incident_id(run, f"unresponsive:{source}:{graph.absorbed(source)}"), run=run, cause="unresponsive",
        kind="silent", state="open", headline=f"UNRESPONSIVE in run {run}: {source} does not answer",
        lines=(first, *_lines(graph, finding, now)), culprits=(source,), victims=finding.victims, core=(),
        stuck=finding.stuck, tickets={source: graph.absorbed(source)}, opened_at=now,
        closing_wait_at=finding.closing_wait_at, advice=about_silence(None),
    )  # fmt: skip


def silent(graph: LiveGraph, member: MemberInfo, *, run: str, now: float) -> Incident:
    """A member has not said for long that it lives, though nobody said that it ended."""
    source, quiet_s = member.source, now - member.beat_at
    text = (
        f"{source} (process {member.pid} on {member.host}) has not been heard of for {age(quiet_s)}: it is stopped, cut off "
        "from Redis, holds the interpreter lock, or ended without a word; what it said before no longer counts."
    )
    return Incident(
        id=incident_id(run, f"silent:{source}:{member.beat_at}"), run=run, cause="unresponsive", kind="silent",
        state="open", headline=f"UNRESPONSIVE in run {run}: {source} has not been heard of for {age(quiet_s)}",
        lines=(Line(participant=source, resource="", text=text, since=member.beat_at, culprit=True),),
        culprits=(source,), victims=(), core=(), stuck=(), tickets={source: graph.absorbed(source)}, opened_at=now,
        advice=about_silence(member),
    )  # fmt: skip


def answers_again(graph: LiveGraph, incident: Incident) -> bool:
    """Whether the silent source of an incident has sent a record since."""
    source = incident.culprits[0]
    return graph.absorbed(source) > incident.tickets[source]


def death(member: MemberInfo, *, run: str, now: float) -> Incident:
    """A member's process ended by an error or a signal."""
    how = member.error or "no error was told"
    text = f"{member.source} (process {member.pid} on {member.host}) is dead: {how}"
    return Incident(
        id=incident_id(run, f"death:{member.source}"), run=run, cause="dead", kind="member", state="open",
        headline=f"DEAD in run {run}: {member.source} ended with {how[:200]}",
        lines=(Line(participant=member.source, resource="", text=text, since=member.ended_at, culprit=True),),
        culprits=(member.source,), victims=(), core=(), stuck=(), tickets={}, opened_at=now, confirmed_at=now,
        advice=about_death(member),
    )  # fmt: skip


def crash(member: MemberInfo, *, run: str, now: float) -> Incident:
    """A member's process was lost, and another one takes its place."""
    lost = member.crash
    assert lost is not None
    source = f"{member.member}#{lost.incarnation}"
    text = f"{source} is gone: {lost.how}; what it held is free, what it had not finished is void, and it is started again."
    return Incident(
        id=incident_id(run, f"crash:{source}"), run=run, cause="dead", kind="crash", state="acting",
        headline=f"DEAD in run {run}: {source} is gone and is started again",
        lines=(Line(participant=source, resource="", text=text, since=lost.at, culprit=True),),
        culprits=(source,), victims=(), core=(), stuck=(), tickets={}, opened_at=now, confirmed_at=now,
        actions=(Action(remedy="restart", target=source, at=lost.at, note="its restart policy says so"),),
        advice=AFTER_A_CRASH,
    )  # fmt: skip


def circle_id(run: str, member: MemberInfo) -> str:
    """One incident for each time that a process stops making progress."""
    return incident_id(run, f"circle:{member.source}:{member.progress_n}")


def circle(found: Circle, *, run: str, now: float) -> Incident:
    """A member that runs and makes no progress."""
    member, without = found.member, age(found.without_s)
    usual = f", one every {age(found.usual_s)} before" if found.usual_s is not None else ""
    marks = f"{member.progress_n} mark{'' if member.progress_n == 1 else 's'} until then{usual}"
    text = f"{member.source} runs, waits for nothing, and has marked no progress for {without} ({marks}): it may go round in circles."
    return Incident(
        id=circle_id(run, member), run=run, cause="livelock", kind="circling", state="open",
        headline=f"LIVELOCK in run {run}: {bare(member.source)} runs without progress (for {without})",
        lines=(Line(participant=member.source, resource="", text=text, since=member.progress_at, culprit=True),),
        culprits=(member.source,), victims=(), core=(), stuck=(), tickets={}, opened_at=now, confirmed_at=now,
        advice=about_circle(member),
    )  # fmt: skip


def checkpoint_failed(failed: FailedSave, *, run: str, now: float) -> Incident:
    """A manifest was not committed. One incident until one is, however many fail in between."""
    what = f"the checkpoint of group {failed.group} before step {failed.seq} was not made"
    text = f"{failed.source} says that {what}: {failed.why}; training goes on, and the checkpoint before it stays the newest."
    return Incident(
        id=incident_id(run, f"checkpoint:{failed.group}:{failed.since}"), run=run, cause="checkpoint", kind="failed",
        state="open", headline=f"CHECKPOINT in run {run}: {what + ': ' + failed.why[:200] if failed.n == 1 else failed.told()[:300]}",
        lines=(Line(participant=failed.source, resource="", text=text, since=float(failed.since), culprit=True),),
        culprits=(failed.source,), victims=(), core=(), stuck=(), tickets={}, opened_at=now, confirmed_at=now,
        advice=failed.todo,
    )  # fmt: skip


def age_of(graph: LiveGraph, chain: SlowChain, now: float) -> float:
    """Seconds since the wait began that stands directly before the chain's end."""
    one = graph.participants.get(chain.by)
    return now - one.wait.t if one is not None and one.wait is not None else 0.0


def is_ordinary(graph: LiveGraph, chain: SlowChain) -> bool:
    """A chain that nobody wants to hear of: only the driver waits, or what is open is no outside wait."""
    if all(parse(pid).role == "driver" for pid in chain.waiters):
        return True
    one = graph.participants.get(chain.by)
    if chain.kind == "running" or one is None or one.wait is None:
        return False
    return not any(atom.external is not None for clause in one.wait.needs for atom in clause.of)


def has_begun(graph: LiveGraph, participant: str) -> bool:
    """Whether the process of a participant has marked any progress yet."""
    source = parse(participant).source
    return any(graph.participants[pid].last_progress is not None for pid in graph.by_source.get(source, ()))


def is_start(graph: LiveGraph, chain: SlowChain) -> bool:
    """Whether what is waited for is a process that is being started."""
    one = graph.participants.get(chain.by)
    if one is None or one.wait is None:
        return False
    return any((atom.external or "").startswith(STARTING) for clause in one.wait.needs for atom in clause.of)


def of_chain(
    graph: LiveGraph, chain: SlowChain, *, run: str, now: float, usual_s: float | None = None
) -> Incident:
    """A straggler, or a wait for the outside."""
    roots = chain.roots or (chain.resource,)
    cause = _cause_of(graph, chain)
    one = graph.participants[chain.by]
    ticket = one.wait.ticket if one.wait is not None else 0
    since = one.wait.t if one.wait is not None else now
    named = " or ".join(map(bare, roots)) if chain.roots else chain.resource
    direct = (
        f"{chain.by} waits {age(now - since)} at {chain.site or 'an unknown place'} for {shown(chain.resource)}, "
        if chain.roots and chain.resource not in chain.roots
        else f"{chain.by} waits {age(now - since)} at {chain.site or 'an unknown place'} for {named}, "
    )
    usual = f" (such waits usually take {age(usual_s)})" if usual_s is not None else ""
    how = "gives nothing back: starved" if cause == "starved" else "is running, not waiting: slow"
    tail = f"and {named} {how}, not stuck{usual}." if chain.roots else "which is outside of the run."
    others = len(chain.waiters) - 1
    lines = [Line(participant=chain.by, resource=chain.resource, text=direct + tail, site=chain.site, since=since)]
    lines += _strays(graph, chain.by)
    if others > 0:
        behind = ", ".join(pid for pid in chain.waiters if pid != chain.by)
        lines.append(Line(participant="", resource="", text=f"{others} more wait behind it: {behind}."))
    return Incident(
        id=incident_id(run, f"{cause}:{chain.by}:{ticket}"), run=run, cause=cause, kind=chain.kind, state="open",
        headline=slow_headline(chain, run, starved=cause == "starved"), lines=tuple(lines), culprits=tuple(roots),
        victims=chain.waiters, core=(),
        stuck=(), tickets={chain.by: ticket}, opened_at=now, confirmed_at=now, closing_wait_at=since,
        advice=about_old_wait(cause, roots, chain.resource),
    )  # fmt: skip


def _strays(graph: LiveGraph, participant: str) -> list[Line]:
    """What a wait can never get, because those who could bring it are misspelt."""
    wait = graph.participants[participant].wait
    atoms = [atom for clause in wait.needs for atom in clause.of if atom.r is not None] if wait is not None else []
    told = {atom.r or "": stray_rights(graph, graph.resources[atom.r or ""], atom) for atom in atoms}
    return [
        Line(participant="", resource=resource, text=f"{shown(resource)}: {text}.") for resource, text in told.items() if text
    ]


def _cause_of(graph: LiveGraph, chain: SlowChain) -> Cause:
    if chain.kind == "external":
        return "external"
    state = graph.resources.get(chain.resource)
    return "starved" if state is not None and state.type in UNITS else "slow"


def group_members(graph: LiveGraph, resource: str) -> tuple[str, ...]:
    """The members of a collective resource."""
    declared = graph.resources[resource].declared
    return declared.members or () if declared is not None else ()


def resolution(incident: Incident) -> str:
    """How an incident ended, in words."""
    done = [action for action in incident.actions if action.outcome in ("done", "pending")]
    if done:
        return f"freed by {done[-1].remedy} of {shown(done[-1].target)}"
    return {
        "slow": "the wait has ended", "starved": "the wait has ended", "external": "the outside answered",
        "unresponsive": "it answers again", "livelock": "it makes progress again, or has ended",
        "dead": "a new incarnation has registered", "checkpoint": "a checkpoint was committed",
    }.get(incident.cause, "the waits have ended by themselves")  # fmt: skip
