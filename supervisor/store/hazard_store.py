"""The hazards of a run in Redis: rings of lock orders, each kept once, by its locks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from unknot.graph.hazards import Hazard
from unknot.recovery.ports import Store


class HazardStore:
    """Reads and writes them. All raise StoreUnavailable when Redis cannot be asked.

    Attributes: `problems` (why something that `list` found could not be read, each once).
    """

    def __init__(self, store: Store) -> None:
        self.problems: set[str] = set()
        self._store = store
        self._key = store.key("hazards")

    def names(self) -> set[str]:
        """Those that are kept."""
        return {name.decode(errors="replace") for name in self._store.command("HKEYS", self._key)}

    def put(self, hazard: Hazard) -> None:
        """Keep one."""
        self._store.command("HSET", self._key, name_of(hazard), msgspec.json.encode(hazard))

    def list(self) -> list[Hazard]:
        """All of them by their locks; what cannot be read is left out and among the problems."""
        problems: list[str] = []
        found = sorted(decoded(self._store.command("HVALS", self._key), problems), key=name_of)
        self.problems.update(problems)
        return found


def decoded(texts: Iterable[bytes], problems: list[str]) -> Iterator[Hazard]:
    """Those of `texts` that can be read; `problems` gets a line for each other one."""
    for text in texts:
        try:
            yield msgspec.json.decode(text, type=Hazard)
        except msgspec.DecodeError as error:
            problems.append(f"a lock order that can deadlock cannot be read: {error}")


def name_of(hazard: Hazard) -> str:
    """The locks of its ring, in the order in which they are taken."""
    return " ".join(hazard.locks)
