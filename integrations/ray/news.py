"""What a driver tells its user of incidents, as they open and as they end, and of hazards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TextIO

import structlog

from unknot.graph.errors import UnknotError
from unknot.graph.hazards import Hazard
from unknot.supervisor.incidents import Incident
from unknot.supervisor.store.hazard_store import name_of

_EVERY_S = 1.0
_log = structlog.get_logger("unknot.run")


class IncidentNews:
    """Writes one line for each incident that is new, one for each that is over, one for each hazard; from any thread."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._told: set[tuple[str, bool]] = set()
        self._one_teller = threading.Lock()

    def tell(self, found: Iterable[Incident | Hazard]) -> None:
        """Write what is new since the last call."""
        with self._one_teller:
            for one in found:
                if isinstance(one, Hazard):
                    self._tell_hazard(one)
                else:
                    self._tell_one(one)

    def _tell_hazard(self, hazard: Hazard) -> None:
        if (name_of(hazard), False) not in self._told:
            self._line(f"unknot: hazard, nothing stands yet: {hazard.text}", name_of(hazard), over=False)

    def _tell_one(self, incident: Incident) -> None:
        over = incident.state == "resolved"
        if (incident.id, False) not in self._told:
            self._line(f"unknot: {incident.headline}  (supervisor explain {incident.id})", incident.id, over=False)
        if over and (incident.id, True) not in self._told:
            self._line(f"unknot: {incident.id} is over: {incident.resolution}", incident.id, over=True)

    def _line(self, text: str, name: str, *, over: bool) -> None:
        self._told.add((name, over))
        self._out.write(" ".join(text.split()) + "\n")
        self._out.flush()


class NewsTeller(threading.Thread):
    """Looks once a second, so that a driver that is busy with its own work is told too; ends with `stop`.

    Args:
        news: where the lines go.
        look: the run's incidents and hazards; where it raises, the next look tries again.
    """

    def __init__(self, news: IncidentNews, look: Callable[[], Iterable[Incident | Hazard]]) -> None:
        super().__init__(name="unknot-news", daemon=True)
        self._news = news
        self._look = look
        self._failed = False
        self._stop_asked = threading.Event()

    def run(self) -> None:
        """Look until stopped, or until nobody can be told any more."""
        while not self._stop_asked.wait(_EVERY_S):
            try:
                self._news.tell(self._look())
            except UnknotError as error:  # Redis is away; once is enough, the next look that succeeds tells all there is
                if not self._failed:
                    _log.warning("run.news.not_read", error=str(error))
                self._failed = True
            except (OSError, ValueError) as error:  # stderr was closed
                _log.warning("run.news.not_told", error=str(error))
                return

    def stop(self) -> None:
        """End the thread. Idempotent; one that was never started is nothing."""
        self._stop_asked.set()
        if self.is_alive():
            self.join(5.0)
