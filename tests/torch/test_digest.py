"""The digest of a state is equal exactly when the states are equal bit by bit; generators come back as they were."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unknot.integrations.torch.carry import Shard
from unknot.integrations.torch.digest import leaf_hashes, state_hash
from unknot.integrations.torch.rng import capture_rng, restore_rng, rng_from_bytes, seed
from unknot.integrations.torch.staging import check_trainer, stage
from unknot.recovery.checkpoint_errors import StateNotSaveable
from unknot.recovery.errors import ConfigError
from unknot.recovery.outcome import combined_hash

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False), st.text(max_size=3), st.binary(max_size=3),
    st.lists(st.floats(width=32), max_size=3).map(lambda values: torch.tensor(values, dtype=torch.float32)),
)  # fmt: skip
states = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2) | st.integers(0, 3), inner, max_size=3),
    max_leaves=8,
)


def bits(state: Any) -> Any:
    """The state as plain values that compare by bits: an independent statement of what the digest says."""
    if isinstance(state, dict):
        return ("dict", sorted((str(type(k)), str(k), bits(v)) for k, v in state.items())) if state else "empty dict"
    if isinstance(state, list):
        return [(i, bits(v)) for i, v in enumerate(state)] or "empty list"
    if isinstance(state, torch.Tensor):
        return ("tensor", str(state.dtype), tuple(state.shape), state.numpy().tobytes())
    if isinstance(state, float):
        return ("float", state.hex())
    return (type(state).__name__, repr(state))


@given(states, states)
def test_two_states_have_one_digest_exactly_when_they_are_the_same_bits(one: Any, other: Any) -> None:
    same = repr(bits({"s": one})) == repr(bits({"s": other}))
    assert (state_hash({"s": one}) == state_hash({"s": other})) == (same or as_items(one) == as_items(other))


def as_items(state: Any) -> str:
    """A list and a dict with the keys 0, 1, ... are one state: a path tells them no apart."""
    if isinstance(state, list) and state:
        return as_items(dict(enumerate(state)))
    if isinstance(state, dict) and state:
        return repr(sorted((str(type(k)), str(k), as_items(v)) for k, v in state.items()))
    return repr(bits(state))


@pytest.mark.parametrize(
    "other",
    [
        {"w": torch.tensor([1.0, 2.0 + 3e-7])}, {"w": torch.tensor([[1.0, 2.0]])}, {"w": torch.tensor([1.0, 2.0]).double()},
        {"v": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([2.0, 1.0])}, {"w": np.array([1.0, 2.0], dtype="f4")},
    ],
)  # fmt: skip
def test_a_bit_a_shape_a_type_or_a_name_makes_another_digest(other: Any) -> None:
    assert state_hash({"w": torch.tensor([1.0, 2.0])}) != state_hash(other)


def test_neither_the_order_of_keys_nor_of_memory_matters() -> None:
    one: dict[str, Any] = {"a": 1, "b": torch.arange(6.0).reshape(2, 3)}
    other: dict[str, Any] = {"b": torch.arange(6.0).reshape(2, 3).t().contiguous().t(), "a": 1}
    assert not other["b"].is_contiguous()
    assert state_hash(one) == state_hash(other)
    assert state_hash({"a": -0.0}) != state_hash({"a": 0.0})
    assert state_hash({"a": (1, 2)}) == state_hash({"a": [1, 2]})


def test_a_key_cannot_pass_for_a_path() -> None:
    assert state_hash({"a": {"b": 1}}) != state_hash({"a\0s:b": 1})
    assert state_hash({"a": {"b": 1}}) != state_hash({"a.b": 1})


def test_a_shard_counts_with_where_it_lies() -> None:
    local = torch.ones(2, 3)
    first = Shard(local, ("Shard(dim=0)",), (4, 3), (3, 1))
    assert state_hash({"w": first}) == state_hash({"w": Shard(local.clone(), ("Shard(dim=0)",), (4, 3), (3, 1))})
    assert state_hash({"w": first}) != state_hash({"w": Shard(local, ("Shard(dim=1)",), (4, 3), (3, 1))})
    assert state_hash({"w": first}) != state_hash({"w": local})
    assert leaf_hashes({"w": first, "n": [3]}).keys() == {"n.0"}


def test_generators_are_part_of_the_digest_and_come_back_as_they_were() -> None:
    seed(2**40 + 1)
    before = capture_rng()
    digest = state_hash({}, before)
    drawn = (torch.rand(3).tolist(), random.random(), np.random.random())
    assert state_hash({}, capture_rng()) != digest
    restore_rng(rng_from_bytes(before.to_bytes()))
    assert state_hash({}, capture_rng()) == digest
    assert (torch.rand(3).tolist(), random.random(), np.random.random()) == drawn
    seed(2**40 + 1)
    assert capture_rng() == before
    seed(1)
    assert capture_rng() != before, "all bits of the seed count"


def test_the_digest_of_all_ranks_tells_which_is_whose() -> None:
    assert combined_hash(["a", "b"]) != combined_hash(["b", "a"]) != combined_hash(["ba"])


def test_a_value_without_canonical_bytes_is_refused_by_name() -> None:
    with pytest.raises(StateNotSaveable, match=r"optim\.0\.lock cannot be saved: a lock has no canonical bytes"):
        state_hash({"optim": [{"lock": threading.Lock()}]})
    with pytest.raises(StateNotSaveable, match="use texts or integers as keys"):
        state_hash({(1, 2): 3})


def test_a_staged_state_does_not_change_with_the_one_it_was_taken_from() -> None:
    live = {"w": torch.zeros(3), "log": [[1]], "module": torch.nn.Linear(1, 1)}
    staged = stage(live).state
    digest = state_hash(staged)
    live["w"] += 1  # type: ignore[operator]
    live["log"][0].append(2)  # type: ignore[index]
    live["module"].weight.data += 1  # type: ignore[attr-defined]
    assert state_hash(staged) == digest
    assert staged["w"].tolist() == [0, 0, 0]


def test_a_state_that_cannot_be_saved_is_refused_before_training_goes_on() -> None:
    with pytest.raises(StateNotSaveable, match="does not pickle"):
        stage({"model": {"w": torch.zeros(1)}, "hook": lambda: None})
    with pytest.raises(StateNotSaveable, match=r"model\.0 cannot be saved: a set has no canonical bytes"):
        stage({"model": [{1, 2}]})
    with pytest.raises(StateNotSaveable, match="return a dict"):
        stage([1])
    with pytest.raises(StateNotSaveable, match="without data"):
        stage({"w": torch.zeros(1, device="meta")})


def test_a_trainer_that_has_no_state_is_told_what_to_define() -> None:
    class Bare:
        def state_dict(self) -> dict[str, int]:
            return {}

    with pytest.raises(ConfigError, match=r"Bare has no load_state_dict.*define state_dict\(\) and load_state_dict"):
        check_trainer(Bare())
