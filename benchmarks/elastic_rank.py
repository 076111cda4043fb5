"""The script that torchrun starts for benchmarks/recovery.py: the same steps and checkpoints, the usual way.

    torchrun ... elastic_rank.py FOLDER

Rank 1 of the first attempt kills itself after step KILL_AT; every attempt goes on from the newest checkpoint. `FOLDER/killed`, and
`FOLDER/imported`, `formed`, `restored` and `committed` of the second attempt's rank 0 hold the times, seconds since the epoch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from training import load_into, state_of, training_of

KILL_AT, SAVE_EVERY, STEPS = 12, 5, 20


def main() -> None:
    folder = Path(sys.argv[1])
    rank, size, again = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))

    def note(what: str) -> None:
        if again and rank == 0:
            (folder / what).write_text(str(time.time()))

    note("imported")
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    training = training_of(init_device_mesh("cpu", (size,)), rank=rank, size=size)
    note("formed")
    newest = max((int(path.parent.name) for path in folder.glob("*/.metadata")), default=0)
    if newest:
        state = state_of(training)
        load(state, checkpoint_id=str(folder / str(newest)))
        load_into(training, state)
    note("restored")
    for seq in range(newest, STEPS):
        training.step()
        if seq == newest:
            note("committed")
        if seq == KILL_AT and rank == 1 and not again:
            (folder / "killed").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        if (seq + 1) % SAVE_EVERY == 0:
            save(state_of(training), checkpoint_id=str(folder / str(seq + 1)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
