"""Trace files: opened and read in pieces, so that neither a long file nor a long line fills the memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from unknot.graph.trace import LINE_LIMIT
from unknot.recovery.errors import ConfigError

STDIN = "-"


@contextmanager
def opened(path: Path) -> Iterator[Iterator[bytes]]:
    """The lines of a file, or of stdin for `-`. Raises ConfigError if it cannot be read."""
    try:
        with sys.stdin.buffer if str(path) == STDIN else path.open("rb") as file:
            yield _lines(file)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ConfigError(what=f"{path} cannot be read: {why}", todo="give a trace file, or - for stdin") from error


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines; what goes on after the limit of one is skipped, and the piece is longer than allowed, so it is refused."""
    while line := file.readline(LINE_LIMIT + 1):
        yield line
        while len(line) > LINE_LIMIT and not line.endswith(b"\n"):
            line = file.readline(LINE_LIMIT)
