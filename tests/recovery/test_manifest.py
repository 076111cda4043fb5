"""What decides about data, as functions of values: which manifest is restored, which is kept, which files may go."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.recovery.manifests import entry, manifest, record
from unknot.recovery.manifest import (
    COMMIT_POINTS,
    LEGAL,
    SAVE_POINTS,
    SWEEP_POINTS,
    Attempt,
    AttemptState,
    Damage,
    Found,
    Manifest,
    choose,
    is_plain_path,
    may_follow,
    new_id,
    newest_first,
    to_drop,
    to_sweep,
)

numbers = st.lists(st.integers(1, 30), unique=True, max_size=8)


def attempt(state: str, *, live: bool = False, id_: str = "") -> Attempt:
    name = id_ or new_id("policy", generation=1, seq=1, nonce="0" * 8)
    return Attempt(
        id=name, group="policy", generation=1, seq=1, size=1, state=state, directory="d", live=live,  # type: ignore[arg-type]
        answered=(0,) if state in ("committed", "dropped") else (), number=1 if state in ("committed", "dropped") else 0,
    )  # fmt: skip


def damaged_if(bad: set[int]) -> object:
    return lambda one: [Damage(path="x", why="is missing")] if one.number in bad else []


@given(numbers, st.sets(st.integers(1, 30)))
def test_the_newest_whole_manifest_is_chosen_and_every_newer_one_is_named_with_its_damage(
    all_numbers: list[int], bad: set[int]
) -> None:
    chosen = choose([manifest(n) for n in all_numbers], damaged_if(bad))  # type: ignore[arg-type]
    whole = [n for n in all_numbers if n not in bad]
    assert (chosen.manifest.number if chosen.manifest else None) == max(whole, default=None)
    newer = sorted((n for n in all_numbers if n > max(whole, default=0)), reverse=True)
    assert [id_ for id_, _ in chosen.passed_over] == [manifest(n).id for n in newer]
    assert all(damage for _, damage in chosen.passed_over)


def test_no_manifest_is_examined_that_is_older_than_the_chosen_one() -> None:
    examined: list[int] = []

    def examine(one: Manifest) -> list[Damage]:
        examined.append(one.number)
        return []

    choose([manifest(1), manifest(3), manifest(2)], examine)
    assert examined == [3]


@given(numbers, st.sets(st.integers(1, 30)), st.integers(1, 4))
def test_what_is_dropped_leaves_the_newest_whole_ones_and_nothing_older(
    all_numbers: list[int], bad: set[int], keep: int
) -> None:
    old = {one.number for one in to_drop([manifest(n) for n in all_numbers], keep=keep, examine=damaged_if(bad))}  # type: ignore[arg-type]
    left = sorted(set(all_numbers) - old, reverse=True)
    whole = sorted((n for n in all_numbers if n not in bad), reverse=True)
    assert [n for n in left if n not in bad] == whole[:keep], "a damaged one does not count as kept"
    assert all(n < min(left, default=0) for n in old)


def test_files_go_only_where_no_manifest_is_and_none_can_come() -> None:
    names = {state: new_id("policy", generation=1, seq=n, nonce="0" * 8) for n, state in enumerate(get_args(AttemptState))}
    known = {name: attempt(state, id_=name) for state, name in names.items()}
    unknown, live = (new_id("policy", generation=9, seq=n, nonce="0" * 8) for n in (1, 2))
    known[live] = attempt("preparing", live=True, id_=live)
    found = [Found(name=name, has_manifest=False) for name in (*known, unknown, "my-notes")]
    assert set(to_sweep(found, known)) == {names["preparing"], names["abandoned"], names["dropped"], unknown}
    whole = [Found(name=name, has_manifest=True) for name in (*known, unknown)]
    assert set(to_sweep(whole, known)) == {names["preparing"], names["abandoned"], names["dropped"]}


@pytest.mark.parametrize("before", [None, *get_args(AttemptState)])
def test_an_attempt_goes_only_where_the_table_says(before: AttemptState | None) -> None:
    allowed = {after for after in (None, *get_args(AttemptState)) if may_follow(before, after)}
    assert allowed == LEGAL[before]
    assert before not in allowed
    assert set(LEGAL) == {None, *get_args(AttemptState)}


def test_nothing_leads_back_from_abandoned_or_dropped() -> None:
    assert LEGAL["abandoned"] == LEGAL["dropped"] == {None}
    assert not may_follow("preparing", None), "files could be left"


def test_an_attempt_that_cannot_be_is_told() -> None:
    right = attempt("committed")
    assert right.validate() == ()
    for wrong in (
        {"state": "half"}, {"answered": ()}, {"number": 0}, {"live": True}, {"answered": (0, 7)},
        {"state": "preparing"},
    ):  # fmt: skip
        assert msgspec.structs.replace(right, **wrong).validate() != (), wrong


def test_a_manifest_that_cannot_be_is_told() -> None:
    right = manifest(1)
    assert right.validate() == ()
    outside = msgspec.structs.replace(record(0), files=(entry("../other/x", b""), entry("rng-0", b"rng")))
    without_rng = msgspec.structs.replace(record(0), rng="rng-9")
    twice = msgspec.structs.replace(record(1), files=record(0).files, rng="rng-0")
    no_hash = msgspec.structs.replace(record(0), files=(msgspec.structs.replace(entry("a", b""), sha256="?"), entry("rng-0", b"")))
    for ranks, told in (
        ((record(0),), "records of ranks"),
        ((outside, record(1)), "lies outside"),
        ((without_rng, record(1)), "random generators"),
        ((record(0), twice), "named twice"),
        ((no_hash, record(1)), "no size and SHA-256"),
    ):
        wrong = msgspec.structs.replace(right, ranks=ranks).validate()
        assert any(told in one for one in wrong), (told, wrong)
    assert msgspec.structs.replace(right, id="../x").validate() != ()
    assert msgspec.structs.replace(right, schema="unknot.manifest/2").validate() != ()


def test_a_manifest_is_itself_after_a_way_through_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(manifest(3)), type=Manifest) == manifest(3)
    assert newest_first([manifest(1), manifest(12), manifest(3)])[0].number == 12


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a"])
def test_a_path_that_leaves_the_folder_is_none(path: str) -> None:
    assert not is_plain_path(path)


def test_every_point_has_one_name() -> None:
    points = [*SAVE_POINTS, *COMMIT_POINTS, *SWEEP_POINTS]
    assert len(points) == len(set(points))
