"""A rank arrives in a collective when any of its threads issues it: so all that issue must be stuck before the rank is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
import torch.distributed as dist

import unknot
from unknot.supervisor.cli.snapshot import read_snapshot

NewRun = Callable[..., AbstractContextManager[unknot.Run]]
LIMIT = timedelta(seconds=120)


@ray.remote
@unknot.trainer
class TwoThreads:
    """On rank 1 a second thread issues what rank 0 stands in, while the first one waits for a lock of rank 0."""

    def __init__(self, pipe: str) -> None:
        self.pipe = pipe

    def setup(self, group: unknot.Group) -> None:
        self.group = group

    def reduce(self) -> None:
        dist.all_reduce(torch.ones(4))

    def second(self) -> None:
        self.reduce()
        Path(self.pipe).read_text()
        self.reduce()

    def run(self) -> None:
        if self.group.rank == 0:
            self.reduce()
            with unknot.Lock("main"):
                self.reduce()
            return
        other = threading.Thread(target=self.second, name="second")
        other.start()
        lock = unknot.Lock("main")
        while lock.statistics().holder is None:
            time.sleep(0.01)
        with lock:
            pass
        other.join()


def _waits(run: Any, *, at_least_s: float) -> set[str]:
    return {wait.participant for wait in read_snapshot(run._process.store).waits if wait.age_s >= at_least_s}


@pytest.mark.ray
def test_a_rank_whose_other_thread_is_about_to_issue_is_not_called_stuck(
    new_run: NewRun, eventually: Any, tmp_path: Path
) -> None:
    pipe = tmp_path / "go"
    os.mkfifo(pipe)
    with new_run() as run:
        run.group(TwoThreads, str(pipe), size=2)
        eventually(lambda: {"trainer/0#1", "trainer/1#1"} <= _waits(run, at_least_s=2.0), limit_s=120.0)
        assert [i for i in run.incidents(open_only=False) if i.cause == "deadlock"] == []
        pipe.write_text("go")
        report = run.wait(timeout=LIMIT)
        assert set(report.outcomes.values()) == {"done"}
        assert [i for i in report.incidents if i.cause == "deadlock"] == []
