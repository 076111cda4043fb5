"""The loop that enters a member's code in its actor's process.

A trainer: form the group, `setup(group)`, go back to where all ranks stand, `run()`; again in each generation, in the same process. Others:
`setup()`, `run()`. The end of the run reaches a member as RunClosed from whatever it waits for, and counts as a clean end.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psutil
import ray

from unknot.graph.events import Atom, Clause
from unknot.integrations.instrument import instrument
from unknot.recovery.errors import RunClosed, StaleGeneration, StepAborted
from unknot.recovery.points import FAULTS_ENV, LOG_ENV
from unknot.supervisor import process as processes
from unknot.supervisor.process import Process

if TYPE_CHECKING:
    from unknot.integrations.torch.group import Former, Group
    from unknot.integrations.torch.steps import Ledger
    from unknot.recovery.checkpoints import Checkpoints

_COLLECTIVE_LIMIT = timedelta(minutes=30)
# So many generations in a row without a step done end blind retries, wherever they broke (setup included).
_FRUITLESS_GENERATIONS = 8
Outcome = Literal["done", "closed", "idle"]
_ended: Outcome | None = None


def join_as_actor() -> Process:
    """Register this actor's process and wrap what it uses; the first act, before user code."""
    actor_id = ray.get_runtime_context().get_actor_id() or ""
    process = processes.join(actor_id=actor_id)
    process.mark("process", at=psutil.Process().create_time())
    process.mark("registered")
    instrument("ray", "threading")
    return process


def enter(instance: Any) -> Outcome:
    """Run the member's code to its end.

    Returns:
        "done" when `run` returned, "closed" when the run ended first, "idle" for a member without `run`.
    """
    global _ended
    if _ended is None:
        _ended = _entered(instance)
    return _ended  # Ray could not reach this process for a while, and the call was made again


def _entered(instance: Any) -> Outcome:
    process = processes.current("unknot_main")
    settings = process.settings
    process.mark("entered")
    try:
        if settings.group is not None:
            _train(instance, process)
        else:
            if hasattr(instance, "setup"):
                instance.setup()
            if not hasattr(instance, "run"):
                return "idle"
            instance.run()
    except RunClosed:
        processes.leave(how="done")
        return "closed"
    except BaseException as error:
        processes.leave(how="dead", error=f"{type(error).__name__}: {error}"[:2000])
        raise
    processes.leave(how="done")
    return "done"


def _train(trainer: Any, process: Process) -> None:
    from unknot.integrations.torch import steps
    from unknot.integrations.torch.group import Former

    settings = process.settings
    assert settings.group is not None
    former = Former(process, settings.group, rank=settings.rank, size=settings.size, timeout=_COLLECTIVE_LIMIT)
    ledger = steps.Ledger(process, trainer, checkpoints_of(process))
    steps.use(ledger)
    broken = 0
    try:
        while not _one_generation(trainer, former, ledger):
            broken = broken + 1 if ledger.made_no_progress() else 1
            if broken >= _FRUITLESS_GENERATIONS:
                raise StepAborted(
                    group=settings.group, seq=ledger.seq, attempts=broken, reason=ledger.last_reason or "unknown"
                )
        ledger.finish()
    finally:
        steps.use(None)
        former.leave()


def _one_generation(trainer: Any, former: Former, ledger: Ledger) -> bool:
    """Whether every rank came to the end of `run`; False when the generation was broken. Without a `run`, calls are served."""
    from unknot.integrations.ray import served

    try:
        group = former.form()
        ledger.seed()
        trainer.setup(group)
        ledger.enter(group)
        if not hasattr(trainer, "run"):
            served.serve(trainer, former, ledger)
        trainer.run()
        ledger.save_last()
        return _all_done(group, ledger.process)
    except RunClosed:
        raise
    except Exception as error:
        reason = former.over(error) or (str(error) if isinstance(error, StaleGeneration) else None)
        if reason is None:
            raise
        ledger.last_reason = reason
        ledger.leave()
        former.leave()
        return False


def _all_done(group: Group, process: Process) -> bool:
    """Wait until `run` has returned on every rank: a rank that left its loop early is seen to wait for the others."""
    rendezvous = group.rendezvous
    assert rendezvous is not None
    rendezvous.set(f"done/{group.rank}", "1")
    wanted = [f"done/{rank}" for rank in range(group.size)]
    others = tuple(Atom(p=source) for rank, source in enumerate(group.slot.sources) if rank != group.rank)
    recorder = process.recorder
    need = Clause(k=len(others), of=others)
    with recorder.wait(recorder.next_ticket(), [need] if others else [], interruptible=False) as waiting:
        while not rendezvous.check(wanted):
            error = waiting.poll_interrupt()
            if error is not None:
                raise error
            if group.is_over() is not None:
                group.check()
            rendezvous.pause()
    return True


def checkpoints_of(process: Process) -> Checkpoints | None:
    """Where the run's checkpoints lie; None where the driver named no directory."""
    directory = process.settings.checkpoints
    if not directory:
        return None
    from unknot.recovery.checkpoints import Checkpoints

    return Checkpoints(process.store, Path(directory), keep=process.config.checkpoints_keep)


def worker_environment(settings: processes.WorkerSettings) -> dict[str, str]:
    """The environment variables a worker of this run is started with."""
    variables = {processes.WORKER_ENV: settings.to_environment()}
    if settings.group is not None and not settings.disabled:
        variables["TORCH_FR_BUFFER_SIZE"] = os.environ.get("TORCH_FR_BUFFER_SIZE", "2000")
    variables |= {name: os.environ[name] for name in (FAULTS_ENV, LOG_ENV) if name in os.environ}
    if settings.disabled:
        variables[processes.DISABLED_ENV] = "1"
    return variables
