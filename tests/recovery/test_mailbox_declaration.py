"""What no mailbox can be like is refused where it is declared, in one line that names the argument."""

from __future__ import annotations

from typing import Any

import pytest

from unknot.recovery.errors import ConfigError
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.weight_rights import declare_publishers

A, B = "agent/a", "agent/b"


class NoStore:
    """A declaration that is refused asks nothing of Redis."""

    run = "r"

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"store.{name} was used")


def refusal(name: Any = "q", **settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        Mailbox(name, NoStore(), NullRecorder(A, 1)).declare(**settings)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("capacity", "told"),
    [
        (0, "capacity=0 is too small; give at least 1"),
        (-1, "capacity=-1 is too small; give at least 1"),
        (True, "capacity=True is not a whole number; give a whole number, at least 1"),
        (2.5, "capacity=2.5 is not a whole number"),
        ("3", "capacity='3' is not a whole number"),
        (None, "capacity=None is not a whole number"),
        ([8], "capacity=[8] is not a whole number"),
        (2**70, "is too large; give at most 1000000000"),
        pytest.param(10**5000, "capacity=<int> is too large", id="no repr"),
    ],
)
def test_a_capacity_that_cannot_be_is_refused(capacity: object, told: str) -> None:
    text = refusal(capacity=capacity)
    assert text.startswith("mailbox q: ")
    assert told in text


@pytest.mark.parametrize("which", ["senders", "receivers"])
@pytest.mark.parametrize("given", [5, b"agent/a", {"agent/a"}, {"agent/a": 1}, object()])
def test_rights_that_are_no_names_are_refused(which: str, given: object) -> None:
    text = refusal(**{which: given})
    assert text.startswith(f"mailbox q: {which}=")
    assert "is no list of member names; use member names or patterns such as 'agent/*'" in text


@pytest.mark.parametrize("which", ["senders", "receivers"])
@pytest.mark.parametrize(
    "pattern", ["", " ", "agent", "/a", "agent/", "agent/a b", "agent/a#1", "agent/a/b", "/*", "agent/x/*", "?", "a[", 5, None]
)
def test_a_pattern_that_can_match_no_member_is_refused(which: str, pattern: object) -> None:
    given = pattern if isinstance(pattern, str) else ["agent/*", pattern]
    assert f"mailbox q: {which}: {pattern!r} can match no member (role/name)" in refusal(**{which: given})


@pytest.mark.parametrize(
    ("publishers", "told"),
    [
        (5, "publishers=5 is no list of member names; use member names or patterns"),
        ("judge", "publishers: 'judge' can match no member (role/name)"),
        (["trainer/*", ""], "publishers: '' can match no member (role/name)"),
        ([], "publishers=[] of weights w names nobody"),
        (None, "publishers=None of weights w names nobody"),
    ],
)
def test_publishers_of_weights_that_cannot_be_are_refused_too(publishers: Any, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declare_publishers(NoStore(), "w", publishers)
    assert told in str(caught.value)


@pytest.mark.parametrize("pattern", ["*", "agent*", "*a", "agent/*", "*/a", "agent/?", "a?b", "agent/[ab]*", "a[gx]ent/a", "agent/["])
def test_a_pattern_that_can_match_some_member_is_taken(pattern: str) -> None:
    with pytest.raises(AssertionError, match=r"store\.\w+ was used"):
        Mailbox("q", NoStore(), NullRecorder(A, 1)).declare(senders=pattern, receivers=(pattern,))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ack": "stpe"}, "ack='stpe' is unknown (did you mean step?); use one of step, manifest"),
        ({"ack": None}, "ack=None is unknown; use one of step, manifest"),
        ({"order": "orgin"}, "order='orgin' is unknown (did you mean origin?); use one of arrival, origin"),
        ({"order": ["origin"]}, "order=['origin'] is unknown; use one of arrival, origin"),
        ({"order": "origin"}, "origins=None with order='origin'"),
        ({"order": "origin", "origins": []}, "origins=[] with order='origin'"),
        ({"origins": [A]}, "origins=['agent/a'] with order='arrival'"),
        ({"order": "origin", "origins": [A, B, A]}, "origins: agent/a stands there twice; name each once"),
        ({"order": "origin", "origins": ["agent"]}, "'agent' is no member; name it role/name"),
        ({"order": "origin", "origins": [A, 7]}, "7 is no member; name it role/name"),
        ({"order": "origin", "origins": ["agent/*"]}, "origins: 'agent/*' is a pattern; name each member"),
        ({"order": "origin", "origins": A}, "origins='agent/a' is no list of member names; give a list"),
        ({"order": "origin", "origins": 3}, "origins=3 is no list of member names; give a list"),
    ],
)
def test_other_settings_that_cannot_be_are_refused(settings: dict[str, object], told: str) -> None:
    assert told in refusal(**settings)


@pytest.mark.parametrize("name", [5, None, "", "a b", "a/b", "x" * 201])
def test_what_cannot_name_a_mailbox_is_refused(name: object) -> None:
    assert "cannot name a mailbox; use 1 to 200 characters" in refusal(name)


def test_an_object_with_a_long_repr_of_many_lines_is_told_in_one_short_line() -> None:
    class Wide:
        def __repr__(self) -> str:
            return "row of numbers\n" * 1000

    assert len(refusal(capacity=Wide())) < 200
