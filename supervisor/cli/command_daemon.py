"""`supervisor daemon`: runs a monitor for one run until it is told to stop."""

from __future__ import annotations

from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.connect import effective, target_of
from unknot.supervisor.cli.output import warn
from unknot.supervisor.cli.wanted import Wanted


def daemon(wanted: Wanted) -> int:
    """Run the monitor; the exit code. Raises ConfigError, StoreUnavailable."""
    from unknot.supervisor.logs import configure_logs
    from unknot.supervisor.monitor.process import run_monitor

    settings = effective(wanted)
    warn(settings.warnings)
    target = target_of(wanted, settings)
    configure_logs(settings.config.log_level)
    run_monitor(target.url, target.run, settings.config)
    return exit_codes.OK
