"""Lists of participants under a key, small in memory: most keys have one or two, some have thousands."""

from __future__ import annotations

from collections.abc import Collection

Index = dict[str, Collection[str]]
_MANY = 12


def enlist(index: Index, key: str, alone: tuple[str]) -> None:
    """Put the participant in `alone`, which is not there, under `key`; where it is the only one, that tuple is kept."""
    now = index.get(key, ())
    if isinstance(now, dict):
        now[alone[0]] = None
    elif not now:
        index[key] = alone
    elif len(now) < _MANY:
        index[key] = (*now, *alone)
    else:
        index[key] = dict.fromkeys((*now, *alone))


def unlist(index: Index, key: str, pid: str) -> None:
    """Take `pid`, which is there, away; a key without participants goes."""
    now = index[key]
    if len(now) == 1:
        del index[key]
    elif isinstance(now, dict):
        del now[pid]
    else:
        index[key] = tuple(one for one in now if one != pid)
