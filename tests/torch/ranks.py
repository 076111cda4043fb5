"""A rank of a real Gloo group as a process of its own, told by its arguments what to do. Run as a script.

Prints one JSON line a step of its story, so that a test can wait for it and read it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from unknot.integrations.torch.group import Former, Group
from unknot.integrations.torch.steps import Ledger, steps, use
from unknot.recovery.errors import StaleGeneration, StepAborted
from unknot.supervisor import process as processes
from unknot.supervisor.process import Process


def tell(what: str, **facts: Any) -> None:
    """One line of the story."""
    sys.stdout.write(json.dumps({"what": what, **facts}) + "\n")
    sys.stdout.flush()


def error_of(call: Any) -> str:
    """The kind of error that a call ends with, '' for none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - its kind is what is told
        return type(error).__name__
    return ""


class Counting:
    """A trainer whose state is one sharded-like number."""

    def __init__(self) -> None:
        self.weight = torch.zeros(4)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Its weight."""
        return {"weight": self.weight}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take a weight."""
        self.weight = state["weight"]


def stand(process: Process, former: Former, group: Group, *, absent: bool) -> None:
    """Rank 0 stands in a reduction that rank 1 does not join; both form the next generation afterwards."""
    tell("formed", generation=group.generation, links=len(group.links))
    if absent:
        mail = process.recorder
        tell("absent", participant=mail.participant())
        while group.is_over() is None:
            assert group.rendezvous is not None
            group.rendezvous.pause()
        failed = ""
    else:
        tell("standing")
        failed = error_of(lambda: dist.all_reduce(torch.ones(1024)))
    former.leave()
    group = former.form()
    total = torch.ones(1)
    dist.all_reduce(total)
    tell("reformed", generation=group.generation, total=float(total), failed=failed)


def roll_back(process: Process, former: Former, group: Group, *, ahead: bool) -> None:
    """Rank 1 commits one step less than rank 0 before the generation ends; both go back to what both have."""
    trainer = Counting()
    ledger = Ledger(process, trainer)
    ledger.enter(group)
    for _ in range(3 if ahead else 2):
        trainer.weight += 1
        ledger.advance()
    group.slot.break_("a test ends it")
    former.leave()
    ledger.enter(former.form())
    tell("entered", seq=ledger.seq, attempt=ledger.attempt, weight=trainer.weight.tolist())


def all_are_here(group: Group) -> None:
    """Nobody ends a generation that the other rank is still about to enter."""
    assert group.rendezvous is not None
    group.rendezvous.set(f"here/{group.rank}", "1")
    for rank in range(group.size):
        group.rendezvous.get(f"here/{rank}")


def repeat(process: Process, former: Former, group: Group) -> None:
    """Every generation is broken in the same step, until the step is given up."""
    ledger = Ledger(process, Counting())
    use(ledger)
    generations = 0
    while True:
        ledger.enter(group)
        generations += 1
        try:
            for step in steps(until=2, attempts=3):
                with step:
                    ledger.last_reason = "a test ends it"
                    all_are_here(group)
                    raise ConnectionError
        except StepAborted as error:
            tell("aborted", seq=error.seq, attempts=error.attempts, generations=generations, text=str(error))
            return
        except (ConnectionError, StaleGeneration):  # the other rank may have ended it already
            group.slot.break_("a test ends it")
            former.leave()
            group = former.form()


def not_entered() -> None:
    """A loop that forgets the block."""
    for _ in steps(until=2):
        pass


def entered_twice() -> None:
    """One step for two blocks."""
    for step in steps(until=2):
        with step:
            pass
        with step:
            pass


def used_afterwards() -> None:
    """A step that is over publishes."""
    for step in steps(until=2):
        with step:
            pass
        step.publish("weights", torch.ones(1))


def swallowed() -> None:
    """The error of a step does not leave the loop."""
    for step in steps(until=2):
        with contextlib.suppress(ZeroDivisionError), step:
            raise ZeroDivisionError("no gradient")


def misuse(process: Process, group: Group) -> None:
    """Loops that cannot be, on both ranks alike; each ends with an error and not in a wait for ever."""
    told = {}
    for loop in (not_entered, entered_twice, used_afterwards, swallowed):
        ledger = Ledger(process, Counting())
        ledger.group = group
        ledger.go_on_at(0)
        use(ledger)
        try:
            loop()
        except Exception as error:  # noqa: BLE001 - what it is, is told
            told[loop.__name__] = f"{type(error).__name__}: {error}"
    tell("misused", told=told)


def main() -> None:
    """Arguments: what to do, the rank."""
    what, rank = sys.argv[1], int(sys.argv[2])
    process = processes.join()
    former = Former(process, "policy", rank=rank, size=2, timeout=timedelta(minutes=5))
    group = former.form()
    if what == "stand":
        stand(process, former, group, absent=rank == 1)
    elif what == "repeat":
        repeat(process, former, group)
    elif what == "misuse":
        misuse(process, group)
    else:
        roll_back(process, former, group, ahead=rank == 0)
    former.leave()
    processes.leave()
    tell("left")


if __name__ == "__main__":
    main()
