"""The monitor as a process: `supervisor daemon`, or the child that a driver starts for its run."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback

import msgspec
import structlog

from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.config import Config
from unknot.supervisor.logs import configure_logs
from unknot.supervisor.monitor.shell import Monitor
from unknot.supervisor.process import MONITOR_ENV, MonitorSettings
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 8.0
_UNREACHABLE = 3  # the command's code for the same
_log = structlog.get_logger("unknot.monitor")


def run_monitor(redis_url: str, run: str, config: Config, *, stop: threading.Event | None = None) -> None:
    """Watch a run until `stop` is set, or the process is told to end by SIGTERM or SIGINT.

    Redis may come and go: the monitor waits for it, and takes over anew. So it does after any other failure of a turn.

    Raises:
        StoreUnavailable: Redis was not there at the start, or refuses what will not pass by itself (`lasting`).
        ConfigError: a webhook address or secret that cannot be used.
    """
    ended = stop if stop is not None else _ended_by_signal()
    limits = StoreLimits(retry_s=config.store_limit_s)
    with RedisStore.connect(redis_url, run, limits=limits) as store:
        for warning in store.warnings:
            _log.warning("monitor.store.warning", warning=warning)
        monitor = Monitor(store, config)
        monitor.start()
        try:
            _watch(monitor, ended)
        finally:
            monitor.stop()


def _watch(monitor: Monitor, ended: threading.Event) -> None:
    pause_s = _FIRST_PAUSE_S
    while not ended.is_set():
        try:
            monitor.run_once()
        except StoreUnavailable as error:
            if error.lasting:
                raise
            _log.warning("monitor.store.away", error=str(error), again_in_s=pause_s)
        except Exception as error:  # noqa: BLE001 - better a monitor that starts anew than none; it is told
            _log.error("monitor.turn.failed", error=repr(error), traceback=traceback.format_exc())
        else:
            pause_s = _FIRST_PAUSE_S
            continue
        ended.wait(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _ended_by_signal() -> threading.Event:
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended


def main() -> int:
    """Entry of the driver's child: settings come from the environment. The exit code, as of the command."""
    settings = msgspec.json.decode(os.environ[MONITOR_ENV], type=MonitorSettings)
    config = settings.config
    configure_logs(config.log_level)
    assert config.redis is not None
    try:
        run_monitor(config.redis, settings.run, config)
    except StoreUnavailable as error:
        _log.error("monitor.store.away", error=str(error))
        return _UNREACHABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
