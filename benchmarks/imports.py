"""What `import unknot` adds to the start of a Python process, and what the first lock adds to that.

Each number is the median of 7 differences: a process that imports, less a process started beside it that does nothing.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from measuring import alternate, show_machine, show_target

PAIRS = 7
TARGET_MS = 60.0
LOCK = "from unknot.integrations.primitives import Lock"


def main() -> int:
    show_machine()
    for code in ("import unknot", LOCK):
        seconds_of(code)  # writes the byte code
    show_target("import unknot, over a bare interpreter", added_ms("import unknot"), TARGET_MS, " ms")
    print(f"{LOCK}, over a bare interpreter: {added_ms(LOCK):.0f} ms (no target)")
    return 0


def added_ms(code: str) -> float:
    pairs = alternate(lambda: seconds_of(code), lambda: seconds_of("pass"), pairs=PAIRS)
    return statistics.median(1e3 * (imported - bare) for imported, bare in pairs)


def seconds_of(code: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
