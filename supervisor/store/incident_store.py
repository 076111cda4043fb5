"""The incidents of a run: written by the leading monitor alone, read by everybody."""

from __future__ import annotations

import msgspec

from unknot.recovery.answers import ask
from unknot.recovery.errors import ConfigError, LeaseLost
from unknot.recovery.ports import Store
from unknot.supervisor.incidents import Incident


class IncidentStore:
    """Incidents by id, in the order in which they were opened; those of earlier starts of the run are apart."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, incident: Incident, token: int) -> None:
        """Write the incident as it stands now. LeaseLost when `token` is not the present leader's."""
        body = msgspec.json.encode(incident)
        answer = ask(self._store, "incident_put", token, incident.id, body, incident.opened_at)
        if answer.word == "stale":
            raise LeaseLost(what="the lead", holder=answer.text(1))

    def get(self, incident_id: str) -> Incident | None:
        """The incident of exactly this id, None if there is none."""
        body = self._store.command("GET", self._store.key("incident", incident_id))
        return None if body is None else msgspec.json.decode(body, type=Incident)

    def list(self, *, open_only: bool = False, newest: int = 0) -> tuple[Incident, ...]:
        """The incidents, oldest first; the `newest` so many of them (0: all), then those not resolved."""
        bodies = self._store.script("incident_list", [self._store.key()], [newest])
        found = (msgspec.json.decode(body, type=Incident) for body in bodies)
        return tuple(incident for incident in found if not open_only or incident.state != "resolved")

    def earlier(self) -> tuple[Incident, ...]:
        """The incidents of earlier starts of the run, newest first. All are over: nobody watches them any more."""
        ids = self._store.command("ZREVRANGE", self._store.key("incidents_before"), 0, -1)
        bodies = self._store.command("MGET", *(self._store.key("incident", raw.decode()) for raw in ids)) if ids else []
        found = (msgspec.json.decode(body, type=Incident) for body in bodies if body is not None)
        return tuple(incident if incident.state == "resolved" else _left_open(incident) for incident in found)

    def find(self, prefix: str) -> Incident:
        """The one incident whose id begins with `prefix`.

        Raises:
            ConfigError: there is none, or there are several; says which.
        """
        ids = [raw.decode() for raw in self._store.command("ZRANGE", self._store.key("incidents"), 0, -1)]
        matching = [name for name in ids if name.startswith(prefix)]
        chosen = prefix if prefix in matching else matching[0] if len(matching) == 1 else None
        incident = self.get(chosen) if chosen is not None else None
        if incident is not None:
            return incident
        if len(matching) > 1:
            raise ConfigError(
                what=f"{len(matching)} incidents begin with {prefix!r}",
                todo=f"give more of the id: {', '.join(matching[:5])}",
            )
        known = f"known are {', '.join(ids[-5:])}" if ids else "this run has none"
        raise ConfigError(what=f"no incident begins with {prefix!r}", todo=known)

    def __repr__(self) -> str:
        return f"<IncidentStore of run {self._store.run}>"


def _left_open(incident: Incident) -> Incident:
    return msgspec.structs.replace(incident, state="resolved", resolution="it was open when that start of the run ended")
