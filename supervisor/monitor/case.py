"""One incident on its way from confirmation to its end: what is being done about it, as a state machine."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from unknot.graph.finding import Finding
from unknot.supervisor.incidents import Action, Incident
from unknot.supervisor.monitor.ladder import Remedy


class Stage(enum.Enum):
    """Where a case stands."""

    EVIDENCE = "collecting stacks"
    ACTING = "a remedy is under way"
    HOLDING = "left alone to see whether it helped"
    WAITING = "nothing to do for now but to wait for people"
    CLOSED = "resolved"


LEGAL: Mapping[Stage, frozenset[Stage]] = {
    Stage.EVIDENCE: frozenset({Stage.ACTING, Stage.HOLDING, Stage.WAITING, Stage.CLOSED}),
    Stage.ACTING: frozenset({Stage.HOLDING, Stage.CLOSED}),
    Stage.HOLDING: frozenset({Stage.ACTING, Stage.WAITING, Stage.CLOSED}),
    Stage.WAITING: frozenset({Stage.ACTING, Stage.WAITING, Stage.CLOSED}),
    Stage.CLOSED: frozenset(),
}


@dataclass(slots=True)
class Case:
    """An open incident and its remedies. Times are seconds on the run's clock.

    until: when the stage's time is up. pending: keys of commands that were not acknowledged yet. tried: targets of
    all remedies so far. seen_at: when a slow or outside wait was last found. settled_at: until then, an adopted case is
    not closed for not being found.
    """

    incident: Incident
    finding: Finding | None
    stage: Stage
    until: float
    pending: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    tried: tuple[str, ...] = ()
    seen_at: float = 0.0
    settled_at: float = float("-inf")

    def go(self, stage: Stage, *, until: float) -> None:
        """Move on; only where the table allows it."""
        assert stage in LEGAL[self.stage], f"{self.incident.id}: {self.stage} to {stage}"
        self.stage, self.until = stage, until

    def validate(self) -> None:
        """Raise AssertionError unless the parts agree."""
        assert (self.stage is Stage.CLOSED) == (self.incident.state == "resolved"), "stage and state differ"
        assert not self.pending or self.stage in (Stage.EVIDENCE, Stage.ACTING), "acknowledgements nobody waits for"

    def started(self, remedy: Remedy, *, at: float) -> None:
        """A remedy begins."""
        if self.incident.actions and self.incident.actions[-1].outcome == "pending":
            self.ended(outcome="failed", note="the monitor that began it went away")
        action = Action(remedy=remedy.rung, target=remedy.target, at=at, note=remedy.why)
        self.tried = (*self.tried, remedy.target)
        self.incident = msgspec.structs.replace(
            self.incident, state="acting", actions=(*self.incident.actions, action)
        )

    def ended(self, *, outcome: str, note: str) -> None:
        """The remedy under way has ended."""
        last = self.incident.actions[-1]
        done = msgspec.structs.replace(last, outcome=outcome, note=note or last.note)
        self.incident = msgspec.structs.replace(self.incident, actions=(*self.incident.actions[:-1], done))

    def resolved(self, *, at: float, how: str) -> None:
        """The incident is over."""
        actions = tuple(
            msgspec.structs.replace(a, outcome="done") if a.outcome == "pending" else a for a in self.incident.actions
        )
        self.incident = msgspec.structs.replace(
            self.incident, state="resolved", resolved_at=at, resolution=how, actions=actions
        )
        self.pending.clear()
        self.go(Stage.CLOSED, until=at)
