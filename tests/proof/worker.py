"""A small real member of a run: reads commands from its standard input, carries each out on the thread it names, says what came of it.

Joins by SUPERVISOR_WORKER like any worker. One JSON object per line, both ways.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

import unknot
from unknot.graph.events import Atom, Clause
from unknot.integrations.threads import TracedLock
from unknot.recovery.mailbox import Item
from unknot.supervisor import process as processes

ME = processes.join()
assert ME.table is not None
TABLE = ME.table
OUT = threading.Lock()
EVENTS: dict[str, threading.Event] = {}
LOCKS: dict[str, TracedLock] = {}
UNACKED: list[Item] = []


def say(**facts: Any) -> None:
    with OUT:
        os.write(1, (json.dumps(facts) + "\n").encode())


def event(name: str) -> threading.Event:
    return EVENTS.setdefault(name, threading.Event())


def traced(name: str) -> TracedLock:
    return LOCKS.setdefault(name, TracedLock(TABLE, name))


def receive(box: str) -> Any:
    UNACKED.append(unknot.Mailbox(box).receive())
    return UNACKED[-1].value


def await_peer(peer: str, until: str) -> None:
    """Wait for another participant, as a remote call does; ended by `go UNTIL`."""
    need = Clause(k=1, of=(Atom(p=peer),))
    with TABLE.wait(TABLE.next_ticket(), [need], label="call") as waiting:
        while not event(until).wait(0.01):
            error = waiting.poll_interrupt()
            if error is not None:
                raise error


def outside(label: str, until: str) -> None:
    with unknot.external(label, kind="human", who="Ada"):
        event(until).wait()


def run_slowly(until: str) -> None:
    """Run, as far as anybody can know: wait for something that nothing announces."""
    event(until).wait()


DOES: dict[str, Callable[..., Any]] = {
    "lock": lambda name: unknot.Lock(name).acquire(),
    "unlock": lambda name: unknot.Lock(name).release(),
    "declare": lambda name, senders, receivers: str(unknot.Mailbox(name).declare(8, senders, receivers)),
    "send": lambda name, value: unknot.Mailbox(name).send(value),
    "receive": receive,
    "traced": lambda name: traced(name).acquire(),
    "untraced": lambda name: traced(name).release(),
    "await": await_peer,
    "outside": outside,
    "run": run_slowly,
    "go": lambda name: event(name).set(),
    "progress": unknot.progress,
}


def work(todo: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    while (told := todo.get()) is not None:
        try:
            value = DOES[told["do"]](*told["args"])
        except Exception as error:  # noqa: BLE001 - whatever it is, the test is told
            say(id=told["id"], error=type(error).__name__, text=str(error))
        else:
            say(id=told["id"], value=value)


def main() -> None:
    queues: dict[str, queue.SimpleQueue[dict[str, Any] | None]] = {"main": queue.SimpleQueue()}

    def read() -> None:
        for line in sys.stdin:
            told = json.loads(line)
            name = told["thread"]
            if name not in queues:
                queues[name] = queue.SimpleQueue()
                threading.Thread(target=work, args=(queues[name],), name=name, daemon=True).start()
            queues[name].put(told)
        queues["main"].put(None)

    # For the recorder this is a library's thread: it never acts for the member, only hands over what others do.
    read.__module__ = "unknot.tests"
    # It only passes commands on. A thread of the user's that runs might do anything for its member, and so be no proof.
    read.__module__ = "unknot.tests"
    threading.Thread(target=read, name="commands", daemon=True).start()
    say(id=0, value=ME.source)
    work(queues["main"])
    processes.leave()


main()
