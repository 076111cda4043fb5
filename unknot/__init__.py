"""Unknot: names the root cause of every standstill of a training run, and frees it.

This file is the whole public API. Every name is loaded on first use (PEP 562), so that `import unknot` costs
a worker nothing but the standard library.
"""

from __future__ import annotations

import importlib
import os

_here = os.path.dirname(os.path.realpath(__file__))
if not os.path.exists(os.path.join(_here, "graph", "__init__.py")):
    # Zip downloads and core.symlinks=false lose the links to the four folders beside this one.
    __path__.append(os.path.dirname(_here))

TYPE_CHECKING = False  # as typing has it, without the time that loading typing takes
if TYPE_CHECKING:
    from typing import Any

    from unknot.graph.errors import UnknotError as UnknotError
    from unknot.integrations.instrument import instrument as instrument
    from unknot.integrations.primitives import Lock as Lock
    from unknot.integrations.primitives import Mailbox as Mailbox
    from unknot.integrations.primitives import Weights as Weights
    from unknot.integrations.primitives import external as external
    from unknot.integrations.primitives import progress as progress
    from unknot.integrations.ray.calls import GroupHandle as GroupHandle
    from unknot.integrations.ray.calls import MemberHandle as MemberHandle
    from unknot.integrations.ray.decorators import agent as agent
    from unknot.integrations.ray.decorators import environment as environment
    from unknot.integrations.ray.decorators import judge as judge
    from unknot.integrations.ray.decorators import member as member
    from unknot.integrations.ray.decorators import trainer as trainer
    from unknot.integrations.ray.run import Report as Report
    from unknot.integrations.ray.run import Run as Run
    from unknot.integrations.ray.run import init as init
    from unknot.integrations.steps import steps as steps
    from unknot.integrations.torch.group import Group as Group
    from unknot.recovery.checkpoint_errors import CheckpointFailed as CheckpointFailed
    from unknot.recovery.errors import CallFailed as CallFailed
    from unknot.recovery.errors import ConfigError as ConfigError
    from unknot.recovery.errors import DeadlockInterrupted as DeadlockInterrupted
    from unknot.recovery.errors import FencedError as FencedError
    from unknot.recovery.errors import NameTaken as NameTaken
    from unknot.recovery.errors import NotAMember as NotAMember
    from unknot.recovery.errors import RunBusy as RunBusy
    from unknot.recovery.errors import RunClosed as RunClosed
    from unknot.recovery.errors import RunFailed as RunFailed
    from unknot.recovery.errors import StaleGeneration as StaleGeneration
    from unknot.recovery.errors import StepAborted as StepAborted
    from unknot.recovery.errors import StepWouldHang as StepWouldHang
    from unknot.recovery.errors import StoreUnavailable as StoreUnavailable
    from unknot.recovery.errors import WeightsGone as WeightsGone
    from unknot.recovery.items import Item as Item
    from unknot.recovery.restart import permanent as permanent
    from unknot.recovery.restart import temporary as temporary
    from unknot.recovery.restart import transient as transient
    from unknot.recovery.step import Step as Step
    from unknot.recovery.weights import Published as Published
    from unknot.recovery.weights import Version as Version

_HOMES = {
    "unknot.integrations.ray.decorators": ("agent", "environment", "judge", "member", "trainer"),
    "unknot.integrations.ray.calls": ("GroupHandle", "MemberHandle"),
    "unknot.integrations.ray.run": ("Report", "Run", "init"),
    "unknot.integrations.instrument": ("instrument",),
    "unknot.integrations.primitives": ("Lock", "Mailbox", "Weights", "external", "progress"),
    "unknot.integrations.torch.group": ("Group",),
    "unknot.integrations.steps": ("steps",),
    "unknot.recovery.step": ("Step",),
    "unknot.recovery.items": ("Item",),
    "unknot.recovery.weights": ("Published", "Version"),
    "unknot.recovery.restart": ("permanent", "temporary", "transient"),
    "unknot.graph.errors": ("UnknotError",),
    "unknot.recovery.checkpoint_errors": ("CheckpointFailed",),
    "unknot.recovery.errors": (
        "CallFailed", "ConfigError", "DeadlockInterrupted", "FencedError", "NameTaken", "NotAMember", "RunBusy",
        "RunClosed", "RunFailed", "StaleGeneration", "StepAborted", "StepWouldHang", "StoreUnavailable", "WeightsGone",
    ),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'unknot' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
