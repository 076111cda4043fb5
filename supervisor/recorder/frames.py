"""The frames of all threads, without the risk of stopping the process for ever.

`sys._current_frames` of CPython 3.11 holds the lock of the interpreter's list of threads while it makes frame objects. Making one may
start a garbage collection, which takes that very lock again: the thread then waits for itself, with the interpreter lock in its hands,
and the process never runs again (CPython issue 106883, seen in a test run of ours on 3.11.7). From 3.12 on collections start between
bytecodes only. Until then collections are switched off around the call, as CPython's own mend does. A thread that calls
`gc.disable()` between these lines would find it undone; where the collector is off already, nothing is touched.
"""

from __future__ import annotations

import gc
import sys
from types import FrameType

_MAY_COLLECT = sys.version_info < (3, 12)


def current_frames() -> dict[int, FrameType]:
    """Identifier of each thread -> its innermost frame."""
    if not _MAY_COLLECT or not gc.isenabled():
        return sys._current_frames()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()
