"""Rights lists that match nobody: most of them are misspelt, and whoever waits for their members waits for ever."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from unknot.graph.ids import is_pattern, matches, parse


def suggestion(word: str, known: Iterable[str]) -> str:
    """` (did you mean x?)` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def unmatched(what: str, names: Collection[str] | None, members: Collection[str]) -> str:
    """That no member matches a list of rights, in words; '' where one does, or the list is open or empty.

    Args:
        what: the list: `senders`, `receivers`, `publishers`.
        names: its names and patterns.
        members: all members that are known.
    """
    if not names or any(matches(member, parse(name).member) for name in names for member in members):
        return ""
    listed = " or ".join(repr(name) for name in names)
    return f"no member matches {what} {listed}{_near(names, members)}"


def _near(names: Iterable[str], members: Iterable[str]) -> str:
    patterns = sorted({f"{parse(member).role}/*" for member in members})
    hints = (suggestion(name, patterns if is_pattern(name) else sorted(members)) for name in names)
    return next((hint for hint in hints if hint), "")
