"""`supervisor daemon`: runs a monitor for one run until it is told to stop."""

from __future__ import annotations

from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.command_status import place_of
from unknot.supervisor.cli.connect import Target, connect, effective, target_of
from unknot.supervisor.cli.in_time import answered
from unknot.supervisor.cli.output import warn
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.config import EffectiveConfig


def daemon(wanted: Wanted) -> int:
    """Run the monitor; the exit code. Raises ConfigError, StoreUnavailable."""
    from unknot.supervisor.logs import configure_logs
    from unknot.supervisor.monitor.process import run_monitor

    settings = effective(wanted)
    warn(settings.warnings)
    target = answered(lambda: _reached(wanted, settings), limit_s=wanted.limit_s, where=place_of(settings))
    configure_logs(settings.config.log_level)
    run_monitor(target.url, target.run, settings.config)
    return exit_codes.OK


def _reached(wanted: Wanted, settings: EffectiveConfig) -> Target:
    target = target_of(wanted, settings)
    connect(target, limit_s=wanted.limit_s).close()
    return target
