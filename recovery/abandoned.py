"""What becomes of items that were made with weights of a time-line that was abandoned.

After a roll-back the trainer group stands at its manifest, while agents may have made items with newer weights: they stay in
the mailboxes with the version they were sampled with in their meta. When the re-formed group publishes other weights under
that number, or has not come so far again, the item is off the standing time-line. Two policies: `keep` uses it all the same (off-policy
methods do not mind, and a bit-identical repeat never meets it), `drop` consumes it without using it.

Rejected: rolling the agents back too. What they have committed since the manifest others have received, so all of them and all mailboxes
would have to go back at once: that is a roll-back of the run, not the fate of an item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from unknot.recovery.items import Item
from unknot.recovery.ports import Store
from unknot.recovery.weights import Version, standing_digest

Policy = Literal["keep", "drop"]
Fate = Literal["deliver", "drop"]


def is_abandoned(sampled: Version | None, standing: str | None) -> bool:
    """Whether an item is off the standing time-line.

    Args:
        sampled: the version that it was made with, None if it does not say.
        standing: the digest that stands under that number now; '' if none does, None if that is not known any more.
    """
    return sampled is not None and standing is not None and standing != sampled.digest


def fate_of(policy: Policy, sampled: Version | None, standing: str | None) -> Fate:
    """What `policy` does with an item; arguments as `is_abandoned`."""
    if policy == "keep" or not is_abandoned(sampled, standing):
        return "deliver"
    return "drop"


def sampled_version(meta: Any) -> Version | None:
    """The version in an item's meta: the meta itself, or a value of it if it is a mapping; None if there is none."""
    candidates = [meta, *(meta.values() if isinstance(meta, Mapping) else ())]
    return next((one for one in candidates if isinstance(one, Version)), None)


def fate_now(store: Store, policy: Policy, item: Item) -> Fate:
    """What `policy` does with `item` as the weights stand now."""
    sampled = sampled_version(item.meta)
    standing = None if sampled is None else standing_digest(store, sampled.name, sampled.n)
    return fate_of(policy, sampled, standing)


def dropping(store: Store, policy: Policy) -> Callable[[Item], bool] | None:
    """What `take` and steps ask about each item, None for a policy that drops nothing."""
    if policy != "drop":
        return None
    return lambda item: fate_now(store, policy, item) == "drop"
