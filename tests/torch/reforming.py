"""Ranks that go through the product's own loop (form, setup, go back, run, leave), one of which dies at a named point of a re-form.

The first generation stands until it is over; each later one trains to its end. A rank tells its story as JSON lines in a file: one that
is killed has told all up to then. Forked from a server that has torch.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import msgspec
import structlog
import torch
import torch.distributed as dist

from unknot.integrations.ray.host import enter, worker_environment
from unknot.integrations.torch.group import Group
from unknot.integrations.torch.steps import steps
from unknot.recovery import points
from unknot.recovery.errors import StaleGeneration
from unknot.supervisor import process as processes
from unknot.supervisor.config import Config
from unknot.supervisor.process import WorkerSettings

GROUP, SIZE, STEPS = "policy", 3, 3


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank's process does.

    Attributes:
        first: in the first generation `stand` (in a collective), `wait` (outside of it, for its end), `take` (items that never come), `cut`
            (lose the others), or `train`.
        hold: the end of the first generation is not seen before the fault has fired.
        faults, faults_log: armed once the first generation stands.
    """

    redis: str
    run: str
    rank: int
    story: str
    first: str
    hold: bool = False
    faults: str = ""
    faults_log: str = ""

    @property
    def member(self) -> str:
        """The rank's."""
        return f"trainer/{self.rank}"


def live(plan: Plan) -> None:
    """The life of one rank's process: it ends with status 0 only if its code came to its end."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    settings = WorkerSettings(
        run=plan.run, redis=plan.redis, member=plan.member, role="trainer", config=Config(), group=GROUP, rank=plan.rank, size=SIZE
    )
    os.environ.update(worker_environment(settings))
    process = processes.join()
    trainer = Trainer(plan)
    trainer.tell("joined", incarnation=process.incarnation)
    try:
        trainer.tell("ended", how=enter(trainer))
    except BaseException as error:
        trainer.tell("failed", kind=type(error).__name__, text=str(error))
        raise


class Trainer:
    """Adds up what reductions come to: the same number, however often its group is formed anew."""

    def __init__(self, plan: Plan) -> None:
        self.weight = torch.zeros(1)
        self.plan = plan
        self.groups: list[Group] = []

    def tell(self, what: str, **facts: Any) -> None:
        """One line of the story."""
        with open(self.plan.story, "a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "pid": os.getpid(), **facts}) + "\n")

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Its number."""
        return {"weight": self.weight.clone()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Take a number."""
        self.weight = state["weight"].clone()

    def setup(self, group: Group) -> None:
        """Begin anew; what the ledger knows comes afterwards."""
        self.weight = torch.zeros(1)
        self.groups.append(group)

    def run(self) -> None:
        """The loop of a trainer."""
        group = self.groups[-1]
        self.tell("running", generation=group.generation, sources=group.slot.sources)
        if group.generation == 1:
            self._first(group)
        for step in steps(until=STEPS, attempts=9):
            with step:
                total = torch.full((1,), float(group.rank + 1))
                dist.all_reduce(total)
                self.weight += total
        self.tell("trained", generation=group.generation, weight=float(self.weight), older=[kind_of(one) for one in self.groups[:-1]])
        self._hold(group)

    def _first(self, group: Group) -> None:
        os.environ[points.LOG_ENV] = self.plan.faults_log
        points._faults = points.parse_faults(self.plan.faults)
        how = self.plan.first
        self.tell("first", how=how)
        if how == "stand":
            dist.all_reduce(torch.ones(1))
        elif how == "take":
            with next(steps(until=STEPS)) as step:
                step.take("items", 1)
        elif how == "wait":
            self._wait(group)
        elif how == "cut":
            group.shut()
            raise ConnectionError("a test took the other ranks away")

    def _wait(self, group: Group) -> None:
        assert group.rendezvous is not None
        while (self.plan.hold and not points.fired(self.plan.faults_log)) or group.is_over() is None:
            group.rendezvous.pause()
        group.check()

    def _hold(self, group: Group) -> None:
        """Until the test has looked."""
        assert group.rendezvous is not None
        store = group.rendezvous._store
        while not store.command("EXISTS", store.key("looked", str(group.rank))):
            if group.is_over() is not None:
                group.check()
            group.rendezvous.pause()


def kind_of(group: Group) -> list[str]:
    """How a generation that is over refuses: asked itself, by the store, and in a collective."""
    acts = (group.check, group.slot.running, lambda: dist.all_reduce(torch.ones(1), group=group.process_group))
    return [_error_of(act) for act in acts]


def _error_of(act: Any) -> str:
    try:
        act()
    except StaleGeneration:
        return "StaleGeneration"
    except Exception:  # noqa: BLE001 - torch's own, of several kinds
        return "refused"
    return ""


def told(plan: Plan) -> list[dict[str, Any]]:
    """The story of a rank's process up to now."""
    path = Path(plan.story)
    lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]
