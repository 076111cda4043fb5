"""Where the command writes: data to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Literal

import msgspec

from unknot.supervisor.cli.text import ASCII, UNICODE, Glyphs, Line, clean, to_text, use_colour

VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)
ColourChoice = Literal["auto", "always", "never"]
# Sentences of incidents are written with these signs.
_PLAIN = str.maketrans({"→": "->", "…": "...", "·": "-"})


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """How text is shown."""

    colour: bool
    glyphs: Glyphs


def look(choice: ColourChoice, *, ascii_only: bool, env: Mapping[str, str] = os.environ) -> Look:
    """How to show text on this stdout: signs fall back to ASCII where its encoding has no others."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    plain = ascii_only or not encoding.startswith("utf")
    return Look(
        colour=use_colour(choice, env, is_tty=sys.stdout.isatty()),
        glyphs=ASCII if plain else UNICODE,
    )


def emit(text: str) -> bool:
    """Write data to stdout; False when its reader is gone, which is no error: nobody wants more."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more at exit; give it a place to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        return emit(text.encode(encoding, "backslashreplace").decode(encoding))
    return True


def emit_lines(lines: Sequence[Line], *, shown: Look) -> bool:
    """Write lines to stdout."""
    text = to_text(lines, colour=shown.colour)
    return emit(text.translate(_PLAIN) if shown.glyphs is ASCII else text)


def emit_json(document: bytes) -> bool:
    """Write one line of JSON to stdout."""
    return emit(document.decode() + "\n")


def note(text: str) -> None:
    """One line on stderr."""
    sys.stderr.write(f"{clean(text)}\n")
    sys.stderr.flush()


def warn(warnings: Sequence[str]) -> None:
    """The warnings, one line each, on stderr."""
    for warning in warnings:
        note(f"warning: {warning}")
