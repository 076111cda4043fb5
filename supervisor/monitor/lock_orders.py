"""The hazards of a live run: its processes tell in which orders they take locks, and each ring of these is told once.

A hazard is no incident: nothing stands. It is kept beside the incidents, for the driver's report and `supervisor status`. The
monitor looks twice a second, and the driver once at the end, for what came last.
"""

from __future__ import annotations

import msgspec
import structlog

from unknot.graph.hazards import Hazard, LockOrder, Order
from unknot.supervisor.store.hazard_store import HazardStore, name_of
from unknot.supervisor.store.redis_store import RedisStore

_ORDERS = msgspec.json.Decoder(Order)
_log = structlog.get_logger("unknot.monitor")


class LockOrderWatch:
    """Reads new orders of a run, and keeps the hazards that they make. `bad` counts orders that could not be read."""

    def __init__(self, store: RedisStore) -> None:
        self.bad = 0
        self._store = store
        self._orders = LockOrder()
        self._known: set[bytes] = set()
        self._hazards = HazardStore(store)
        self._told = self._hazards.names()

    def look(self) -> tuple[Hazard, ...]:
        """The hazards that are new. StoreUnavailable when Redis cannot be asked."""
        key = self._store.key("orders")
        if self._store.command("SCARD", key) == len(self._known):
            return ()
        for text in sorted(set(self._store.command("SMEMBERS", key)) - self._known):
            self._known.add(text)
            self._note(text)
        found = tuple(one for one in self._orders.hazards() if name_of(one) not in self._told)
        for hazard in found:
            self._keep(hazard)
        return found

    def _note(self, text: bytes) -> None:
        try:
            self._orders.note(_ORDERS.decode(text))
        except msgspec.DecodeError as error:
            self.bad += 1
            _log.warning("monitor.order.unreadable", error=str(error))

    def _keep(self, hazard: Hazard) -> None:
        self._hazards.put(hazard)
        self._told.add(name_of(hazard))

