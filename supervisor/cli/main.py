"""The entry point, and the one place where errors become a line and an exit code."""

from __future__ import annotations

import errno
import os
import sys

from unknot.graph.errors import TraceError, UnknotError
from unknot.recovery.errors import ConfigError, RunBusy, StoreUnavailable
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.output import (
    VERBOSE,
    OutputFailed,
    note,
    note_traceback,
    open_missing_streams,
    silence,
)

_CODES: dict[type[UnknotError], int] = {
    ConfigError: exit_codes.USAGE,
    TraceError: exit_codes.USAGE,
    StoreUnavailable: exit_codes.UNREACHABLE,
    RunBusy: exit_codes.FAILED,
    OutputFailed: exit_codes.FAILED,
}
# How a stream says that it takes no more. An error of a file names the file, and only help is written by somebody else than `emit`.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO)


def main() -> None:
    """Run the command line and exit."""
    VERBOSE.set(False)
    open_missing_streams()
    try:
        try:
            from unknot.supervisor.cli.app import app
        except ImportError as error:
            if error.name != "typer":
                raise
            raise ConfigError(what="the command needs typer", todo="pip install 'unknot[cli]'") from error
        from unknot.supervisor.cli.usage import run_app

        sys.exit(run_app(app, "supervisor"))
    except UnknotError as error:
        sys.exit(_report(error))
    except KeyboardInterrupt:
        sys.exit(exit_codes.INTERRUPTED)
    except OSError as error:
        sys.exit(_report_not_written(error))
    except Exception as error:  # noqa: BLE001  (the last frame of the command: told in full with -v)
        sys.exit(_report_surprise(error))


def _report(error: UnknotError) -> int:
    if VERBOSE.get():
        note_traceback(error)
    note(f"error: {error}")
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), exit_codes.FAILED)


def _report_not_written(error: OSError) -> int:
    if error.filename is not None or error.errno not in _NOT_WRITTEN:
        return _report_surprise(error)
    silence(sys.stdout)
    return _report(OutputFailed(why=os.strerror(error.errno)))


def _report_surprise(error: Exception) -> int:
    if VERBOSE.get() or os.environ.get("SUPERVISOR_LOG_LEVEL") == "debug":
        note_traceback(error)
    note(
        f"error: this should not happen ({type(error).__name__}: {error}); run it again with -v and report it"
    )
    return exit_codes.FAILED


if __name__ == "__main__":
    main()
