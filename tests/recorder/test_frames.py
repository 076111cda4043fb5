"""Looking at the frames of all threads never starts a garbage collection inside of the look."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import pytest

from unknot.supervisor.recorder.frames import current_frames

# Garbage that holds a threading.local is what takes the lock; new frames and frequent collections make them meet. With the plain
# call this stops for ever within a second on CPython 3.11.
_STRESS = """
import gc, threading, time
from unknot.supervisor.recorder.frames import current_frames
gc.set_threshold(2)
def deep(n):
    return time.sleep(0.0002) if n == 0 else deep(n - 1)
def loop():
    while True:
        deep(3)
        garbage = [threading.local()]
        garbage.append(garbage)
for _ in range(8):
    threading.Thread(target=loop, daemon=True).start()
end = time.monotonic() + 3
while time.monotonic() < end:
    assert len(current_frames()) >= 8
    time.sleep(0.0001)
print("through")
"""


def test_it_comes_back_however_often_collections_happen() -> None:
    done = subprocess.run([sys.executable, "-c", _STRESS], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "through\n", done.stderr


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_left_as_it_was(enabled: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        assert threading.get_ident() in current_frames()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
