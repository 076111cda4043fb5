"""Text that is safe for a terminal, and when it is coloured."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unknot.supervisor.cli.text import clean, line, span, table, to_text, use_colour, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("agent/rollout-3#2", "agent/rollout-3#2"),
        ("[bold red]x[/]", "[bold red]x[/]"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc\r", "a\\x0ab\\x09c\\x0d"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("Zürich → 日本", "Zürich → 日本"),
    ],
)
def test_what_could_act_on_a_terminal_is_made_visible(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text())
def test_no_text_can_start_an_escape_sequence_or_a_line(text: str) -> None:
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", clean(text))


@given(st.lists(st.lists(st.text(max_size=8), min_size=3, max_size=3), max_size=6))
def test_columns_of_a_table_begin_at_the_same_place(rows: list[list[str]]) -> None:
    lines = table([[span(cell) for cell in row] for row in rows])
    starts = {width("".join(part.text for part in one[:4])) for one in lines}
    assert len(starts) <= 1


def test_without_colour_there_are_no_escape_sequences() -> None:
    lines = [line(span("x", "bad"), " ", span("y", "good"))]
    assert to_text(lines, colour=False) == "x y\n"
    assert to_text(lines, colour=True) == "\x1b[1;31mx\x1b[0m \x1b[32my\x1b[0m\n"


@pytest.mark.parametrize(
    ("choice", "env", "is_tty", "coloured"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour_follows_the_option_then_the_environment_then_the_terminal(
    choice: str, env: dict[str, str], is_tty: bool, coloured: bool
) -> None:
    assert use_colour(choice, env, is_tty=is_tty) is coloured  # type: ignore[arg-type]
