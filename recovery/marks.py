"""When a restarted member came how far: the split of a recovery, for people and benchmarks.

One hash for each member, `marks:<member>`: `incarnation|what` -> seconds on the run's clock. The first mark of a name stands.
"""

from __future__ import annotations

from typing import Literal

from unknot.recovery.ports import Store

Mark = Literal["noticed", "fenced", "process", "registered", "entered", "formed", "restored", "committed"]
ORDER: tuple[Mark, ...] = ("noticed", "fenced", "process", "registered", "entered", "formed", "restored", "committed")


def mark(store: Store, source: tuple[str, int], what: Mark, at: float) -> None:
    """This (member, incarnation) came so far at `at`, seconds since the epoch."""
    member, incarnation = source
    store.command("HSETNX", store.key("marks", member), f"{incarnation}|{what}", f"{at:.6f}")


def marks_of(store: Store, member: str) -> dict[int, dict[Mark, float]]:
    """All marks of a member, by incarnation, in the order of a recovery."""
    flat = store.command("HGETALL", store.key("marks", member))
    pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    told = {key.decode(): float(value) for key, value in pairs}
    numbers = sorted({int(key.partition("|")[0]) for key in told})
    return {n: {what: told[f"{n}|{what}"] for what in ORDER if f"{n}|{what}" in told} for n in numbers}
