"""The command in a process of its own, and what it answered."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "unknot.supervisor.cli.main"]
LIMIT_S = 60

Done = subprocess.CompletedProcess[str]


class Run(Protocol):
    def __call__(
        self, *args: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]: ...


def only_line(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]
