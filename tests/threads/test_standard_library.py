"""The standard library's own tests of locks and of conditions, with traced locks.

They come with Python. One that lacks its `test` package cannot run this file: nothing is skipped.
"""

from __future__ import annotations

import threading

from test import lock_tests  # type: ignore[import-not-found]

from tests.recorder.puppets import make_table
from unknot.integrations.threads import TracedLock

TABLE = make_table()


class TestATracedLockPassesTheTestsOfALock(lock_tests.LockTests):  # type: ignore[misc]
    @staticmethod
    def locktype() -> TracedLock:
        return TracedLock(TABLE)


class TestAConditionOverATracedLockPassesTheTestsOfACondition(lock_tests.ConditionTests):  # type: ignore[misc]
    # That one is about the reentrant lock that a condition has by default.
    test_acquire = None

    @staticmethod
    def condtype(lock: TracedLock | None = None) -> threading.Condition:
        return threading.Condition(lock or TracedLock(TABLE))  # type: ignore[arg-type]
