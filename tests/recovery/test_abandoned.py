"""What becomes of items made with weights of an abandoned time-line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.recovery.stepping import J, contents, each, steps_of
from unknot.recovery.abandoned import Policy, dropping, fate_of, sampled_version
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.take import take
from unknot.recovery.weights import Version, Weights, standing_digest
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
OLD = Version(name="w", generation=1, n=3, digest="old")


@pytest.mark.parametrize(
    ("policy", "sampled", "standing", "fate"),
    [
        ("keep", OLD, "new", "deliver"),
        ("drop", OLD, "new", "drop"),
        ("drop", OLD, "", "drop"),
        ("drop", OLD, "old", "deliver"),
        ("drop", OLD, None, "deliver"),
        ("drop", None, "new", "deliver"),
        ("keep", OLD, "", "deliver"),
    ],
)
def test_the_fate_of_an_item_follows_from_policy_and_versions(
    policy: Policy, sampled: Version | None, standing: str | None, fate: str
) -> None:
    assert fate_of(policy, sampled, standing) == fate


@pytest.mark.parametrize(("meta", "found"), [(OLD, OLD), ({"weights": OLD}, OLD), ({"n": 3}, None), (None, None), ("w", None)])
def test_the_version_is_found_in_the_meta(meta: Any, found: Version | None) -> None:
    assert sampled_version(meta) == found


def rolled_back(store: RedisStore, join: Join) -> tuple[Mailbox, list[Version]]:
    """Items made with versions 1, 2 and 3; then the group publishes another version 2, and 3 is void."""
    weights = Weights("w", store, join("trainer/0"))
    box = Mailbox("raw", store, join("agent/a")).declare(8)
    versions = [weights.publish(f"w{n}", 1, n=n) for n in (1, 2, 3)]
    for version in versions:
        box.send(version.n, meta={"weights": version})
    box.send("no version")
    weights.publish("w1", 2, n=1)
    weights.publish("other", 2, n=2)
    return box, versions


def test_a_take_that_drops_consumes_what_was_made_with_void_weights(store: RedisStore, join: Join) -> None:
    box, versions = rolled_back(store, join)
    items = take(
        store, join("trainer/1"), group="policy", seq=0, call=0, mailbox="raw", n=2, timeout_s=0, drop=dropping(store, "drop")
    )
    assert [item.value for item in items] == [1, "no version"]
    assert items[0].meta == {"weights": versions[0]}, "items keep the version they were made with"
    assert (box.statistics().queued, box.statistics().acked) == (0, 2)


def test_a_step_that_drops_consumes_them_with_its_commit(store: RedisStore, join: Join) -> None:
    box, _ = rolled_back(store, join)
    judge = join(J)
    seen: list[Any] = []
    each(
        steps_of(store, judge, drop=dropping(store, "drop")).run(until=2), lambda step: seen.append(step.receive("raw").value)
    )
    assert seen == [1, "no version"]
    assert (box.statistics().acked, contents(store, judge, "raw")) == (4, [])


def test_keep_drops_nothing(store: RedisStore) -> None:
    assert dropping(store, "keep") is None


def test_a_version_that_is_not_kept_any_more_may_have_been_the_one(store: RedisStore, join: Join) -> None:
    weights = Weights("w", store, join("trainer/0"), keep=2)
    last = [weights.publish(n, n=n) for n in range(1, 5)][-1]
    assert [standing_digest(store, "w", n) for n in (1, 4, 5)] == [None, last.digest, ""]
    assert standing_digest(store, "none", 1) == ""
