"""The hazards of a run in Redis: rings of lock orders, each kept once, by its locks."""

from __future__ import annotations

import msgspec

from unknot.graph.hazards import Hazard
from unknot.recovery.ports import Store


class HazardStore:
    """Reads and writes them. All raise StoreUnavailable when Redis cannot be asked."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._key = store.key("hazards")

    def names(self) -> set[str]:
        """Those that are kept."""
        return {name.decode(errors="replace") for name in self._store.command("HKEYS", self._key)}

    def put(self, hazard: Hazard) -> None:
        """Keep one."""
        self._store.command("HSET", self._key, name_of(hazard), msgspec.json.encode(hazard))

    def list(self) -> list[Hazard]:
        """All of them by their locks; what cannot be read is left out (`supervisor status` names it)."""
        found = []
        for text in self._store.command("HVALS", self._key):
            try:
                found.append(msgspec.json.decode(text, type=Hazard))
            except msgspec.DecodeError:
                continue
        return sorted(found, key=name_of)


def name_of(hazard: Hazard) -> str:
    """The locks of its ring, in the order in which they are taken."""
    return " ".join(hazard.locks)
