"""The ring of an incident as one line: who waits for what, held by whom, back to the first."""

from __future__ import annotations

from unknot.supervisor.incidents import Incident, Line

MAX_HOPS = 12


def path_of(incident: Incident) -> str:
    """`a → lock:x → b → lock:y → a`, or nothing if the core is no ring of two or more hops.

    Follows from each line of the core the first helper that has a line itself. A long ring is cut in its
    middle.
    """
    hops, closed = _walk(incident)
    if not closed:
        return ""
    parts = [f"{line.participant} → {line.resource}" for line in hops]
    if len(parts) > MAX_HOPS:
        kept = MAX_HOPS // 2
        parts = [*parts[:kept], f"({len(parts) - 2 * kept} more)", *parts[-kept:]]
    return " → ".join([*parts, hops[0].participant])


def _walk(incident: Incident) -> tuple[list[Line], bool]:
    """The lines of one ring of the core, and whether there is one."""
    core = set(incident.core) or {line.participant for line in incident.lines}
    by_participant: dict[str, Line] = {}
    for line in incident.lines:
        if line.participant in core:
            by_participant.setdefault(line.participant, line)
    hops: list[Line] = []
    at = next(iter(by_participant.values()), None)
    while at is not None and at not in hops:
        hops.append(at)
        at = next((by_participant[who] for who in at.helpers if who in by_participant), None)
    if at is None:
        return [], False
    return hops[hops.index(at) :], True
