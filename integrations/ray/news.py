"""What a driver tells its user of incidents, as they open and as they end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from unknot.supervisor.incidents import Incident


class IncidentNews:
    """Writes one line for each incident that is new, and one for each that is over."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told: set[tuple[str, bool]] = set()

    def tell(self, incidents: Iterable[Incident]) -> None:
        """Write what is new since the last call."""
        for incident in incidents:
            over = incident.state == "resolved"
            if (incident.id, False) not in self._told:
                self._line(f"unknot: {incident.headline}  (supervisor explain {incident.id})", incident, over=False)
            if over and (incident.id, True) not in self._told:
                self._line(f"unknot: {incident.id} is over: {incident.resolution}", incident, over=True)

    def _line(self, text: str, incident: Incident, *, over: bool) -> None:
        self._told.add((incident.id, over))
        self._out.write(" ".join(text.split()) + "\n")
        self._out.flush()
