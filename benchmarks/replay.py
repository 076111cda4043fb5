"""How fast a recorded trace is replayed, and that memory follows the live graph and not the length of the trace.

    python benchmarks/replay.py [EVENTS]

A healthy mixed trace of 100 members (locks with and without waiting, messages) of EVENTS lines and of four times as many, each replayed by
`supervisor replay` in a process of its own. Prints lines a second, start of the process included, and the peak of memory of both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMBERS, LOCKS = 100, 20


def lines(events: int) -> Iterator[dict[str, Any]]:
    """The trace, header first."""
    yield {"schema": "unknot.trace/1", "run": "benchmark", "order": "total"}
    yield from ({"ev": "start", "p": f"agent/r{i}#1"} for i in range(MEMBERS))
    yield from ({"ev": "resource", "r": f"lock:{i}", "type": "lock"} for i in range(LOCKS))
    yield {"ev": "resource", "r": "mbox:m", "type": "mailbox"}
    for k in range(events // 8):
        a, b, lock = f"agent/r{k % MEMBERS}#1", f"agent/r{(k + 7) % MEMBERS}#1", f"lock:{k % LOCKS}"
        need = [{"k": 1, "of": [{"r": lock}]}]
        yield {"ev": "hold", "p": a, "r": lock, "site": "agents/rollout.py:30"}
        yield {"ev": "wait", "p": b, "t": k / 100, "ticket": k, "site": "agents/rollout.py:31", "needs": need}
        yield {"ev": "release", "p": a, "r": lock}
        yield {"ev": "wake", "p": b, "ticket": k}
        yield {"ev": "hold", "p": b, "r": lock}
        yield {"ev": "release", "p": b, "r": lock}
        yield {"ev": "send", "p": a, "r": "mbox:m"}
        yield {"ev": "recv", "p": b, "r": "mbox:m"}


def write(path: Path, events: int) -> None:
    with path.open("w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines(events))


def replayed(path: Path) -> tuple[float, float]:
    """Seconds and peak of memory (MB) of one replay."""
    command = [sys.executable, "-m", "unknot.supervisor.cli.main", "replay", str(path), "--json"]
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.returncode
    return took_s, used.ru_maxrss / 1024


def main() -> None:
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for factor in (1, 4):
            path = Path(folder) / "trace.jsonl"
            write(path, events * factor)
            took_s, peak_mb = replayed(path)
            size_mb = path.stat().st_size / 1e6
            told = f"{events * factor} lines ({size_mb:.0f} MB) in {took_s:.1f} s: {events * factor / took_s:.0f} a second"
            print(f"{told}, peak of memory {peak_mb:.0f} MB")


if __name__ == "__main__":
    main()
