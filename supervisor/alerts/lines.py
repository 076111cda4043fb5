"""The first line of every alert, in a fixed grammar that people and filters can rely on.

    DEADLOCK in run ppo-17: trainer/0 → lock:replay → agent/b → trainer/0 (standing for 42 s). Action: none yet.

Its first part is the incident's headline; what is added is what was done about it.
"""

from __future__ import annotations

from unknot.graph.wording import age
from unknot.supervisor.incidents import Action, Incident


def first_line(incident: Incident) -> str:
    """The line for an incident that stands."""
    return f"{_headline(incident)}. Action: {_action(incident.actions)}."


def resolved_line(incident: Incident) -> str:
    """The line for an incident that is over: the same, with how long it stood and how it ended."""
    end = incident.resolved_at if incident.resolved_at is not None else incident.opened_at
    took = f"after {age(end - incident.opened_at)}"
    how = f" ({incident.resolution.rstrip('. ')})" if incident.resolution else ""
    return f"RESOLVED {took}{how}: {_headline(incident)}. Action: {_action(incident.actions)}."


def _headline(incident: Incident) -> str:
    return incident.headline.rstrip(". ")


def _action(actions: tuple[Action, ...]) -> str:
    real = [action for action in actions if action.remedy != "alert"]
    if not real:
        return "none yet"
    last = real[-1]
    tries = sum(1 for action in real if action.remedy == last.remedy and action.target == last.target)
    again = f", attempt {tries}" if tries > 1 else ""
    return f"{last.remedy} {last.target} ({last.outcome}{again})"
