"""B waits for a lock of C, and C stands in a gradient reduction that needs B.

    python examples/crossed_wait/main.py                   explained within a second, freed, finished
    python examples/crossed_wait/main.py --no-supervisor   hangs until its own limit
    python examples/crossed_wait/main.py --healthy         slow, not stuck: no incident
"""

import argparse
import os
import sys
import time
from datetime import timedelta

import ray
import torch
import torch.distributed as dist

import unknot

STEPS, LATE_STEP = 3, 1


@ray.remote
@unknot.trainer
class Rank:
    def __init__(self, busy_s):
        self.busy_s = busy_s

    def setup(self, group):
        self.rank = group.rank

    def run(self):
        for step in unknot.steps(until=STEPS):
            with step:
                self.step(late=step.seq == LATE_STEP and step.attempt == 0)
                unknot.progress("step")

    def step(self, late):
        if self.rank == 0:  # C: holds the lock, and reduces while it holds it
            with unknot.Lock("weights"):
                time.sleep(self.busy_s if late else 0)
                if late and self.busy_s == 0:
                    dist.all_reduce(torch.ones(1024))
            if not (late and self.busy_s == 0):
                dist.all_reduce(torch.ones(1024))
        else:  # B: comes late once, and wants the lock before it joins
            time.sleep(1.0 if late else 0)
            with unknot.Lock("weights"):
                pass
            dist.all_reduce(torch.ones(1024))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--no-supervisor", action="store_true")
    options.add_argument("--healthy", action="store_true")
    options.add_argument("--busy-s", type=float, default=60.0, help="how long the healthy twin holds the lock")
    options.add_argument("--limit-s", type=float, default=20.0, help="when a run without supervisor is given up")
    chosen = options.parse_args()
    if chosen.no_supervisor:
        os.environ["SUPERVISOR_DISABLED"] = "1"
    limit = timedelta(seconds=chosen.limit_s) if chosen.no_supervisor else timedelta(minutes=3)
    with unknot.init() as run:
        run.group(Rank, chosen.busy_s if chosen.healthy else 0, size=2)
        try:
            report = run.wait(timeout=limit)
        except TimeoutError as error:
            print(f"hangs: {error}")
            return 1
    for incident in report.incidents:
        print(incident.headline, *(f"  {line.text}" for line in incident.lines), sep="\n")
        seen_s = incident.confirmed_at - incident.closing_wait_at
        print(f"  confirmed {seen_s:.2f} s after the closing wait; {incident.resolution}")
    print(f"{STEPS} steps finished, {len(report.incidents)} incident(s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
