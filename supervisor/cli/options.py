"""The options that several commands share: the same spelling and meaning everywhere."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from unknot.supervisor.cli.output import VERBOSE, Look, look
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.config_values import parse_duration
from unknot.supervisor.store.location import validate_run_name

Redis = Annotated[
    str | None,
    typer.Option(
        "--redis", metavar="URL", help="Address of Redis. Else settings, else found on this machine."
    ),
]
Run = Annotated[
    str | None,
    typer.Option("--run", "-r", metavar="NAME", help="The run. Else SUPERVISOR_RUN, else the only live one."),
]
Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, as documented in docs/operations.md.")]
Timeout = Annotated[
    str,
    typer.Option(
        "--timeout", metavar="DURATION", help="How long Redis or a receiver may take, such as 500ms or 5s."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="Settings from this file instead of searching one.", dir_okay=False
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show tracebacks.")]
Colour = Annotated[
    Literal["auto", "always", "never"], typer.Option("--color", help="NO_COLOR and FORCE_COLOR are honoured.")
]
Ascii = Annotated[bool, typer.Option("--ascii", help="Letters instead of signs.")]

Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The checkpoints in this directory, without Redis.", file_okay=False),
]


def wanted(redis: str | None, run: str | None, config: Path | None, timeout: str, *, verbose: bool) -> Wanted:
    """The common options as one value; remembers `verbose` for errors. Raises ConfigError."""
    VERBOSE.set(verbose)
    if run is not None:
        validate_run_name(run)
    return Wanted(redis=redis, run=run, config_file=config, limit_s=parse_duration(timeout, name="--timeout"))


def asked_of_run(
    *, redis: Redis = None, run: Run = None, timeout: Timeout = "5s", config: ConfigFile = None, verbose: Verbose = False
) -> Wanted:
    """Which run, and how to reach it."""
    return wanted(redis, run, config, timeout, verbose=verbose)


def how_shown(*, color: Colour = "auto", ascii: Ascii = False) -> Look:  # noqa: A002
    """How text is shown."""
    return look(color, ascii_only=ascii)


def how_shown_alone(*, color: Colour = "auto", ascii: Ascii = False, verbose: Verbose = False) -> Look:  # noqa: A002
    """How text is shown, by a command that asks for no run."""
    VERBOSE.set(verbose)
    return look(color, ascii_only=ascii)


def takes(*makers: Callable[..., object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `makers` behind its own; it gets what each makes of them as its first arguments.

    typer reads a command's options from its signature and has no other way to share them, so the signature is put together here.
    """
    shared = [tuple(inspect.signature(maker, eval_str=True).parameters.values()) for maker in makers]

    def around(command: Callable[..., None]) -> Callable[..., None]:
        own = tuple(inspect.signature(command, eval_str=True).parameters.values())[len(makers) :]

        def run(**given: Any) -> None:
            made = [
                maker(**{one.name: given.pop(one.name) for one in options}) for maker, options in zip(makers, shared, strict=True)
            ]
            command(*made, **given)

        options = (*own, *itertools.chain.from_iterable(shared))
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in options}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return around
