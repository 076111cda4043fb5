"""All dumps of a run that lie in one directory: which ranks they are of, and which cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.supervisor.dumps.errors import DumpError
from unknot.supervisor.dumps.flight import Dump, parse

FILE_LIMIT = 512 * 1024 * 1024
_RANK = re.compile(r"(\d{1,7})(?:\.[A-Za-z]+)*$")


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """The dumps by rank, what could not be read, and when the last one was written (seconds since the epoch)."""

    dumps: tuple[Dump, ...]
    problems: tuple[str, ...]
    at: float


def read_folder(path: Path) -> Folder:
    """The dumps in `path`: each file whose name ends with a rank, such as `nccl_trace_rank_3`. Raises ConfigError."""
    dumps: dict[int, Dump] = {}
    problems: list[str] = []
    written = 0.0
    for file in _files(path):
        try:
            dump = parse(_content(file), _rank(file))
            if dump.rank in dumps:
                raise DumpError(what=f"a second dump of rank {dump.rank}", expected="one for each rank")
        except DumpError as error:
            problems.append(f"{file.name}: {error}")
            continue
        dumps[dump.rank] = dump
        written = max(written, file.stat().st_mtime)
    if not dumps:
        told = f": {problems[0]}" if problems else ""
        todo = "give the directory of TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
        raise ConfigError(what=f"{path} holds no dump that can be read{told}", todo=todo)
    return Folder(dumps=tuple(dumps[rank] for rank in sorted(dumps)), problems=tuple(problems), at=written)


def _files(path: Path) -> list[Path]:
    try:
        return sorted(one for one in path.iterdir() if one.is_file() and not one.name.startswith("."))
    except OSError as error:
        raise ConfigError(what=f"{path} cannot be read: {error.strerror}", todo="give a directory of dumps") from error


def _rank(file: Path) -> int:
    found = _RANK.search(file.name)
    if found is None:
        raise DumpError(what="no rank in its name", expected="a name that ends with one, such as nccl_trace_rank_3")
    return int(found[1])


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_LIMIT + 1)
    except OSError as error:
        raise DumpError(what=f"cannot be read: {error.strerror}", expected="a file") from error
    if len(data) > FILE_LIMIT:
        raise DumpError(what=f"more than {FILE_LIMIT} bytes", expected="a dump of a flight recorder")
    return data
