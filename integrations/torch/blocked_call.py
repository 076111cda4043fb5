"""Whether a thread that stands in the user's own code stands in `work.wait()` of an asynchronous collective.

`wait` of a Work is C++ and leaves no frame of torch's, so the innermost Python frame is the user's, like that of a thread that
sleeps there. The two are told apart by the call itself: the instruction at which the frame stands must call a method `wait` without
arguments, and what it is called on must be a Work. That is looked up by name in the frame's variables; anything more
complicated is not followed, and such a thread counts as running.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch.distributed as dist

_CALLS = frozenset({"CALL", "PRECALL", "CACHE", "KW_NAMES", "PUSH_NULL"})
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF"})
_METHODS = frozenset({"LOAD_METHOD", "LOAD_ATTR"})


def waits_for_work(frame: FrameType) -> bool:
    """Whether the frame stands in `NAME.wait()`, `NAME` being a Work."""
    path = _path_of_wait(frame.f_code, frame.f_lasti)
    if path is None:
        return False
    name, *attributes = path
    found: Any = frame.f_locals.get(name, frame.f_globals.get(name))
    for attribute in attributes:
        found = getattr(found, attribute, None) if not isinstance(found, type) else None
    return isinstance(found, dist.Work)


@lru_cache(maxsize=256)
def _path_of_wait(code: CodeType, at: int) -> tuple[str, ...] | None:
    """The names `a`, `b` of a call `a.b.wait()` at that offset, None for any other instruction."""
    before = [one for one in dis.get_instructions(code) if one.offset <= at]
    if not before or before[-1].opname not in ("CALL", "PRECALL") or before[-1].arg != 0:
        return None
    names: list[str] = []
    for one in reversed(before):
        if one.opname in _CALLS:
            continue
        names.append(str(one.argval))
        if one.opname in _LOADS:
            break
        if one.opname not in _METHODS:
            return None
    if len(names) < 2 or names[0] != "wait":
        return None
    return tuple(reversed(names[1:]))
