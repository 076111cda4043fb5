"""A mistake in the arguments as one line of ours, instead of the four of the library that parses them."""

from __future__ import annotations

import re
from typing import Any

import typer

from unknot.recovery.errors import ConfigError
from unknot.recovery.values import suggestion
from unknot.supervisor.cli import exit_codes

# typer has no public name for what all its errors of usage are, and carries its own copy of click or not, by version.
_UsageError: type[Any] = typer.BadParameter.__mro__[1]
_NOT_ONE_OF = re.compile(r"'([^']*)' is not (?:one of )?('.*)")
_MEANT = re.compile(r"(?:\.? Did you mean '?([^'?]*)'?\?| \(Possible options: ([^)]*)\))$")
_QUOTED = re.compile(r"'([^']*)'")
# What the library's words mean to who typed the command.
_PLAIN = (
    ("Value error, ", ""),
    ("Input should be greater than or equal to ", "give at least "),
    ("Input should be less than or equal to ", "give at most "),
    ("Input should be a valid integer, unable to parse string as an integer", "give a whole number"),
)


def run_app(app: typer.Typer, name: str) -> int:
    """Run the command line; its exit code.

    Raises:
        ConfigError: a mistake in the arguments.
        KeyboardInterrupt: the user gave up at a prompt.
    """
    try:
        code = app(prog_name=name, standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except SystemExit as ended:
        # The library ends with 1 when nobody reads its help to the end, which is no error.
        if isinstance(ended.__context__, BrokenPipeError):
            return exit_codes.OK
        raise
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            return exit_codes.USAGE
        where = error.ctx.command_path if error.ctx is not None else name
        raise ConfigError(what=f"{where}: {_told(error)}", todo=f"see '{where} --help'") from None
    return code if isinstance(code, int) else exit_codes.OK


def _told(error: Any) -> str:
    text = " ".join(error.format_message().split()).rstrip(".")
    text = _MEANT.sub(lambda found: f" (did you mean {found[1] or found[2]}?)", text)
    for theirs, ours in _PLAIN:
        text = text.replace(theirs, ours)
    if wrong := _NOT_ONE_OF.search(text):
        text += suggestion(wrong[1], _QUOTED.findall(wrong[2]))
    return text[:1].lower() + text[1:]
