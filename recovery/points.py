"""Named points of the protocols, at which a test may kill, stop or fail the process.

A protocol is proved against crashes by crashing at each of its steps, in a real process. So each step has a name, and passing it calls
`reached(name)`. In a normal run that is one comparison. Armed by the environment, a point acts once in the whole run, on one member:

    SUPERVISOR_FAULTS      "POINT[#NTH][@MEMBER]=ACTION", several separated by spaces; NTH counts within a process, from 1
    SUPERVISOR_FAULTS_LOG  a file; a line is appended and synced *before* acting, so that a test sees that the fault has fired,
                           and a successor with the same environment sees that it has

ACTION: `kill` (SIGKILL), `stop` (SIGSTOP), `raise` (FaultInjected). Rejected: patching the code under test, since real workers are other
processes, and killing after a random time, since a test could not say which step it has hit.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter

import msgspec

from unknot.graph.errors import UnknotError
from unknot.recovery.errors import ConfigError

FAULTS_ENV = "SUPERVISOR_FAULTS"
LOG_ENV = "SUPERVISOR_FAULTS_LOG"
_SPEC = re.compile(r"(?P<point>[a-z0-9_.-]+)(#(?P<nth>[1-9][0-9]*))?(@(?P<member>[^=\s]+))?=(?P<action>kill|stop|raise)")


class FaultInjected(UnknotError):  # noqa: N818 - named after what happened, as in errors.py
    """A test asked for this failure."""

    point: str

    def __init__(self, *, point: str) -> None:
        super().__init__(point=point)

    def describe(self) -> str:
        """Where."""
        return f"a fault was injected at {self.point}"


class Fault(msgspec.Struct, frozen=True):
    """One armed point: acts the `nth` time that `member` (None: any) reaches it."""

    point: str
    nth: int
    member: str | None
    action: str

    @property
    def text(self) -> str:
        """As in `SUPERVISOR_FAULTS`, in full."""
        return f"{self.point}#{self.nth}{'' if self.member is None else f'@{self.member}'}={self.action}"


def parse_faults(text: str) -> tuple[Fault, ...]:
    """The faults of an environment variable. ConfigError: a word that is none."""
    return tuple(_fault(word) for word in text.split())


def _fault(word: str) -> Fault:
    found = _SPEC.fullmatch(word)
    if found is None:
        raise ConfigError(what=f"{FAULTS_ENV} has {word!r}", todo="write POINT[#NTH][@MEMBER]=kill|stop|raise")
    return Fault(found["point"], int(found["nth"] or 1), found["member"], found["action"])


_faults = parse_faults(os.environ.get(FAULTS_ENV, ""))
_counts: Counter[Fault] = Counter()


def reached(point: str, member: str) -> None:
    """The process of `member` stands at a named point of a protocol.

    Raises:
        FaultInjected: a test asked for it.
    """
    if _faults:
        for fault in _faults:
            if fault.point == point and fault.member in (None, member):
                _pass(fault, member)


def _pass(fault: Fault, member: str) -> None:
    _counts[fault] += 1
    if _counts[fault] == fault.nth and not _has_fired(fault):
        _note(fault, member)
        if fault.action == "raise":
            raise FaultInjected(point=fault.point)
        os.kill(os.getpid(), signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP)


def fired(log: str) -> list[str]:
    """The faults that have fired, as in `SUPERVISOR_FAULTS` in full, oldest first."""
    try:
        with open(log, encoding="utf-8") as file:
            return [line.split("\t")[0] for line in file]
    except FileNotFoundError:
        return []


def _has_fired(fault: Fault) -> bool:
    return fault.text in fired(os.environ.get(LOG_ENV, os.devnull))


def _note(fault: Fault, member: str) -> None:
    if LOG_ENV not in os.environ:
        return
    descriptor = os.open(os.environ[LOG_ENV], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, f"{fault.text}\t{member}\t{os.getpid()}\t{time.time():.6f}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
