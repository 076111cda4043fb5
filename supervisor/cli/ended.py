"""A run that ends while it is looked at: its private Redis goes with it, and what it leaves behind says so.

The driver leaves the incidents behind before it stops that Redis. So a Redis that is gone, and incidents that are younger than it, are
the end of a run; a Redis that is gone alone is a failure.
"""

from __future__ import annotations

import msgspec

from unknot.graph.errors import UnknotError
from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.cli.connect import RUN_DIR_ENV, Target
from unknot.supervisor.cli.snapshot import MemberView, RunView, Snapshot
from unknot.supervisor.store.kept_incidents import KeptIncidents, kept_incidents

# The start of a process is known to a second.
_TOLERANCE_S = 1.0


class RunHasEnded(StoreUnavailable):
    """The run ended while it was looked at. `kept`: what it left behind."""

    kept: KeptIncidents

    def __init__(self, *, where: str, kept: KeptIncidents) -> None:
        UnknotError.__init__(self, where=where, kept=kept)

    def describe(self) -> str:
        """Which run, and where it can still be asked about."""
        run, count = self.kept.run, len(self.kept.items)
        left = f"{count} incident{'' if count == 1 else 's'}"
        return f"run {run} has just ended and left {left}; see `supervisor explain latest --run {run}`"


def left_by(target: Target) -> KeptIncidents | None:
    """What the run left behind when it ended; None while nothing says that it has."""
    server = target.server
    if server is None:
        return None
    kept = kept_incidents(target.run, {RUN_DIR_ENV: str(server.directory.parent)})
    return kept if kept is not None and kept.at >= server.redis.create_time - _TOLERANCE_S else None


def last_word(kept: KeptIncidents, before: Snapshot | None) -> Snapshot:
    """How the run stood when it had ended, as a look at it would have told; `before`: the last look, if there was one."""
    if before is None:
        before = Snapshot(at=kept.at, run=RunView(name=kept.run))
    return msgspec.structs.replace(
        before,
        at=max(kept.at, before.at),
        run=msgspec.structs.replace(before.run, state="closed"),
        members=tuple(_ended(member) for member in before.members),
        waits=(),
        incidents=kept.items[::-1],
    )


def _ended(member: MemberView) -> MemberView:
    return member if member.state == "dead" else msgspec.structs.replace(member, state="done")
