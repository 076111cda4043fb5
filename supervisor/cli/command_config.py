"""`supervisor config`: every setting that holds, and where it came from."""

from __future__ import annotations

import time

from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.connect import effective
from unknot.supervisor.cli.json_output import document
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, warn
from unknot.supervisor.cli.text import Span, span, table
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.config import ORIGIN_DEFAULT, Setting, settings


def show_config(wanted: Wanted, shown: Look, *, as_json: bool) -> int:
    """Show the settings, secrets masked. Raises ConfigError."""
    found = effective(wanted)
    warn(found.warnings)
    if as_json:
        emit_json(document("config", settings(found), at=time.time(), problems=()))
    else:
        emit_lines(table([_row(setting) for setting in settings(found)]), shown=shown)
    return exit_codes.OK


def _row(setting: Setting) -> list[Span]:
    value = "-" if setting.value is None else setting.value
    style = "dim" if setting.origin == ORIGIN_DEFAULT else "plain"
    return [
        span(setting.key, "head"),
        span(value),
        span(setting.origin, "dim" if style == "dim" else "plain"),
    ]
