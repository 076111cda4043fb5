"""A child process that is kept running, and that ends with the process that started it, also when that one is killed.

The kernel's death signal follows the *thread* that created the child, so one thread creates it, waits for it, and creates it again
should it end by itself. A child that cannot stay up is started ever more slowly, and never given up: it watches a run that goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from unknot.supervisor.store.embedded import SHIM

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 10.0
_log = structlog.get_logger("unknot.run")


class KeptChild(threading.Thread):
    """Starts `arguments` again whenever they end, until `stop`. `restarts` counts how often.

    Args:
        arguments: program and arguments.
        environ: its whole environment.
        log: the file that its output is appended to.
    """

    def __init__(self, arguments: Sequence[str], *, environ: Mapping[str, str], log: Path) -> None:
        super().__init__(name=f"unknot-{log.stem}", daemon=True)
        self.restarts = 0
        self._arguments = [sys.executable, "-I", "-S", "-c", SHIM, str(os.getpid()), *arguments]
        self._environ = dict(environ)
        self._log_file = log
        self._stopping = threading.Event()
        self._there = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process as it runs now."""
        return self._process.pid if self._process is not None else None

    def launch(self) -> None:
        """Start, and return once the first process exists, or could not be made."""
        self.start()
        self._there.wait()

    def run(self) -> None:
        """Keep it running."""
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            status = self._once()
            self._there.set()
            if self._stopping.is_set():
                return
            self.restarts += 1
            _log.warning("child.ended", name=self.name, status=status, log=str(self._log_file), again_in_s=pause_s)
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _once(self) -> int | str:
        try:
            with self._log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    self._arguments, env=self._environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            return str(error)
        self._there.set()
        if self._stopping.is_set():
            self._process.terminate()
        return self._process.wait()

    def stop(self, *, limit_s: float = 5.0) -> None:
        """SIGTERM, and SIGKILL after `limit_s`; by its own pid only. Idempotent."""
        self._stopping.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
        self.join(limit_s)
        if self.is_alive() and process is not None:
            process.kill()
            self.join()
