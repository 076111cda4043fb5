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
    asked_of_run,
    how_shown,
    how_shown_alone,
    takes,
    wanted,
)
from unknot.supervisor.cli.output import Look, emit, look
from unknot.supervisor.cli.wanted import Wanted
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
@takes(asked_of_run, how_shown)
def status(asked: Wanted, shown: Look, *, json: Json = False) -> None:
    """One look at the run. Exit 0 if it is healthy, 1 if it stands or members have failed."""
    from unknot.supervisor.cli import command_status

    raise typer.Exit(command_status.status(asked, shown, as_json=json))


@app.command()
@takes(asked_of_run, how_shown)
def watch(
    asked: Wanted,
    shown: Look,
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
    json: Json = False,
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
    raise typer.Exit(command_watch.watch(asked, shown, options))


@app.command()
@takes(asked_of_run, how_shown)
def explain(
    asked: Wanted,
    shown: Look,
    *,
    incident: Annotated[
        str, typer.Argument(metavar="ID", help="An incident, the beginning of its id, or latest.")
    ],
    json: Json = False,
) -> None:
    """One incident in sentences: who waits for whom, what was done, how it ended."""
    from unknot.supervisor.cli import command_explain

    raise typer.Exit(command_explain.explain(incident, asked, shown, as_json=json))


@app.command()
@takes(how_shown_alone)
def replay(
    shown: Look,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace (docs/trace_format.md), or - for stdin.")],
    json: Json = False,
    until: Annotated[
        int | None, typer.Option("--until", metavar="LINE", min=1, help="Stop after this line.")
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Count and skip what cannot be, instead of refusing it.")
    ] = False,
) -> None:
    """Replay a recorded trace: its incidents, how it ended, lock orders that could deadlock. Exit 1 if it has incidents."""
    from unknot.supervisor.cli import command_replay

    options = command_replay.ReplayOptions(as_json=json, until=until, lenient=lenient)
    raise typer.Exit(command_replay.replay(file, options, shown))


@app.command()
@takes(asked_of_run, how_shown)
def graph(
    asked: Wanted,
    shown: Look,
    *,
    format: Annotated[  # noqa: A002
        Literal["text", "dot", "mermaid", "svg", "json"] | None,
        typer.Option("--format", "-o", help="What to write on stdout; text if nothing is said."),
    ] = None,
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
    json: Json = False,
) -> None:
    """A picture of who waits for whom: what is stuck and its neighbours. Of a live run it is the last word of each process."""
    from unknot.supervisor.cli import command_graph

    options = command_graph.GraphOptions(
        format=command_graph.chosen_format(format, as_json=json), trace=trace, until=until, everybody=everybody, limit=limit
    )
    raise typer.Exit(command_graph.draw(asked, options, shown))


@app.command()
@takes(how_shown_alone)
def diagnose(
    shown: Look,
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
) -> None:
    """Say why a run hung by the dumps of its ranks (NCCL or Gloo, pickle or JSON). Nothing in them is executed."""
    from unknot.supervisor.cli import command_diagnose

    options = command_diagnose.DiagnoseOptions(as_json=json, alike=tuple(alike or ()), world_size=world_size)
    raise typer.Exit(command_diagnose.show(folder, shown, options))


@app.command()
@takes(asked_of_run)
def record(
    asked: Wanted,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The trace to write; must not exist.", dir_okay=False)],
    for_: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="How long; else until the run ends or Ctrl-C.")
    ] = None,
) -> None:
    """Record a live run as a trace, to replay it elsewhere or to attach it to a report."""
    from unknot.supervisor.cli import command_record

    for_s = parse_duration(for_, name="--for") if for_ is not None else None
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
@takes(asked_of_run)
def daemon(asked: Wanted) -> None:
    """Run a monitor for the run until told to stop. Several may run: one leads, the others stand by."""
    from unknot.supervisor.cli import command_daemon

    raise typer.Exit(command_daemon.daemon(asked))


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
@takes(asked_of_run, how_shown)
def checkpoints_list(asked: Wanted, shown: Look, *, directory: Directory = None, json: Json = False) -> None:
    """The committed checkpoints, newest first, with sizes and whether all files are there."""
    from unknot.supervisor.cli import command_checkpoints

    raise typer.Exit(command_checkpoints.list_them(asked, directory, shown, as_json=json))


@checkpoints_app.command("show")
@takes(asked_of_run, how_shown)
def checkpoints_show(
    asked: Wanted,
    shown: Look,
    *,
    checkpoint: Annotated[str, typer.Argument(metavar="ID", help="A checkpoint, the beginning of its id, or latest.")],
    directory: Directory = None,
    json: Json = False,
) -> None:
    """One checkpoint: each rank's files, and where agents, mailboxes and weights were."""
    from unknot.supervisor.cli import command_checkpoints

    raise typer.Exit(command_checkpoints.show(checkpoint, asked, directory, shown, as_json=json))


@checkpoints_app.command("verify")
@takes(asked_of_run, how_shown)
def checkpoints_verify(
    asked: Wanted,
    shown: Look,
    *,
    checkpoint: Annotated[
        str, typer.Argument(metavar="ID", help="A checkpoint, the beginning of its id, latest, or all.")
    ] = "all",
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Read every file and compare it with its SHA-256. Exit 1 if one is damaged; each is named."""
    from unknot.supervisor.cli import command_checkpoints

    raise typer.Exit(command_checkpoints.verify(checkpoint, asked, directory, shown, as_json=json))


@help_app.command("exit-codes")
def help_exit_codes() -> None:
    """What each exit code means."""
    emit("".join(f"{code:>4}  {sentence}\n" for code, sentence in exit_codes.SENTENCES.items()))
