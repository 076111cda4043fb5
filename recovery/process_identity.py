"""Which process it is, so that another one of the same host can tell whether it is gone.

A host's name is no identity: containers share it, and a process number is used again. So a process is named by the boot of its
kernel, its namespace of process numbers, its number, and when it was started. What cannot be read makes nobody gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/pid")
_STATE, _STARTED = 0, 19  # fields of /proc/PID/stat behind the name of the program: proc(5) counts them from 3
_OVER = frozenset("ZXx")


def this_process() -> str:
    """This process as a text without meaning to people, '' where it cannot be said."""
    place = _place()
    stat = _stat(Path(f"/proc/{os.getpid()}/stat"))
    return f"{place} {os.getpid()} {stat[_STARTED]}" if place and stat else ""


def is_gone(identity: str) -> bool:
    """Whether that process is known to have ended: False too for one of another host, and where nobody can know."""
    place, _, process = identity.rpartition(" ")[0].rpartition(" ")
    if not place or place != _place():
        return False
    pid, started = int(process), identity.rpartition(" ")[2]
    try:
        os.kill(pid, 0)  # /proc may hide the processes of others, and says then what it says of none
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    stat = _stat(Path(f"/proc/{pid}/stat"))
    return bool(stat) and (stat[_STARTED] != started or all(state in _OVER for state in _states(pid)))


def _place() -> str:
    try:
        return f"{_BOOT.read_text().strip()} {_NAMESPACE.stat().st_ino}"
    except OSError:
        return ""


def _states(pid: int) -> Iterator[str]:
    """Of all threads: a process that was killed stays as a zombie until its parent has looked, and one thread may outlive the first."""
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        stat = _stat(task)
        if stat:
            yield stat[_STATE]


def _stat(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
