"""Which remedy comes next: a pure choice from the finding, what was tried, and the highest rung allowed.

Cheapest first. `interrupt` helps only where the victim holds something that others of the core wait for: ending the wait makes
it let go. To interrupt somebody who merely owes a message or an arrival frees nobody. `break` helps where a core member
stands in a collective group. Where neither applies, or both were tried, people are told, and nothing else is done.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from unknot.graph.finding import Finding
from unknot.graph.ids import parse
from unknot.supervisor.config import Rung

_HEIGHT: dict[str, int] = {"alert": 0, "interrupt": 1, "break": 2}
_WORTH = {"environment": 0, "agent": 1, "judge": 2, "trainer": 3}


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """One rung: on a participant (`interrupt`), a collective resource (`break`) or a process (`restart`), and why this one."""

    rung: Literal["interrupt", "break", "restart"]
    target: str
    why: str


def next_remedy(
    finding: Finding, *, tried: tuple[str, ...], highest: Rung, spare: frozenset[str] = frozenset()
) -> Remedy | None:
    """The cheapest remedy not yet tried, None when only people can help.

    Args:
        finding: confirmed.
        tried: targets of remedies that did not help.
        highest: the highest rung that policy allows.
        spare: who was interrupted the last time that these participants stood still; chosen only if nobody else can be.
    """
    if finding.cause not in ("deadlock", "mismatch", "dead", "absent") or finding.kind == "timed":
        return None
    victims = [pid for pid in finding.interruptible if pid not in tried]
    if victims and _HEIGHT[highest] >= _HEIGHT["interrupt"]:
        victim = min(victims, key=lambda pid: (pid in spare, _worth(pid), -finding.tickets[pid], pid))
        return Remedy(rung="interrupt", target=victim, why="its wait can be ended, and it holds what others wait for")
    groups = [group for group in finding.groups if group not in tried]
    if groups and finding.cause in ("deadlock", "mismatch") and _HEIGHT[highest] >= _HEIGHT["break"]:
        return Remedy(rung="break", target=groups[0], why="no wait whose end would free a resource; the group re-forms")
    return None


def _worth(participant: str) -> int:
    return _WORTH.get(parse(participant).role, 2)
