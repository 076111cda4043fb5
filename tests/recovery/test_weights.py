from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.recovery.stepping import steps_of
from unknot.recovery.errors import (
    ConfigError,
    DeadlockInterrupted,
    FencedError,
    RunClosed,
    StaleWeights,
    WaitTimeout,
    WeightsGone,
)
from unknot.recovery.interrupts import interrupt
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.run import RunClaim
from unknot.recovery.weight_rights import declare_publishers
from unknot.recovery.weights import Weights, settle_weights
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
Eventually = Callable[..., None]


def queued(store: RedisStore) -> list[str]:
    return [entry.decode() for entry in store.command("LRANGE", store.key("weightsq", "policy"), 0, -1)]


def test_the_newest_version_is_found_with_number_generation_and_digest(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    first = weights.publish({"w": [1.0]}, generation=1)
    second = weights.publish({"w": [2.0]}, generation=1)
    found = Weights("policy", store, join("agent/a")).latest()
    assert (first.n, second.n) == (1, 2)
    assert first.digest != second.digest
    assert (found.version, found.value) == (second, {"w": [2.0]})
    assert found.at > 1e9


def test_publishing_what_stands_is_nothing(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    assert weights.publish([1], 1, n=5) == weights.publish([1], 1, n=5)
    assert weights.latest().version.n == 5


def test_another_value_under_the_same_number_wins(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    weights.publish([1], 1, n=5)
    weights.publish([2], 1, n=5)
    assert weights.latest().value == [2]


def test_a_newer_generation_wins_even_with_a_smaller_number(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    weights.publish([9], 1, n=9)
    weights.publish([4], 2, n=4)
    assert weights.latest().version.n == 4


@pytest.mark.parametrize(("generation", "n"), [(1, 9), (1, None), (2, 4)])
def test_an_older_generation_or_number_is_refused(
    store: RedisStore, join: Join, generation: int, n: int | None
) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    weights.publish([5], 2, n=5)
    with pytest.raises(StaleWeights, match=r"n=5 of generation 2 is published") as caught:
        weights.publish([0], generation, n=n)
    assert (caught.value.current_n, caught.value.current_generation) == (5, 2)
    assert weights.latest().value == [5]


def test_a_wait_for_a_version_ends_with_that_version_and_not_before(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    reader = Weights("policy", store, join("agent/a"))
    with ThreadPoolExecutor(2) as pool:
        any_version = pool.submit(reader.latest)
        eventually(lambda: len(queued(store)) == 1)
        third = pool.submit(reader.latest, 3)
        eventually(lambda: len(queued(store)) == 2)
        weights.publish("one", 1)
        assert any_version.result(10).value == "one"
        weights.publish("two", 1)
        assert len(queued(store)) == 1
        weights.publish("three", 1)
        assert third.result(10).value == "three"
    assert queued(store) == []
    assert store.command("HLEN", store.key("waits", "agent/a")) == 0


def test_a_wait_for_weights_ends_by_timeout_interrupt_or_close(
    store: RedisStore, join: Join, eventually: Eventually
) -> None:
    claim = RunClaim.take(store)
    reader = Weights("policy", store, join("agent/a"))
    for timeout_s in (0, 0.02):
        with pytest.raises(WaitTimeout, match="event:weights:policy:1"):
            reader.latest(timeout_s=timeout_s)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.latest, 2)
        eventually(lambda: queued(store))
        participant, _, ticket = queued(store)[0].rpartition("|")
        assert interrupt(store, participant, int(ticket), incident="i1")
        with pytest.raises(DeadlockInterrupted, match="event:weights:policy:2"):
            waiting.result(10)
        waiting = pool.submit(reader.latest)
        eventually(lambda: queued(store))
        claim.closing()
        with pytest.raises(RunClosed):
            waiting.result(10)
    assert queued(store) == []


def test_a_replaced_publisher_is_refused(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    join("trainer/0")
    with pytest.raises(FencedError):
        weights.publish([1], 1)


def test_weights_over_the_limit_are_refused_with_size_and_limit(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"), value_limit=100)
    with pytest.raises(ConfigError, match=r"weights policy of \d+ bytes are too large \(limit 100\)"):
        weights.publish("x" * 1000)
    assert repr(weights) == f"<Weights policy of run {store.run}>"


def test_the_newest_versions_are_kept_and_found_by_number(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    for n in range(1, 21):
        weights.publish(n, 1, n=n)
    assert [weights.latest(exact=n).value for n in (5, 20)] == [5, 20]
    with pytest.raises(WeightsGone):
        weights.latest(exact=4)
    assert store.command("HLEN", store.key("weightsv", "policy")) == 16


def test_a_re_formed_group_that_computes_the_same_again_changes_nothing(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    first = [weights.publish(n, 1, n=n) for n in range(1, 5)]
    assert weights.publish(2, 2, n=2).digest == first[1].digest
    assert weights.latest().version == first[3]
    with pytest.raises(StaleWeights):
        weights.publish("late", 1, n=5)
    weights.publish("other", 2, n=3)
    assert weights.latest().value == "other"
    with pytest.raises(WaitTimeout):
        weights.latest(exact=4, timeout_s=0)


def test_versions_are_provisional_until_a_manifest_covers_them(store: RedisStore, join: Join) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    for n in (1, 2):
        weights.publish(n, 2, n=n)
    assert weights.latest().provisional
    assert settle_weights(store, "policy", 1, generation=2)
    assert [weights.latest(exact=n).provisional for n in (1, 2)] == [False, True]
    assert not settle_weights(store, "policy", 2, generation=1), "of an older generation"
    assert weights.latest().provisional


def told_publishers(store: RedisStore) -> tuple[str, ...] | None:
    """Whom a wait for weights that are not there names."""
    told: list[tuple[str, ...] | None] = []

    class Telling(NullRecorder):
        def wait(self, ticket: int, needs: Any, resources: Any = (), **more: Any) -> Any:
            told.append(resources[0].setters)
            return super().wait(ticket, needs, resources, **more)

    with pytest.raises(WaitTimeout):
        Weights("policy", store, Telling("agent/a", 1)).latest(99, timeout_s=0.01)
    return told[0]


def test_a_wait_for_weights_names_those_who_publish(store: RedisStore, join: Join) -> None:
    join("agent/a")
    assert told_publishers(store) is None, "nobody has promised anything"
    Weights("policy", store, join("judge/j")).publish(1)
    assert told_publishers(store) == ("judge/*", "trainer/*")


def test_in_a_run_with_trainers_they_are_the_ones_who_publish_before_they_have(store: RedisStore, join: Join) -> None:
    join("agent/a")
    trainer = join("trainer/0")
    assert told_publishers(store) == ("trainer/*",)
    with pytest.raises(ConfigError, match=r"agent/a may not publish weights policy \(trainer/\* may\).*run\.weights\('policy'"):
        Weights("policy", store, NullRecorder("agent/a", 1)).publish(1)
    assert Weights("policy", store, trainer).publish(1).n == 1


def test_declared_publishers_are_the_only_ones(store: RedisStore, join: Join) -> None:
    agent, trainer = join("agent/a"), join("trainer/0")
    declare_publishers(store, "policy", ["agent/*"])
    declare_publishers(store, "policy", ["agent/*"])
    assert told_publishers(store) == ("agent/*",)
    assert Weights("policy", store, agent).publish(1).n == 1
    with pytest.raises(ConfigError, match="trainer/0 may not publish"):
        Weights("policy", store, trainer).publish(2)
    with pytest.raises(ConfigError, match="already declared otherwise"):
        declare_publishers(store, "policy", ["judge/*"])
    with pytest.raises(ConfigError, match="names nobody"):
        declare_publishers(store, "other", [])


def test_a_step_refuses_to_publish_what_is_not_its_members_to_publish(store: RedisStore, join: Join) -> None:
    agent = join("agent/a")
    join("trainer/0")
    for step in steps_of(store, agent).run(until=1):
        with step, pytest.raises(ConfigError, match="agent/a may not publish weights policy"):
            step.publish("policy", 1)


def test_a_wait_for_an_exact_version_ends_with_it(store: RedisStore, join: Join, eventually: Eventually) -> None:
    weights = Weights("policy", store, join("trainer/0"))
    reader = Weights("policy", store, join("agent/a"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.latest, exact=2)
        eventually(lambda: queued(store))
        weights.publish("one", n=1)
        assert queued(store)
        weights.publish("two", n=2)
        weights.publish("three", n=3)
        assert waiting.result(10).value == "two"
