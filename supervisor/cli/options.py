"""The options that several commands share: the same spelling and meaning everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from unknot.supervisor.cli.output import VERBOSE
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
