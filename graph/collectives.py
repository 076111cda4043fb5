"""Which operations of a collective group fit together: what is compared, and what differs between ranks by right.

Ranks must agree on operation, size, type, root and kind of reduction, operation by operation: an `all_to_all` may send each
rank another size, and of `gather` and `scatter` only the root has the whole. Comparing one fixed tuple would call these wrong,
and comparing only names would miss two reductions of different tensors. A field that a rank does not tell agrees with any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

FIELDS = ("op", "shape", "dtype", "root", "reduce_op")
_SIZES_DIFFER = ("all_to_all", "alltoall", "gather", "scatter", "send", "recv", "barrier", "monitored_barrier", "object")
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


def comparable(fields: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """`values` of `fields` with None for what may differ between the ranks of this operation."""
    told = dict(zip(fields, values, strict=True))
    op = told.get("op")
    by_right = _may_differ(op.lower()) if isinstance(op, str) else frozenset()
    return tuple(None if name in by_right else told[name] for name in fields)


def _may_differ(op: str) -> frozenset[str]:
    found = {"shape"} if may_differ_in_size(op) else set()
    if "reduce" not in op:
        found.add("reduce_op")
    if op.startswith("all") or not any(part in op for part in _ROOTED):
        found.add("root")
    return frozenset(found)


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
