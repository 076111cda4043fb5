"""Ranks of a real Gloo group that train a tiny FSDP2 model, save it and go on from it. Forked from a server that has torch.

Each process is told by a `Plan`, and tells its story as JSON lines in a file: a process that is killed has told all up to then.
"""

from __future__ import annotations

import json
import logging
import multiprocessing as mp
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec
import structlog
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from unknot.integrations.torch import sockets
from unknot.integrations.torch.checkpoint import Saver, SaveResult
from unknot.integrations.torch.digest import state_hash
from unknot.integrations.torch.rendezvous import RendezvousStore
from unknot.integrations.torch.restore import restore
from unknot.integrations.torch.rng import capture_rng, seed
from unknot.recovery import points
from unknot.recovery.checkpoints import Checkpoints, Place
from unknot.recovery.group import GroupSlot
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

GROUP = "policy"
_LIMIT = timedelta(seconds=60)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank does: go on from the newest manifest, train up to `until`, and save before each step in `saves`."""

    redis: str
    run: str
    directory: str
    story: str
    rank: int
    size: int = 2
    until: int = 2
    saves: tuple[int, ...] = ()
    width: int = 8
    half: bool = False
    keep: int = 3
    faults: str = ""
    faults_log: str = ""
    file_limit: int = 0
    cursor: int | None = None
    items: tuple[str, ...] = ()
    restores: bool = True
    drops: bool = False
    redis_pid: int = 0


class Trainer:
    """A model with dropout and an optimizer with moments, so that weights, optimizer and generators all count."""

    def __init__(self, group: Any, width: int, cursor: int | None, *, half: bool = False) -> None:
        torch.manual_seed(1)
        layers = torch.nn.Sequential(
            torch.nn.Linear(6, width), torch.nn.Dropout(0.5), torch.nn.ReLU(), torch.nn.Linear(width, 3)
        )
        self.model = layers.to(torch.bfloat16) if half else layers
        fully_shard(self.model, mesh=DeviceMesh.from_group(group, "cpu"))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.cursor = cursor

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, and a plain value if the plan has one."""
        model, optim = get_state_dict(self.model, self.opt)
        plain = {} if self.cursor is None else {"cursor": self.cursor}
        return {"model": model, "optim": optim, **plain}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take them back."""
        set_state_dict(self.model, self.opt, model_state_dict=state["model"], optim_state_dict=state["optim"])

    def step(self, seq: int, rank: int) -> None:
        """One step; its data are a function of step and rank."""
        data = torch.randn(4, 6, generator=torch.Generator().manual_seed(1000 * seq + rank))
        self.model(data).pow(2).mean().backward()
        self.opt.step()
        self.opt.zero_grad()

    def digest(self) -> str:
        """Of all that a step changes."""
        return state_hash(self.state_dict(), capture_rng())


class _Story:
    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, what: str, **facts: Any) -> None:
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "at": time.time(), **facts}) + "\n")


def live(plan: Plan) -> None:
    """The life of one rank's process."""
    tell = _Story(plan.story)
    _arm(plan)
    try:
        _train(plan, tell)
    except Exception as error:  # noqa: BLE001 - told to the test
        tell("failed", kind=type(error).__name__, text=str(error))


def _arm(plan: Plan) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    os.environ[points.LOG_ENV] = plan.faults_log
    points._faults = points.parse_faults(plan.faults)


def _limit_files(size: int) -> None:
    import resource

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _train(plan: Plan, tell: _Story) -> None:
    store = RedisStore.connect(plan.redis, plan.run, limits=StoreLimits(answer_s=1.0, retry_s=3.0) if plan.redis_pid else None)
    member = f"trainer/{plan.rank}"
    me = register(store, member, role="trainer", pid=os.getpid(), host="here", boot=new_boot())
    slot = GroupSlot.join(
        store, GROUP, size=plan.size, rank=plan.rank, member=member, incarnation=me.incarnation, timeout_s=120
    )
    meeting = RendezvousStore(
        store, prefix=("gstore", GROUP, str(slot.generation)), timeout=_LIMIT, keep=timedelta(minutes=10)
    )
    dist.init_process_group("gloo", store=meeting, rank=plan.rank, world_size=plan.size, timeout=_LIMIT)
    slot.running()
    own, shut = _own_group(plan, meeting)
    trainer = Trainer(dist.group.WORLD, plan.width, plan.cursor, half=plan.half)
    seed(plan.rank + 7)
    checkpoints = Checkpoints(store, Path(plan.directory), keep=plan.keep)
    place = Place.of(slot)
    first = 0
    if plan.restores and (back := restore(checkpoints, place, trainer, process_group=own)) is not None:
        first = back.manifest.seq
        tell(
            "restored", id=back.manifest.id, seq=first, digest=back.state_sha256, same=back.same, rng=back.rng,
            passed_over=[id_ for id_, _ in back.passed_over],
        )  # fmt: skip
    saver = Saver(checkpoints, place, process_group=own, limit_s=90, shut=shut, told=lambda result: _result(tell, result))
    if plan.drops:
        _drop(plan, tell, trainer, saver)
    else:
        _run_steps(plan, tell, trainer, saver, first)
    if not plan.drops:
        dist.destroy_process_group()
    tell("left")


def _own_group(plan: Plan, meeting: RendezvousStore) -> tuple[Any, Callable[[], object]]:
    """The group for checkpoints, and what shuts its sockets down."""
    before = sockets.connected_sockets()
    own = dist.new_group(timeout=_LIMIT)
    dist.all_reduce(torch.zeros(1), group=own)
    new = {fd: ends for fd, ends in sockets.connected_sockets().items() if before.get(fd) != ends}
    meeting.set(f"own/{plan.rank}", json.dumps(list(new.values())))
    others = [json.loads(meeting.get(f"own/{rank}")) for rank in range(plan.size) if rank != plan.rank]
    ends = [((a[0], a[1]), (b[0], b[1])) for listed in others for a, b in listed]
    links = sockets.mirrored(new, ends)
    return own, lambda: sockets.shut_down(links)


def _drop(plan: Plan, tell: _Story, trainer: Trainer, saver: Saver) -> None:
    """Begin a save in which the other rank stops, and give it up."""
    saver.start(1, trainer.state_dict())
    while not points.fired(plan.faults_log):
        time.sleep(0.01)
    tell("dropped", ended=saver.drop(60.0), dropped=saver.statistics.dropped, failed=saver.statistics.failed)


def _run_steps(plan: Plan, tell: _Story, trainer: Trainer, saver: Saver, first: int) -> None:
    for seq in range(first, plan.until):
        if seq in plan.saves:
            tell("saving", seq=seq, digest=trainer.digest(), generation=saver.place.generation)
            if plan.file_limit:
                _limit_files(plan.file_limit)
            _with_redis(plan, saver, seq, trainer.state_dict())
        trainer.step(seq, plan.rank)
    if not saver.drain(120):
        tell("stuck")
    tell("trained", digest=trainer.digest(), failed=saver.statistics.failed, unkept=saver.statistics.unkept)


def _with_redis(plan: Plan, saver: Saver, seq: int, state: Any) -> None:
    """Save; where the plan says so, the first save of all meets a Redis that does not answer."""
    away = plan.redis_pid and seq == plan.saves[0]
    if away:
        dist.barrier()
        os.kill(plan.redis_pid, signal.SIGSTOP)
    saver.start(seq, state, items=plan.items)
    if away:
        saver.drain(60)
        dist.barrier()
        os.kill(plan.redis_pid, signal.SIGCONT)


def _result(tell: _Story, result: SaveResult) -> None:
    error = None if result.error is None else str(result.error)
    tell("saved", seq=result.seq, outcome=result.outcome, id=result.manifest, error=error, stall_s=result.stall_s)


class Told(msgspec.Struct, frozen=True):
    """A rank that has ended: exit code (negative: signal) and its story."""

    code: int | None
    story: tuple[dict[str, Any], ...]

    def of(self, what: str) -> list[dict[str, Any]]:
        """The lines of one kind."""
        return [line for line in self.story if line["what"] == what]

    def one(self, what: str) -> dict[str, Any]:
        """The only line of one kind."""
        found = self.of(what)
        assert len(found) == 1, self.story
        return found[0]


def run_ranks(plans: Sequence[Plan], *, limit_s: float = 150.0) -> list[Told]:
    """Run one process for each plan, and wait until all have ended."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["tests.torch.warm"])
    processes: list[BaseProcess] = [context.Process(target=live, args=(plan,), daemon=True) for plan in plans]
    for process in processes:
        process.start()
    deadline = time.monotonic() + limit_s
    try:
        for process in processes:
            process.join(max(0.0, deadline - time.monotonic()))
        return [Told(process.exitcode, _read(plan.story)) for process, plan in zip(processes, plans, strict=True)]
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
            process.join()
            process.close()


def _read(path: str) -> tuple[dict[str, Any], ...]:
    if not os.path.exists(path):
        return ()
    with open(path, encoding="utf-8") as file:
        return tuple(json.loads(line) for line in file)


if __name__ == "__main__":
    live(msgspec.json.decode(sys.argv[1], type=Plan))
