"""Incidents and settings that the tests of alerts share."""

from __future__ import annotations

import msgspec

from unknot.supervisor.config import Config
from unknot.supervisor.config_values import Secret
from unknot.supervisor.incidents import Action, Incident, Line

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwqpPbS1/3EBc="
AT = 1_790_000_000.0
HEADLINE = "DEADLOCK in run ppo-17: trainer/0 → lock:replay → agent/b → trainer/0 (standing for 42 s)"


def incident(**changes: object) -> Incident:
    """A confirmed deadlock of two; `changes` replaces fields."""
    ring = (("trainer/0#1", "lock:replay", "agent/b#1"), ("agent/b#1", "mbox:raw", "trainer/0#1"))
    known = Incident(
        id="inc_0001",
        run="ppo-17",
        cause="deadlock",
        kind="cycle",
        state="confirmed",
        headline=HEADLINE,
        lines=tuple(
            Line(
                participant=who,
                resource=what,
                text=f"{who} waits for {what}",
                since=AT - 42,
                helpers=(helper,),
            )
            for who, what, helper in ring
        ),
        culprits=("agent/b#1",),
        victims=("trainer/0#1",),
        core=("trainer/0#1", "agent/b#1"),
        stuck=("trainer/0#1", "agent/b#1"),
        tickets={"trainer/0#1": 3, "agent/b#1": 9},
        opened_at=AT - 41.5,
        closing_wait_at=AT - 42,
        confirmed_at=AT - 41.25,
        stacks={"agent/b#1": ("agents.py:31 in act",)},
    )
    return msgspec.structs.replace(known, **changes)


def action(number: int = 1) -> Action:
    """One remedy that worked."""
    return Action(remedy="interrupt", target="agent/b#1", at=AT - 40 + number, outcome="done", note="")


def webhook(url: str) -> Config:
    """Settings with a receiver at `url`."""
    return Config(webhook_url=url, webhook_secret=Secret.of(SECRET))
