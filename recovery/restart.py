"""Whether a member that has ended is started again: Erlang/OTP's policies, as a decision on values.

`permanent`, `transient`, `temporary` and "intensity" (so many restarts in so long) are OTP's words (OTP design principles, Supervisor
Behaviour). What differs: a member's `run` may return, which is its aim, so the default is `transient`, and an error that user code
raises is not a crash. Running the same code on the same step again would raise it again; the one who waits for the run should read it
at once. Who wants those restarted too says `permanent`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, get_args

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.recovery.values import choice, seconds, span_s, whole

Kind = Literal["permanent", "transient", "temporary"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# How a member's `run` ended: it came to its end, it raised an error, or its process is gone.
Ending = Literal["returned", "raised", "crashed"]
_RESTARTED: dict[Kind, frozenset[Ending]] = {
    "permanent": frozenset({"returned", "raised", "crashed"}),
    "transient": frozenset({"crashed"}),
    "temporary": frozenset(),
}


class RestartPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a member is started again, how often (`intensity` times within `within_s` seconds), and how fast.

    backoff_s: seconds before the second restart in a row; doubles up to backoff_max_s. The first one is at once.

    Raises:
        ConfigError: a field that cannot be, by its name.
    """

    kind: Kind = "transient"
    intensity: int = 5
    within_s: float = 600.0
    backoff_s: float = 0.5
    backoff_max_s: float = 30.0

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        begin = "a restart policy: "
        choice(self.kind, KINDS, name=f"{begin}kind")
        whole(self.intensity, name=f"{begin}intensity", least=0)
        seconds(self.within_s, name=f"{begin}within_s")
        seconds(self.backoff_s, name=f"{begin}backoff_s", zero=True)
        seconds(self.backoff_max_s, name=f"{begin}backoff_max_s", zero=True)
        if self.backoff_s > self.backoff_max_s:
            raise ConfigError(
                what=f"{begin}backoff_s={self.backoff_s:g} is above backoff_max_s={self.backoff_max_s:g}",
                todo="raise backoff_max_s, or lower backoff_s",
            )


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Start again, or not, and why. `step`: the how-manieth restart in a row this is, from 0."""

    again: bool
    why: str
    step: int = 0


def permanent(*, intensity: int = 5, within: timedelta = timedelta(minutes=10)) -> RestartPolicy:
    """Start again however it ended, also when `run` returned or raised, while the run lives. ConfigError: as `RestartPolicy`."""
    return RestartPolicy(kind="permanent", intensity=intensity, within_s=span_s(within, name="within"))


def transient(*, intensity: int = 5, within: timedelta = timedelta(minutes=10)) -> RestartPolicy:
    """Start again when the process is gone; a `run` that returned is done, one that raised has failed. Errors as `permanent`."""
    return RestartPolicy(kind="transient", intensity=intensity, within_s=span_s(within, name="within"))


def temporary() -> RestartPolicy:
    """Never start again."""
    return RestartPolicy(kind="temporary", intensity=0)


def decide(policy: RestartPolicy, ending: Ending, *, restarts: Sequence[float], now: float) -> Decision:
    """Whether a member that has ended like this is started again.

    Args:
        policy: of the member.
        ending: how it ended.
        restarts: when it was started again before, seconds on the clock of `now`, oldest first.
        now: seconds.
    """
    if ending not in _RESTARTED[policy.kind]:
        return Decision(again=False, why=f"it {ending}, and its restart policy is {policy.kind}")
    recent = [at for at in restarts if now - at <= policy.within_s]
    if len(recent) >= policy.intensity:
        return Decision(
            again=False, why=f"it was started again {len(recent)} times in {policy.within_s:g} s already, and that is the limit"
        )
    return Decision(again=True, why=f"it {ending}", step=len(recent))


def pause_s(policy: RestartPolicy, step: int) -> float:
    """Seconds to wait before restart number `step` in a row (from 0), without jitter."""
    return 0.0 if step == 0 else min(policy.backoff_s * 2.0 ** (step - 1), policy.backoff_max_s)
