"""What to do about an incident that is no finding of the graph (those have `graph/advice.py`). Pure, one or two sentences each."""

from __future__ import annotations

from collections.abc import Iterable

from unknot.graph.ids import shown
from unknot.graph.wording import bare, listed
from unknot.recovery.registration import MemberInfo
from unknot.supervisor.incidents import Cause

AFTER_A_CRASH = "Nothing now. If it comes again, look at how it ended, in its own output."


def about_silence(member: MemberInfo | None) -> str:
    """Of a process that does not answer; None: all that is known is that."""
    if member is None or not member.pid:
        return "See what its process does. `kill -CONT` if it is stopped; `kill -9` if it must go: its restart policy decides then."
    where = f"process {member.pid} on {member.host}"
    return (
        f"See what {where} does, e.g. with `py-spy dump --pid {member.pid}`. `kill -CONT {member.pid}` if it is stopped; "
        f"`kill -9 {member.pid}` if it must go: its restart policy decides then."
    )


def about_death(member: MemberInfo) -> str:
    """Of a member that ended by an error or a signal."""
    first = f"Find the first error in the output of {member.member}; what follows it is consequence."
    return f"{first} `restart=` of its decorator says when it is started again."


def about_circle(member: MemberInfo) -> str:
    """Of a member that runs without progress."""
    where = f"See where {member.member} is now, by its stack"
    return f"{where}: a retry that never succeeds needs an end of its own, with a pause that grows."


def about_old_wait(cause: Cause, roots: Iterable[str], resource: str) -> str:
    """Of a straggler, of units that are kept, of a wait for the outside, whose `resource` is its label."""
    named = listed([bare(root) for root in roots], "or")
    if cause == "external":
        return f"Answer {resource}, or give the call that waits for it a time-out of its own, so that the run goes on without it."
    if cause == "starved":
        return f"Have {named} give units of {shown(resource)} back sooner, or let there be more of them."
    return f"See where {named} is now, by its stack. If that never ends, kill its process: its restart policy decides then."
