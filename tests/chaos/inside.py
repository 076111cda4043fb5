"""The example on a Ray that was there before its run and is there after it, which then tells what it still has of the run.

    python tests/chaos/inside.py [OPTION OF THE EXAMPLE]...
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ray
from ray._private import state

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent_training" / "main.py"
LEFT = "left in Ray: "
LIMIT_S = 20.0


def main() -> int:
    """The example's exit status; on the way a line for each thing that is left."""
    ray.init(include_dashboard=False, num_cpus=max(os.cpu_count() or 1, 4))
    try:
        status = run_example()
        deadline = time.monotonic() + LIMIT_S
        while (left := sorted(left_in_ray())) and time.monotonic() < deadline:
            time.sleep(0.2)
        for one in left:
            sys.stdout.write(f"{LEFT}{one}\n")
        return status
    finally:
        ray.shutdown()


def run_example() -> int:
    """As if it had been started by itself."""
    try:
        runpy.run_path(str(EXAMPLE), run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def left_in_ray() -> Iterator[str]:
    """Placement groups that are not removed, and actors that are not dead."""
    for group in ray.util.placement_group_table().values():
        if group["state"] != "REMOVED":
            yield f"placement group {group['placement_group_id']} ({group['state']})"
    for actor in state.actors().values():
        if actor["State"] != "DEAD":
            yield f"actor {actor['ActorClassName']} {actor['ActorID']} ({actor['State']})"


if __name__ == "__main__":
    sys.exit(main())
