"""Child processes that end with the process that started them, also when that one is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_SHIM = """\
import ctypes, os, signal, sys
prctl = getattr(ctypes.CDLL(None), "prctl", None)
prctl and prctl(1, signal.SIGTERM)
os.getppid() == int(sys.argv[1]) or sys.exit(75)
os.execv(sys.argv[2], sys.argv[2:])
"""


class Child(threading.Thread):
    """A child process, bound to a thread that lives as long as it: the kernel's death signal follows the thread."""

    def __init__(self, arguments: Sequence[str], *, environ: Mapping[str, str], log: Path) -> None:
        super().__init__(name=f"unknot-{log.stem}", daemon=True)
        self._arguments = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *arguments]
        self._environ = dict(environ)
        self._log = log
        self._there = threading.Event()
        self._failure: OSError | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Create the process and wait for its end."""
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._arguments, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            self._failure = error
        finally:
            self._there.set()
        if self._process is not None:
            self._process.wait()

    def launch(self) -> subprocess.Popen[bytes]:
        """Start, and return the process once it exists.

        Raises:
            OSError: it could not be created.
        """
        self.start()
        self._there.wait()
        if self._process is None:
            raise self._failure or OSError("the process was not created")
        return self._process

    def stop(self, *, limit_s: float = 5.0) -> None:
        """SIGTERM, and SIGKILL after `limit_s`; by its own pid only. Idempotent."""
        process = self._process
        if process is None or not self.is_alive():
            return
        process.terminate()
        self.join(limit_s)
        if self.is_alive():
            process.kill()
            self.join()
