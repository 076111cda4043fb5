"""Where in the user's code a call came from."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

# Packages whose frames are never the user's, by the first part of the module's name.
_NOT_USERS = frozenset({"unknot", "torch", "ray"})
_STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))


def short_site(filename: str, line: int) -> str:
    """`folder/file.py:line`: enough to find it, short enough for a sentence."""
    parts = filename.split(os.sep)
    return f"{os.sep.join(parts[-2:])}:{line}"


def calling_site(frame: FrameType | None = None) -> str | None:
    """The innermost frame that is the user's: neither ours, torch's or Ray's, nor the standard library's."""
    at: FrameType | None = frame if frame is not None else sys._getframe(1)
    while at is not None:
        if is_users(at):
            return short_site(at.f_code.co_filename, at.f_lineno)
        at = at.f_back
    return None


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs code of the user. A folder of the user's that is called torch or ray is the user's."""
    module: str = frame.f_globals.get("__name__") or ""
    file = frame.f_code.co_filename
    if module.partition(".")[0] in _NOT_USERS or file.startswith("<"):
        return False
    return not file.startswith(_STDLIB) or any(part in file for part in _INSTALLED)


def stack_of(frame: FrameType | None, *, limit: int = 64) -> tuple[str, ...]:
    """`file:line function`, innermost first; no locals, they hold secrets."""
    lines: list[str] = []
    while frame is not None and len(lines) < limit:
        lines.append(f"{short_site(frame.f_code.co_filename, frame.f_lineno)} {frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(lines)
