"""Logging of the supervisor's own processes: dotted event names with facts, on stderr.

For people where stderr is a terminal, JSON lines where it is not. A library must not set up logging for its
user, so only the command and the monitor's process call `configure_logs`.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

from unknot.graph.draw import visible


def configure_logs(level: str = "info", *, stream: TextIO | None = None, json: bool | None = None) -> None:
    """Set structlog up for this process.

    `level`: the lowest that is written (debug, info, warning, error). `stream`: stderr by default. `json`:
    whether lines are JSON; by default they are unless the stream is a terminal.
    """
    out = stream if stream is not None else sys.stderr
    as_json = json if json is not None else not out.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info if as_json else _leave,
            _leave if as_json else _visible,
            structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )


def _leave(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """The console renderer shows exceptions itself."""
    return event


def _visible(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Names come from outside: on a terminal they must not act."""
    return {key: visible(value) if isinstance(value, str) else value for key, value in event.items()}
