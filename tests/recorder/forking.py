"""A member that forks and starts children; prints what each of them is, as JSON lines.

Run with SUPERVISOR_WORKER set. The children do what the loader processes of a trainer do: use the parent's locks, and try
primitives of the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

from unknot.integrations.threads import TracedLock
from unknot.recovery.errors import NotAMember
from unknot.supervisor import process as processes


def say(**facts: object) -> None:
    os.write(1, (json.dumps(facts) + "\n").encode())


def refused(call: object) -> str:
    assert callable(call)
    try:
        call()
    except NotAMember as error:
        return str(error)
    return ""


def in_child(lock: TracedLock, taken: TracedLock, me: processes.Process) -> None:
    assert me.table is not None
    lock.acquire()
    gone = lock.acquire(timeout=0.2)
    say(
        who="forked", free_lock=lock.locked(), timed_out=not gone, still_taken=taken.locked(),
        current=refused(lambda: processes.current("unknot.Lock")), join=refused(processes.join),
        participant=refused(me.recorder.participant), is_member=processes.is_member(),
        threads=[t.name for t in threading.enumerate()],
    )  # fmt: skip


def main() -> None:
    me = processes.join()
    assert me.table is not None
    lock, taken = TracedLock(me.table), TracedLock(me.table)
    taken.acquire()
    pid = os.fork()
    if pid == 0:
        in_child(lock, taken, me)
        os._exit(0)
    os.waitpid(pid, 0)
    code = "from unknot.supervisor import process as p; print(p.is_member())"
    started = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    say(who="started", is_member=started.stdout.strip() == "True")
    say(who="parent", source=me.source, newest=me.members()[0].source, free=not lock.locked())
    processes.leave()


main()
