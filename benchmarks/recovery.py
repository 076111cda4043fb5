"""From the SIGKILL of a trainer rank to the next step that counts: Unknot, torchrun on the same model, and Ray's own restart.

Each round is one training of the same two ranks under Unknot and one under torchrun, with a checkpoint every five steps and rank 1
killed in the thirteenth; the one that begins changes from round to round. Unknot keeps the surviving process and replaces one; torchrun
ends and starts all of them. Both then import torch again, form the group, load the checkpoint and do one step. Ray's
number is what nobody who uses its actors can go below: `kill -9` of an actor that does nothing, until it answers again.

torchrun needs a store of its own for each attempt here (`TORCH_DISABLE_SHARE_RDZV_TCP_STORE`): in the shared one the addresses of the
first attempt's Gloo group are still there, and whoever reads them before they are overwritten fails with "connection refused".
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import ray
from measuring import show_machine
from training import Training, load_into, state_of, training_of

import unknot
from unknot.recovery import points

ROUNDS, EMPTY_ROUNDS = 3, 5
KILL_AT, SAVE_EVERY, STEPS = 12, 5, 20
FAULT = f"train.vote.before#{KILL_AT + 1}@trainer/1=kill"
LIMIT_S = 180.0
PARTS_OF_TORCHRUN = ("imported", "formed", "restored", "committed")

Split = dict[str, float]


@ray.remote
@unknot.trainer(group="policy")
class Trainer:
    """One rank under Unknot."""

    def setup(self, group: Any) -> None:
        self.training: Training = training_of(group.mesh(), rank=group.rank, size=group.size)

    def state_dict(self) -> dict[str, Any]:
        return state_of(self.training)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        load_into(self.training, state)

    def run(self) -> None:
        for step in unknot.steps(until=STEPS, manifest_every=SAVE_EVERY):
            with step:
                self.training.step()


class Empty:
    """An actor that does nothing."""

    def pid(self) -> int:
        return os.getpid()


def main() -> int:
    show_machine()
    ours: list[Split] = []
    torchruns: list[Split] = []
    for number in range(ROUNDS):
        both = [(ours, under_unknot), (torchruns, under_torchrun)]
        for found, measure in both if number % 2 == 0 else reversed(both):
            with tempfile.TemporaryDirectory(prefix="unknot-bench-") as folder:
                found.append(measure(Path(folder)))
    empties = empty_restarts()
    tell("Unknot, one rank replaced", ours)
    tell("torchrun, all ranks started again", torchruns)
    print(f"Ray, an empty actor until it answers again: {statistics.median(empties):.2f} s (of {len(empties)})")
    ratio = statistics.median(sum(a.values()) / sum(b.values()) for a, b in zip(ours, torchruns, strict=True))
    print(f"Unknot to torchrun, median of the pairs: {ratio:.2f}")
    return 0


def tell(what: str, splits: list[Split]) -> None:
    totals = sorted(sum(split.values()) for split in splits)
    middle = min(splits, key=lambda split: abs(sum(split.values()) - statistics.median(totals)))
    parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in middle.items())
    print(f"{what}: {statistics.median(totals):.2f} s (from {totals[0]:.2f} to {totals[-1]:.2f}); the median one: {parts}")


def under_unknot(folder: Path) -> Split:
    """Seconds from the kill to the first step that counts, by part."""
    log = folder / "faults"
    os.environ |= {points.FAULTS_ENV: FAULT, points.LOG_ENV: str(log), "SUPERVISOR_RUN_DIR": str(folder)}
    try:
        with unknot.init() as run:
            run.group(Trainer, size=2)
            report = run.wait(timeout=timedelta(seconds=LIMIT_S))
    finally:
        del os.environ[points.FAULTS_ENV], os.environ[points.LOG_ENV], os.environ["SUPERVISOR_RUN_DIR"]
    killed_at = float(log.read_text().split("\t")[3])
    (recovery,) = report.recoveries
    # Ray may have had the process ready before, so that mark says nothing here.
    marks = [("killed", killed_at), *((what, when) for what, when in recovery.marks.items() if what != "process")]
    return {what: now - before for (_, before), (what, now) in itertools.pairwise(marks)}


def under_torchrun(folder: Path) -> Split:
    """The same of the same steps under torchrun."""
    script = Path(__file__).with_name("elastic_rank.py")
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2", "--max-restarts=1", "--local-addr=127.0.0.1",
        "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--monitor-interval=0.1", str(script), str(folder),
    ]  # fmt: skip
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"torchrun ended with {done.returncode}: {done.stderr[-2000:]}")
    at = float((folder / "killed").read_text())
    split = {}
    for part in PARTS_OF_TORCHRUN:
        now = float((folder / part).read_text())
        split[part], at = now - at, now
    return split


def empty_restarts() -> list[float]:
    """Seconds from `kill -9` of an empty actor until it answers again."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        actor: Any = ray.remote(max_restarts=-1, max_task_retries=-1)(Empty).remote()
        pid: int = ray.get(actor.pid.remote())
        found: list[float] = []
        for _ in range(EMPTY_ROUNDS):
            began = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            while (now := ray.get(actor.pid.remote())) == pid:
                pass
            found.append(time.perf_counter() - began)
            pid = now
        return found
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
