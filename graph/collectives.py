"""Which operations of a collective group fit together: what is compared, and what differs between ranks by right.

Ranks must agree on operation, size, type, root and kind of reduction, operation by operation: an `all_to_all` may send each
rank another size, and of `gather` and `scatter` only the root has the whole. Comparing one fixed tuple would call these wrong,
and comparing only names would miss two reductions of different tensors. A field that a rank does not tell agrees with any.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any

FIELDS = ("op", "shape", "dtype", "root", "reduce_op")
_SIZES_DIFFER = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv", "barrier", "monitored_barrier", "object")
_OP_LENGTH = 100
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def comparable(fields: tuple[str, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    """`values` of `fields` with None for what may differ between the ranks of this operation."""
    op = values[fields.index("op")] if "op" in fields else None
    blank = _by_right(fields, op) if isinstance(op, str) and len(op) <= _OP_LENGTH else ()
    if all(values[place] is None for place in blank):
        return values
    return tuple(None if place in blank else value for place, value in enumerate(values))


@lru_cache(maxsize=1024)
def _by_right(fields: tuple[str, ...], op: str) -> tuple[int, ...]:
    """The places of what may differ."""
    name = op.lower()
    found = {"shape"} if may_differ_in_size(name) else set()
    if "reduce" not in name:
        found.add("reduce_op")
    if name.startswith("all") or not any(part in name for part in _ROOTED):
        found.add("root")
    return tuple(place for place, field in enumerate(fields) if field in found)


def may_differ_in_size(op: str) -> bool:
    """Whether ranks may bring different sizes to `op`."""
    name = op.lower()
    if name.startswith(("all_gather", "allgather", "reduce_scatter", "_reduce_scatter", "_allgather")):
        return name.endswith("_v") or "object" in name
    return any(part in name for part in _SIZES_DIFFER)


def minority(issued: dict[str, tuple[Any, ...]]) -> tuple[str, ...]:
    """Those whose operation fewest others issued; all of them where none is rarer."""
    frequency = Counter(issued.values())
    most = max(frequency.values(), default=0)
    rare = [pid for pid, signature in issued.items() if frequency[signature] < most]
    return tuple(sorted(rare or issued))
