"""A rank of a real Gloo group that does what its scene says, then writes its flight recorder's dump. Run as a script.

Arguments: scene, rank, size, folder.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

os.environ["TORCH_FR_BUFFER_SIZE"] = "200"

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, _dump_fr_trace, _dump_fr_trace_json  # type: ignore[attr-defined]

SCENE, RANK, SIZE, FOLDER = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
LIMIT = timedelta(seconds=100)


def crossed(other: dist.ProcessGroup) -> None:
    if RANK == 0:
        dist.all_reduce(torch.ones(8))
    else:
        dist.broadcast(torch.ones(8), 0, group=other)


def left_out(other: dist.ProcessGroup) -> None:
    if RANK != 2:
        dist.all_reduce(torch.ones(8))


def main() -> None:
    dist.init_process_group("gloo", store=FileStore(str(FOLDER / ".store"), SIZE), rank=RANK, world_size=SIZE, timeout=LIMIT)
    other = dist.new_group(list(range(SIZE)), timeout=LIMIT)
    for group in (None, other):
        dist.all_reduce(torch.ones(4), group=group)
    scene = {"crossed": crossed, "left_out": left_out}[SCENE]
    threading.Thread(target=scene, args=(other,), daemon=True).start()
    wanted = 3 if SCENE == "crossed" or RANK != 2 else 2
    while _dump_fr_trace().count(b"record_id") == 0 or len(entries()) < wanted:
        time.sleep(0.01)
    (FOLDER / f"trace_{RANK}").write_bytes(_dump_fr_trace())
    (FOLDER / "json").mkdir(exist_ok=True)
    (FOLDER / "json" / f"trace_{RANK}.json").write_bytes(_dump_fr_trace_json())
    (FOLDER / f".done_{RANK}").touch()
    while not all((FOLDER / f".done_{rank}").exists() for rank in range(SIZE)):
        time.sleep(0.01)
    os._exit(0)


def entries() -> list[object]:
    import pickle

    found: list[object] = pickle.loads(_dump_fr_trace())["entries"]
    return found


main()
