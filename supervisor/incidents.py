"""The durable record of one root cause, as it is stored, shown and sent."""

from __future__ import annotations

from typing import Literal

import msgspec

Cause = Literal[
    "deadlock", "mismatch", "absent", "dead", "unresponsive", "slow", "external", "starved", "livelock", "lost",
    "checkpoint",
]  # fmt: skip
State = Literal["open", "confirmed", "acting", "resolved"]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One edge of the explanation: who waits where, for what, since when, and who could end it."""

    participant: str
    resource: str
    text: str
    site: str | None = None
    since: float = 0.0
    helpers: tuple[str, ...] = ()
    culprit: bool = False


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One remedy that was tried: what, on whom, when, and how it ended."""

    remedy: Literal["alert", "interrupt", "break", "restart", "roll back", "stop"]
    target: str
    at: float
    outcome: Literal["pending", "done", "failed"] = "pending"
    note: str = ""


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One root cause. Times are seconds since the epoch by Redis' clock.

    `closing_wait_at` is when the last wait of the core began; `confirmed_at` minus it is the time to the verdict.
    `advice`: what to do about it, in the run and in the code.
    """

    id: str
    run: str
    cause: Cause
    kind: str
    state: State
    headline: str
    lines: tuple[Line, ...]
    culprits: tuple[str, ...]
    victims: tuple[str, ...]
    core: tuple[str, ...]
    stuck: tuple[str, ...]
    tickets: dict[str, int]
    opened_at: float
    closing_wait_at: float | None = None
    confirmed_at: float | None = None
    resolved_at: float | None = None
    actions: tuple[Action, ...] = ()
    stacks: dict[str, tuple[str, ...]] = {}
    resolution: str = ""
    advice: str = ""
