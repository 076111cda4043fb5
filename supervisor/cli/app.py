"""The command line.

Names, options and help. Each command's work is in its own module, imported when it runs.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.options import (
    Ascii,
    Colour,
    ConfigFile,
    Directory,
    Json,
    Redis,
    Run,
    Timeout,
    Verbose,
    wanted,
)
from unknot.supervisor.cli.output import VERBOSE, emit, look
from unknot.supervisor.config_values import parse_duration

app = typer.Typer(
    name="supervisor",
    help="Watch a training run, explain why it stands, and see what was done about it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
alerts_app = typer.Typer(help="Alerts.", no_args_is_help=True, rich_markup_mode=None)
checkpoints_app = typer.Typer(help="Checkpoints of the whole run.", no_args_is_help=True, rich_markup_mode=None)
help_app = typer.Typer(help="More about the command.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(alerts_app, name="alerts")
app.add_typer(checkpoints_app, name="checkpoints")
app.add_typer(help_app, name="help")

COMPLETE_VAR = "_SUPERVISOR_COMPLETE"
if COMPLETE_VAR in os.environ:
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()


class Shell(StrEnum):
    """Shells with completion."""

    bash = "bash"
    zsh = "zsh"
    fish = "fish"


def _version(value: bool) -> None:
    if value:
        from unknot import __version__

        emit(f"supervisor {__version__}\n")
        raise typer.Exit(exit_codes.OK)


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Watch a training run, explain why it stands, and see what was done about it."""


@app.command()
def status(
    *,
    redis: Redis = None,
    run: Run = None,
    json: Json = False,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """One look at the run. Exit 0 if it is healthy, 1 if it stands or members have failed."""
    from unknot.supervisor.cli import command_status

    asked = wanted(redis, run, config, timeout, verbose=verbose)
    shown = look(color, ascii_only=ascii)
    raise typer.Exit(command_status.status(asked, shown, as_json=json))


@app.command()
def watch(
    *,
    once: Annotated[bool, typer.Option("--once", "-1", help="One look, then end.")] = False,
    interval: Annotated[
        str, typer.Option("--interval", metavar="DURATION", help="Between looks, 250ms or more.")
    ] = "1s",
    fail_on: Annotated[
        Literal["deadlock"] | None, typer.Option("--fail-on", help="End with exit code 1 at the first one.")
    ] = None,
    no_alt_screen: Annotated[
        bool, typer.Option("--no-alt-screen", help="Keep the picture in the terminal's history.")
    ] = False,
    redis: Redis = None,
    run: Run = None,
    json: Json = False,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """Watch the run: a live picture on a terminal, one line per change elsewhere (JSON Lines with --json)."""
    from unknot.supervisor.cli import command_watch

    options = command_watch.WatchOptions(
        once=once,
        as_json=json,
        interval_s=command_watch.check_interval(parse_duration(interval, name="--interval")),
        fail_on=fail_on,
        alt_screen=not no_alt_screen,
    )
    asked = wanted(redis, run, config, timeout, verbose=verbose)
    shown = look(color, ascii_only=ascii)
    raise typer.Exit(command_watch.watch(asked, shown, options))


@app.command()
def explain(
    *,
    incident: Annotated[
        str, typer.Argument(metavar="ID", help="An incident, the beginning of its id, or latest.")
    ],
    redis: Redis = None,
    run: Run = None,
    json: Json = False,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """One incident in sentences: who waits for whom, what was done, how it ended."""
    from unknot.supervisor.cli import command_explain

    shown = look(color, ascii_only=ascii)
    raise typer.Exit(
        command_explain.explain(
            incident, wanted(redis, run, config, timeout, verbose=verbose), shown, as_json=json
        )
    )


@app.command()
def replay(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace (docs/trace_format.md), or - for stdin.")],
    json: Json = False,
    until: Annotated[
        int | None, typer.Option("--until", metavar="LINE", min=1, help="Stop after this line.")
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Count and skip what cannot be, instead of refusing it.")
    ] = False,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """Replay a recorded trace: its incidents, how it ended, lock orders that could deadlock. Exit 1 if it has incidents."""
    from unknot.supervisor.cli import command_replay

    VERBOSE.set(verbose)
    options = command_replay.ReplayOptions(as_json=json, until=until, lenient=lenient)
    raise typer.Exit(command_replay.replay(file, options, look(color, ascii_only=ascii)))


@app.command()
def graph(
    *,
    format: Annotated[  # noqa: A002
        Literal["text", "dot", "mermaid", "svg", "json"], typer.Option("--format", "-o", help="What to write on stdout.")
    ] = "text",
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="Of a recorded trace instead of a live run.")
    ] = None,
    until: Annotated[
        int | None, typer.Option("--until", metavar="LINE", min=1, help="Of a trace: as it was after this line.")
    ] = None,
    everybody: Annotated[
        bool, typer.Option("--all", help="Whoever waits or is waited for, not only what is stuck.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Show at most so many participants.")] = 40,
    redis: Redis = None,
    run: Run = None,
    json: Json = False,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """A picture of who waits for whom: what is stuck and its neighbours. Of a live run it is the last word of each process."""
    from unknot.supervisor.cli import command_graph

    asked = wanted(redis, run, config, timeout, verbose=verbose)
    options = command_graph.GraphOptions(
        format="json" if json else format, trace=trace, until=until, everybody=everybody, limit=limit
    )
    raise typer.Exit(command_graph.draw(asked, options, look(color, ascii_only=ascii)))


@app.command()
def diagnose(
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Flight-recorder dumps, one file for each rank.", file_okay=False)
    ],
    alike: Annotated[
        list[str] | None,
        typer.Option("--alike", metavar="SITE,SITE", help="Call sites that belong together; may be given again."),
    ] = None,
    world_size: Annotated[
        int,
        typer.Option("--world-size", metavar="N", min=0, max=1_000_000, help="How many ranks, where dumps do not tell."),
    ] = 0,
    json: Json = False,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """Say why a run hung by the dumps of its ranks (NCCL or Gloo, pickle or JSON). Nothing in them is executed."""
    from unknot.supervisor.cli import command_diagnose

    VERBOSE.set(verbose)
    options = command_diagnose.DiagnoseOptions(as_json=json, alike=tuple(alike or ()), world_size=world_size)
    raise typer.Exit(command_diagnose.show(folder, look(color, ascii_only=ascii), options))


@app.command()
def record(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The trace to write; must not exist.", dir_okay=False)],
    for_: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long; else until the run ends or Ctrl-C.")
    ] = None,
    redis: Redis = None,
    run: Run = None,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Record a live run as a trace, to replay it elsewhere or to attach it to a report."""
    from unknot.supervisor.cli import command_record

    for_s = parse_duration(for_, name="--for") if for_ is not None else None
    asked = wanted(redis, run, config, timeout, verbose=verbose)
    raise typer.Exit(command_record.record(file, asked, for_s=for_s))


@app.command()
def config(
    *,
    redis: Redis = None,
    json: Json = False,
    config: ConfigFile = None,
    color: Colour = "auto",
    verbose: Verbose = False,
) -> None:
    """The settings that hold, and where each came from. Secrets are masked."""
    from unknot.supervisor.cli import command_config

    asked = wanted(redis, None, config, "5s", verbose=verbose)
    shown = look(color, ascii_only=False)
    raise typer.Exit(command_config.show_config(asked, shown, as_json=json))


@app.command()
def daemon(
    *,
    redis: Redis = None,
    run: Run = None,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    verbose: Verbose = False,
) -> None:
    """Run a monitor for the run until told to stop. Several may run: one leads, the others stand by."""
    from unknot.supervisor.cli import command_daemon

    raise typer.Exit(command_daemon.daemon(wanted(redis, run, config, timeout, verbose=verbose)))


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """The completion script on stdout, to be sourced; nothing is installed."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="supervisor", complete_var=COMPLETE_VAR, shell=shell.value)
    emit(f"{script}\n")


@alerts_app.command("test")
def alerts_test(
    *,
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to send the test.")],
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="Else settings or SUPERVISOR_WEBHOOK_SECRET."),
    ] = None,
    run: Run = None,
    json: Json = False,
    timeout: Timeout = "15s",
    config: ConfigFile = None,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """Send one marked, signed test alert. Exit 0 if it was taken, 5 if not."""
    from unknot.supervisor.cli import command_alerts

    asked = wanted(None, run, config, timeout, verbose=verbose)
    shown = look(color, ascii_only=ascii)
    raise typer.Exit(command_alerts.alerts_test(url, secret_file, asked, shown, as_json=json))


@checkpoints_app.command("list")
def checkpoints_list(
    *,
    directory: Directory = None,
    redis: Redis = None,
    run: Run = None,
    json: Json = False,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """The committed checkpoints, newest first, with sizes and whether all files are there."""
    from unknot.supervisor.cli import command_checkpoints

    asked = wanted(redis, run, config, timeout, verbose=verbose)
    shown = look(color, ascii_only=ascii)
    raise typer.Exit(command_checkpoints.list_them(asked, directory, shown, as_json=json))


@checkpoints_app.command("show")
def checkpoints_show(
    *,
    checkpoint: Annotated[str, typer.Argument(metavar="ID", help="A checkpoint, the beginning of its id, or latest.")],
    directory: Directory = None,
    redis: Redis = None,
    run: Run = None,
    json: Json = False,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """One checkpoint: each rank's files, and where agents, mailboxes and weights were."""
    from unknot.supervisor.cli import command_checkpoints

    asked = wanted(redis, run, config, timeout, verbose=verbose)
    shown = look(color, ascii_only=ascii)
    raise typer.Exit(command_checkpoints.show(checkpoint, asked, directory, shown, as_json=json))


@checkpoints_app.command("verify")
def checkpoints_verify(
    *,
    checkpoint: Annotated[
        str, typer.Argument(metavar="ID", help="A checkpoint, the beginning of its id, latest, or all.")
    ] = "all",
    directory: Directory = None,
    redis: Redis = None,
    run: Run = None,
    json: Json = False,
    timeout: Timeout = "5s",
    config: ConfigFile = None,
    color: Colour = "auto",
    ascii: Ascii = False,  # noqa: A002
    verbose: Verbose = False,
) -> None:
    """Read every file and compare it with its SHA-256. Exit 1 if one is damaged; each is named."""
    from unknot.supervisor.cli import command_checkpoints

    asked = wanted(redis, run, config, timeout, verbose=verbose)
    shown = look(color, ascii_only=ascii)
    raise typer.Exit(command_checkpoints.verify(checkpoint, asked, directory, shown, as_json=json))


@help_app.command("exit-codes")
def help_exit_codes() -> None:
    """What each exit code means."""
    emit("".join(f"{code:>4}  {sentence}\n" for code, sentence in exit_codes.SENTENCES.items()))
