"""Styled text as values: spans and lines, made safe before they reach a terminal.

Names come from users and travel through Redis, so any text may hold escape sequences, line breaks, or marks
that turn the reading direction. `clean` makes them visible; every span passes through it. No markup language
is used anywhere (rich gets finished spans), so brackets in a name mean nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

Style = Literal["plain", "head", "good", "warn", "bad", "dim"]
_ANSI: dict[Style, str] = {"plain": "", "head": "1", "good": "32", "warn": "33", "bad": "1;31", "dim": "2"}
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


class Span(msgspec.Struct, frozen=True):
    """A piece of text in one style. Build it with `span`, which makes the text safe."""

    text: str
    style: Style = "plain"


Line = tuple[Span, ...]


class Glyphs(msgspec.Struct, frozen=True, kw_only=True):
    """The signs that go with each word; colour and sign never stand alone."""

    good: str
    waiting: str
    dead: str
    knot: str
    arrow: str
    more: str


UNICODE = Glyphs(good="✓", waiting="…", dead="✗", knot="⛔", arrow="→", more="…")
ASCII = Glyphs(good="+", waiting="~", dead="x", knot="!", arrow="->", more="...")


def clean(text: str) -> str:
    """`text` with everything that could act on a terminal or hide itself written as an escape."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(char) if unicodedata.category(char) in _UNSAFE else char for char in text)


def clean_json(text: str) -> str:
    """The same JSON, with everything that could act on a terminal written as JSON's own escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if unicodedata.category(char) in _UNSAFE else char for char in text)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _visible(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def span(text: object, style: Style = "plain") -> Span:
    """A safe piece of text."""
    return Span(clean(str(text)), style)


def line(*parts: Span | str) -> Line:
    """A line of spans; plain strings are made safe."""
    return tuple(part if isinstance(part, Span) else span(part) for part in parts)


def width(text: str) -> int:
    """The columns that `text` takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def table(rows: Sequence[Sequence[Span]], *, gap: int = 2) -> tuple[Line, ...]:
    """Rows with aligned columns; the last column is not padded."""
    if not rows:
        return ()
    count = max(len(row) for row in rows)
    widths = [max((width(row[i].text) for row in rows if i < len(row)), default=0) for i in range(count)]
    return tuple(_row(row, widths, gap) for row in rows)


def _row(row: Sequence[Span], widths: Sequence[int], gap: int) -> Line:
    cells: list[Span] = []
    for index, cell in enumerate(row):
        cells.append(cell)
        if index < len(row) - 1:
            cells.append(Span(" " * (widths[index] - width(cell.text) + gap)))
    return tuple(cells)


def to_text(lines: Iterable[Line], *, colour: bool) -> str:
    """The lines as one text for a terminal (`colour`) or a file."""
    return "".join(f"{''.join(_shown(part, colour=colour) for part in one).rstrip(' ')}\n" for one in lines)


def _shown(part: Span, *, colour: bool) -> str:
    code = _ANSI[part.style]
    return f"\x1b[{code}m{part.text}\x1b[0m" if colour and code and part.text else part.text


def use_colour(choice: Literal["auto", "always", "never"], env: Mapping[str, str], *, is_tty: bool) -> bool:
    """Whether to colour: the option, then NO_COLOR and FORCE_COLOR (when not empty), then the terminal."""
    if choice != "auto":
        return choice == "always"
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return True
    return is_tty and env.get("TERM") != "dumb"
