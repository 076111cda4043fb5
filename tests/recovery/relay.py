"""A judge as a process of its own, for a test to kill: relays items from `raw` to `scored` in steps. Run as a script.

Arguments: URL, run, number of steps, file to which each outside call appends a line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from unknot.recovery.errors import DeadlockInterrupted
from unknot.recovery.lock import DistributedLock
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import end, new_boot, register
from unknot.recovery.step import Step
from unknot.recovery.steps import MemberSteps
from unknot.supervisor.store.redis_store import RedisStore

MEMBER = "judge/j"


def outside(calls: Path, step: Step) -> int:
    """A call that must not be made twice for one step, as far as that can be."""
    with calls.open("a") as file:
        file.write(f"{step.id}\n")
    return step.seq * 10


def relay(step: Step, lock: DistributedLock, calls: Path) -> None:
    """One step: everything a step can do."""
    item = step.receive("raw")
    score = step.once("score", outside, calls, step)
    lock.acquire()
    step.send("scored", (item.value, score))
    step.write("done", step.read("done", 0) + 1)
    if step.seq == 1 and step.attempt == 0:
        raise DeadlockInterrupted(participant=MEMBER, resource="lock:x", incident="of the test")


def main(url: str, run: str, until: str, calls: str) -> None:
    """Register, and step on from where the member stands."""
    with RedisStore.connect(url, run) as store:
        me = register(store, MEMBER, role="judge", pid=1, host="here", boot=new_boot())
        recorder = NullRecorder(MEMBER, me.incarnation)
        lock = DistributedLock("x", store, recorder)
        for step in MemberSteps(store, recorder).run(until=int(until)):
            with step:
                relay(step, lock, Path(calls))
        end(store, MEMBER, me.incarnation)


if __name__ == "__main__":
    main(*sys.argv[1:])
