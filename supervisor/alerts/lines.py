"""The first line of every alert, in a fixed grammar that people and filters can rely on.

DEADLOCK in run ppo-17: trainer/0#1 → lock:replay → agent/b#1 → trainer/0#1 (held 42 s). Action: none yet.
"""

from __future__ import annotations

from unknot.supervisor.alerts.ring import path_of
from unknot.supervisor.incidents import Action, Cause, Incident


def first_line(incident: Incident, *, at: float) -> str:
    """The line in the fixed grammar, for an incident that stands."""
    return (
        f"{_word(incident.cause)} in run {incident.run}: {path_of(incident) or _said(incident)} "
        f"(held {_age(at - _began(incident))}). Action: {_action(incident.actions)}."
    )


def resolved_line(incident: Incident) -> str:
    """The line in the fixed grammar, for an incident that is over."""
    end = incident.resolved_at if incident.resolved_at is not None else _began(incident)
    return (
        f"RESOLVED {_word(incident.cause)} in run {incident.run}: {incident.resolution or _said(incident)} "
        f"(held {_age(end - _began(incident))}). Action: {_action(incident.actions)}."
    )


def _word(cause: Cause) -> str:
    words: dict[Cause, str] = {"deadlock": "DEADLOCK", "dead": "AGENT LOST"}
    return words.get(cause, f"STALL ({cause})")


def _said(incident: Incident) -> str:
    return incident.headline.rstrip(". ")


def _began(incident: Incident) -> float:
    return incident.closing_wait_at if incident.closing_wait_at is not None else incident.opened_at


def _age(seconds: float) -> str:
    return f"{max(seconds, 0.0):.0f} s" if seconds >= 10 else f"{max(seconds, 0.0):.1f} s"


def _action(actions: tuple[Action, ...]) -> str:
    real = [action for action in actions if action.remedy != "alert"]
    if not real:
        return "none yet"
    last = real[-1]
    tries = sum(1 for action in real if action.remedy == last.remedy and action.target == last.target)
    again = f", attempt {tries}" if tries > 1 else ""
    return f"{last.remedy} {last.target} ({last.outcome}{again})"
