"""`unknot.steps`: the steps of whatever member this process is.

A trainer's steps are those of its group (`integrations.torch.steps`), every other member's are its own transactions
(`recovery.steps`). Only a trainer loads torch for it.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator
from typing import Any, cast

from unknot.recovery.abandoned import dropping
from unknot.recovery.step import Step as Step
from unknot.recovery.steps import MemberSteps
from unknot.recovery.values import suggestion
from unknot.supervisor.process import Process, current

_OPTIONS = ("until", "attempts", "manifest_every")
_own: weakref.WeakKeyDictionary[Process, MemberSteps] = weakref.WeakKeyDictionary()


def steps(*, until: int | None = None, attempts: int = 5, **of_trainers: Any) -> Iterator[Step]:
    """The steps of this member, from where it stands: `for step in unknot.steps(until=200): with step: ...`.

    A step of an agent, a judge or an environment is a transaction: what its block receives, sends, writes and publishes is
    committed together when the block ends, once; a deadlock that is freed by interrupting it, or a conflict, runs the block again
    with the same `seq`; a crash leaves nothing of it, and the restarted process goes on with it. A step of a trainer is one of its
    whole group, repeated when the group is re-formed.

    Args:
        until: the number of steps of the whole run; None goes on for ever.
        attempts: how often one step may be begun.
        of_trainers: further options that a trainer's steps take.

    Raises:
        NotAMember: the process belongs to no run, or a trainer calls it outside of `run`.
        StepAborted: a step was begun that often.
        ConfigError: a number that cannot be, told by this call, before the loop begins.
        TypeError: an option that this member's steps do not take.
    """
    for option in of_trainers:
        if option not in _OPTIONS:
            takes = ", ".join(_OPTIONS)
            raise TypeError(f"unknot.steps has no option {option!r}{suggestion(option, _OPTIONS)}; it takes {takes}")
    process = current("unknot.steps")
    if process.settings.group is not None:
        from unknot.integrations.torch import steps as torch_steps

        return cast("Iterator[Step]", torch_steps.steps(until=until, attempts=attempts, **of_trainers))
    if of_trainers:
        raise TypeError(f"the steps of {process.member} take no {', '.join(sorted(of_trainers))}: that is for trainers")
    return member_steps(process).run(until=until, attempts=attempts)


def member_steps(process: Process) -> MemberSteps:
    """The steps of a process that is no trainer: one object for all loops and threads in it."""
    config = process.config
    made = MemberSteps(
        process.store, process.recorder, seed=config.seed, weights_kept=config.weights_kept,
        drop=dropping(process.store, config.on_abandoned), on_commit=functools.partial(process.progressed, "steps"),
    )  # fmt: skip
    return _own.setdefault(process, made)
