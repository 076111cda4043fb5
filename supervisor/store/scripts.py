"""The Lua scripts by name: read once, common parts put in, known by their SHA-1.

A script is one file in `recovery/lua` or `supervisor/lua`. Redis has no include, and copies of the same fence check
in twenty files would drift apart, so a line `-- include: NAME` is replaced by `lua/lib/NAME.lua`, which may include others;
each part is put in once.
"""

from __future__ import annotations

import functools
import hashlib
import re
from importlib import resources
from typing import NamedTuple

_FOLDERS = ("unknot.recovery", "unknot.supervisor")
_INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)


class Script(NamedTuple):
    """One script: its name, its text as Redis gets it, and the digest that Redis knows it by."""

    name: str
    text: str
    sha: str


@functools.cache
def load_script(name: str) -> Script:
    """The script `name`; KeyError when no folder has it, which is a mistake in this package."""
    text = _expanded(name, set())
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def script_names() -> tuple[str, ...]:
    """The names of all scripts, sorted."""
    names = [
        entry.name.removesuffix(".lua")
        for folder in _FOLDERS
        for entry in (resources.files(folder) / "lua").iterdir()
        if entry.name.endswith(".lua")
    ]
    return tuple(sorted(names))


def _expanded(name: str, seen: set[str]) -> str:
    def put_in(found: re.Match[str]) -> str:
        part = found[1]
        if part in seen:
            return ""
        seen.add(part)
        return _expanded(f"lib/{part}", seen)

    return _INCLUDE.sub(put_in, _read(name))


def _read(name: str) -> str:
    for folder in _FOLDERS:
        path = resources.files(folder) / "lua" / f"{name}.lua"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise KeyError(f"no script {name}.lua in recovery/lua or supervisor/lua")
