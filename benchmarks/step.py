"""What observation costs a training step: two FSDP2 ranks of examples/agent_training over Gloo, in processes of their own.

On: all that a supervised member has (wait table, publisher, listener, heartbeats, collective source) with a real Redis, and the
run's real monitor beside it. Off: none of these threads exist and the monitor is stopped by the kernel (SIGSTOP).

Why this way is fair. Both variants run in the same two processes, with the same weights, memory layout and sockets: two pairs of
processes would differ by more than the 2 % that are to be seen. They alternate every few steps, so a change of clock speed, or other
work on the machine, meets both. Going from one to the other is not timed; every block begins with switching on (and off again, for one
without), since a process that has just waited for Redis is favoured by the scheduler of a busy machine. Both ranks meet in a
reduction before the clock starts.
What cannot be switched inside a process is torch's flight recorder; torch keeps it on by default, so it belongs to both. On costs
more here than in a run: each block begins with a publisher that has told nothing yet, so there is a record and a heartbeat in every
block of less than half a second, while a run that trains has one heartbeat a second.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from measuring import alternate, ratio_of, show_machine, show_target
from running import ended, member_process, monitor_process
from training import training_of

from unknot.integrations.torch import flight
from unknot.integrations.torch.group import Former, Group
from unknot.supervisor import process as processes
from unknot.supervisor.config import Config
from unknot.supervisor.process import Process, WorkerSettings
from unknot.supervisor.store.embedded import start_redis

RUN, GROUP, RANKS = "bench-step", "policy", 2
PAIRS, WARM_UP, FEWEST_STEPS = 100, 20, 3
BUDGET_S = 80
TARGET = 1.02
LIMIT_S = 300


def main() -> int:
    if len(sys.argv) > 1:
        return rank_main(int(sys.argv[1]))
    show_machine()
    with tempfile.TemporaryDirectory(prefix="unknot-bench-") as folder, contextlib.ExitStack() as stack:
        server = stack.enter_context(start_redis(Path(folder) / "redis"))
        config = Config(redis=server.url)
        log = stack.enter_context((Path(folder) / "monitor.log").open("w"))
        monitor = stack.enter_context(ended(monitor_process(RUN, config, log)))
        ranks = [stack.enter_context(ended(rank_process(rank, config, monitor.pid))) for rank in range(RANKS)]
        told = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        print("FAILED: a rank did not finish")
        return 1
    tell(json.loads(told[0]))
    return 0


def tell(measured: dict[str, Any]) -> None:
    pairs = [(on, off) for on, off in measured["pairs"]]
    steps = measured["steps"]
    on_ms, off_ms = (1e3 * statistics.median(of) / steps for of in zip(*pairs, strict=True))
    ratio = ratio_of(pairs)
    print(f"{len(pairs)} pairs of blocks of {steps} steps; a step takes {off_ms:.2f} ms, observed {on_ms:.2f} ms")
    print(f"with switching it published {measured['published']} records and {measured['heartbeats']} heartbeats, "
          f"dropped {measured['dropped']}, looked {measured['looks']} times")  # fmt: skip
    print(f"ratio {ratio}")
    show_target("an observed step to one that is not", ratio.value, TARGET)


def rank_process(rank: int, config: Config, monitor_pid: int) -> subprocess.Popen[str]:
    settings = WorkerSettings(
        run=RUN, redis=config.redis or "", member=f"trainer/{rank}", role="trainer", config=config, group=GROUP, rank=rank,
        size=RANKS, disabled=True,
    )  # fmt: skip
    return member_process(settings, __file__, str(rank), BENCH_MONITOR=str(monitor_pid))


class Counts(NamedTuple):
    """What the publishers of all observed blocks did."""

    published: int = 0
    heartbeats: int = 0
    dropped: int = 0
    looks: int = 0


class Observation:
    """Switches everything that observes in this process, and on rank 0 the monitor, on and off."""

    def __init__(self, process: Process, group: Group, monitor_pid: int | None) -> None:
        self.counts = Counts()
        self._process = process
        self._group = group
        self._monitor_pid = monitor_pid

    def start(self) -> None:
        """As a supervised member has it once its group has formed."""
        self._signal_monitor(signal.SIGCONT)
        self._process.observe()
        table = self._process.table
        assert table is not None
        source = flight.CollectiveSource(table)
        table.add_source(source)
        members = tuple(f"trainer/{rank}#1" for rank in range(RANKS))
        recorder_id = flight.newest_recorder_id()
        assert recorder_id is not None, "the flight recorder is off"
        watched = flight.Watched(
            name=GROUP, generation=self._group.generation, recorder_id=recorder_id, members=members,
            issuer_ident=self._group.issuer_ident,
        )  # fmt: skip
        source.watch(watched)

    def stop(self) -> None:
        """Leave no thread and no connection of it."""
        process = self._process
        assert process.listener is not None
        assert process.publisher is not None
        process.listener.stop()
        process.publisher.stop()
        now = process.publisher.counters
        done = (now.published, now.heartbeats, now.dropped, now.looks)
        self.counts = Counts(*(a + b for a, b in zip(self.counts, done, strict=True)))
        process._side_stores.pop().close()
        self._signal_monitor(signal.SIGSTOP)

    def _signal_monitor(self, number: signal.Signals) -> None:
        if self._monitor_pid is not None:
            os.kill(self._monitor_pid, number)


def rank_main(rank: int) -> int:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    process = processes.join()
    former = Former(process, GROUP, rank=rank, size=RANKS, timeout=timedelta(seconds=LIMIT_S))
    group = former.form()
    monitor_pid = int(os.environ["BENCH_MONITOR"]) if rank == 0 else None
    observation = Observation(process, group, monitor_pid)
    step = training_of(group.mesh(), rank=group.rank, size=group.size).step
    steps = steps_of_a_block(step, group)
    pairs = measure(step, observation, steps)
    former.leave()
    processes.leave()
    if rank == 0:
        print(json.dumps({"pairs": pairs, "steps": steps, **observation.counts._asdict()}))
    return 0


def steps_of_a_block(step: Callable[[], object], group: Group) -> int:
    """As many steps as fit the budget on this machine; rank 0 decides for both."""
    distributed: Any = importlib.import_module("torch.distributed")
    for _ in range(WARM_UP):
        step()
    began = time.perf_counter()
    for _ in range(WARM_UP):
        step()
    each_s = (time.perf_counter() - began) / WARM_UP
    decided = [max(FEWEST_STEPS, round(BUDGET_S / (2 * PAIRS * each_s)))]
    distributed.broadcast_object_list(decided, src=0, group=group.process_group)
    return decided[0]


def measure(step: Callable[[], object], observation: Observation, steps: int) -> list[tuple[float, float]]:
    """Seconds of alternating blocks, observed and not; every rank goes through the same blocks."""
    distributed: Any = importlib.import_module("torch.distributed")

    def timed() -> float:
        distributed.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        return time.perf_counter() - began

    def observed() -> float:
        observation.start()
        try:
            return timed()
        finally:
            observation.stop()

    def unobserved() -> float:
        observation.start()
        observation.stop()
        return timed()

    return alternate(observed, unobserved, pairs=PAIRS)


if __name__ == "__main__":
    sys.exit(main())
