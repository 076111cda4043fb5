"""Where the command writes: data to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Literal, TextIO

import msgspec

from unknot.graph.errors import UnknotError
from unknot.supervisor.cli.text import ASCII, UNICODE, Glyphs, Line, clean, clean_json, to_text, use_colour

VERBOSE: ContextVar[bool] = ContextVar("verbose", default=False)
ColourChoice = Literal["auto", "always", "never"]
# Sentences of incidents are written with these signs.
_PLAIN = str.maketrans({"→": "->", "…": "...", "·": "-"})


class OutputFailed(UnknotError):  # noqa: N818 - named after what happened, as in recovery/errors.py
    """What was to be written to stdout could not be."""

    why: str

    def __init__(self, *, why: str) -> None:
        super().__init__(why=why)

    def describe(self) -> str:
        """Why, and what to do."""
        return f"cannot write the output: {self.why}; give it a place that takes it"


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


def open_missing_streams() -> None:
    """Give each standard stream that was closed when the process began one that fails as a closed one does.

    Python has None in its place, and the next file or socket would get its number. Nobody reads a closed stderr, so that one swallows.
    """
    if sys.stdin is None:
        sys.stdin = open(os.open(os.devnull, os.O_WRONLY), encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")  # noqa: SIM115


def emit(text: str) -> bool:
    """Write data to stdout; False when its reader is gone, which is no error: nobody wants more. Raises OutputFailed."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
        return False
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        return emit(text.encode(encoding, "backslashreplace").decode(encoding))
    except OSError as error:
        silence(sys.stdout)
        raise OutputFailed(why=error.strerror or type(error).__name__) from error
    return True


def silence(stream: TextIO) -> None:
    """Give a stream that could not be written another end: the interpreter flushes it once more when it ends."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def reader_leaves(within_s: float) -> bool:
    """Wait `within_s` seconds, or until nobody reads stdout any more; whether that is so."""
    try:
        number = sys.stdout.fileno()
    except OSError:
        threading.Event().wait(within_s)
        return False
    poll = select.poll()
    poll.register(number, 0)  # without any event asked for, it tells of a broken pipe and of a terminal that was closed
    return bool(poll.poll(within_s * 1000))


def emit_lines(lines: Sequence[Line], *, shown: Look) -> bool:
    """Write lines to stdout."""
    text = to_text(lines, colour=shown.colour)
    return emit(text.translate(_PLAIN) if shown.glyphs is ASCII else text)


def emit_json(document: bytes) -> bool:
    """Write one line of JSON to stdout."""
    return emit(clean_json(document.decode()) + "\n")


def note(text: str) -> None:
    """One line on stderr, if it can be written: what happened does not change because nobody can be told."""
    _tell(f"{clean(text)}\n")


def note_traceback(error: BaseException) -> None:
    """The traceback of `error` on stderr."""
    import traceback

    told = "".join(traceback.format_exception(error))
    _tell("".join(f"{clean(one)}\n" for one in told.splitlines()))


def _tell(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def warn(warnings: Sequence[str]) -> None:
    """The warnings, one line each, on stderr."""
    for warning in warnings:
        note(f"warning: {warning}")
