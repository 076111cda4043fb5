"""A run that ends while it is looked at, and what can be asked about runs that have ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.cli.running import COMMAND, LIMIT_S, Run, only_line
from tests.cli.scene import Scene, deadlock
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.incidents import Incident
from unknot.supervisor.store.embedded import EmbeddedRedis, start_redis
from unknot.supervisor.store.kept_incidents import keep_incidents
from unknot.supervisor.store.location import REDIS_FILE, RedisFile
from unknot.supervisor.store.redis_store import RedisStore

RUN = "short"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The directory of runs of `base_env`."""
    return tmp_path / "runs"


@pytest.fixture
def private(runs: Path) -> Iterator[EmbeddedRedis]:
    """The private Redis of a run that lives on this machine."""
    with start_redis(runs / RUN) as server:
        with RedisStore.connect(server.url, RUN) as store:
            Scene(store).member("trainer/0")
        yield server


@pytest.fixture
def beside(base_env: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command beside the run, which it has to find."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([*COMMAND, *args], env=base_env, cwd=tmp_path, text=True, **streams))  # type: ignore[call-overload]
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def leave(runs: Path, run: str, *incidents: Incident, at: float) -> None:
    """As the driver does when it ends a run, before it stops the private Redis."""
    (runs / run).mkdir(parents=True, exist_ok=True)
    keep_incidents(runs / run, run=run, incidents=incidents, at=at)


def end(private: EmbeddedRedis, runs: Path, *incidents: Incident) -> None:
    with RedisStore.connect(private.url, RUN) as store:
        at = store.time()
    leave(runs, RUN, *incidents, at=at)
    private.stop()


def in_the_instant(runs: Path, *incidents: Incident) -> None:
    """The run has left what it leaves, its Redis takes nobody any more, and the process of that is still there."""
    with socket.create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
    me = psutil.Process(os.getpid())
    file = RedisFile(
        url=f"redis://127.0.0.1:{port}/0", pid=me.pid, create_time=me.create_time(), owner_pid=me.pid, owner_create_time=me.create_time()
    )
    leave(runs, RUN, *incidents, at=me.create_time() + 5)
    (runs / RUN / REDIS_FILE).write_bytes(msgspec.json.encode(file))


class TestWhileItEnds:
    @pytest.mark.parametrize("as_json", [False, True])
    def test_watch_says_that_it_has_ended_and_is_0(
        self, beside: Callable[..., subprocess.Popen[str]], private: EmbeddedRedis, runs: Path, as_json: bool
    ) -> None:
        process = beside("watch", "--interval", "250ms", *(["--json"] if as_json else []))
        assert process.stdout is not None
        assert "is live" in process.stdout.readline()
        end(private, runs, deadlock(RUN, at=100.0, state="resolved"))
        rest, stderr = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, stderr) == (exit_codes.OK, "")
        told = [item["text"] for one in rest.splitlines() for item in json.loads(one)["items"]] if as_json else rest.splitlines()
        assert any(text.endswith(f"run {RUN} is closed") for text in told)
        assert any("inc_a1 is resolved" in text for text in told)

    def test_watch_of_a_redis_that_is_gone_without_an_end_of_the_run_is_3(
        self, beside: Callable[..., subprocess.Popen[str]], private: EmbeddedRedis, runs: Path
    ) -> None:
        leave(runs, RUN, at=100.0)  # of an earlier run of this name
        process = beside("watch", "--interval", "250ms")
        assert process.stdout is not None
        process.stdout.readline()
        private.stop()
        _, stderr = process.communicate(timeout=LIMIT_S)
        assert process.returncode == exit_codes.UNREACHABLE
        assert "cannot use Redis" in only_line(stderr)

    def test_record_ends_with_it(
        self, beside: Callable[..., subprocess.Popen[str]], private: EmbeddedRedis, runs: Path, tmp_path: Path
    ) -> None:
        process = beside("record", "trace.jsonl")
        with RedisStore.connect(private.url, RUN) as store:
            while not (tmp_path / "trace.jsonl").exists() or not (tmp_path / "trace.jsonl").stat().st_size:
                assert process.poll() is None
                store.time()
        end(private, runs)
        _, stderr = process.communicate(timeout=LIMIT_S)
        assert process.returncode == exit_codes.OK, stderr
        assert f"events of run {RUN} are in trace.jsonl" in only_line(stderr)

    @pytest.mark.parametrize("command", ["status", "status --json", "graph", "watch -1", "record trace.jsonl"])
    def test_a_look_in_that_instant_is_3_and_says_where_to_ask(self, quick: Run, runs: Path, command: str) -> None:
        in_the_instant(runs, deadlock(RUN, at=100.0))
        done = quick(*command.split())
        assert (done.returncode, done.stdout) == (exit_codes.UNREACHABLE, "")
        assert only_line(done.stderr) == (
            f"error: run {RUN} has just ended and left 1 incident; see `supervisor explain latest --run {RUN}`"
        )

    def test_watch_in_that_instant_tells_the_end_and_is_0(self, quick: Run, runs: Path) -> None:
        in_the_instant(runs)
        done = quick("watch")
        assert (done.returncode, done.stderr) == (exit_codes.OK, "")
        assert f"run {RUN} is closed" in done.stdout

    def test_fail_on_counts_what_was_open_when_it_ended(self, quick: Run, runs: Path) -> None:
        in_the_instant(runs, deadlock(RUN, at=100.0))
        assert quick("watch", "--fail-on", "deadlock").returncode == exit_codes.FOUND

    def test_explain_in_that_instant_reads_what_it_left(self, quick: Run, runs: Path) -> None:
        leave(runs, "other", deadlock("other", at=9e9, name="inc_other"), at=9e9)
        in_the_instant(runs, deadlock(RUN, at=100.0))
        done = quick("explain", "latest")
        assert done.returncode == exit_codes.OK
        assert "inc_a1" in done.stdout
        assert done.stderr == f"run {RUN} has ended; this is what it left behind\n"


class TestAfterwards:
    def test_an_id_is_looked_for_in_all_runs_that_have_ended(self, quick: Run, runs: Path) -> None:
        leave(runs, "old", deadlock("old", at=100.0, name="inc_aa11"), at=100.0)
        leave(runs, "new", deadlock("new", at=200.0, name="inc_bb22"), at=200.0)
        (runs / "torn").mkdir()
        (runs / "torn" / "incidents.json").write_text("{")
        for name, run in {"inc_aa": "old", "inc_bb22": "new", "latest": "new"}.items():
            done = quick("explain", name)
            assert done.returncode == exit_codes.OK
            assert f"run {run}:" in done.stdout
            assert only_line(done.stderr) == f"run {run} has ended; this is what it left behind"

    def test_an_id_that_none_of_them_has_is_2_and_names_the_newest(self, quick: Run, runs: Path) -> None:
        leave(runs, "old", deadlock("old", at=100.0, name="inc_aa11"), at=100.0)
        leave(runs, "new", deadlock("new", at=200.0, name="inc_bb22"), at=200.0)
        done = quick("explain", "inc_c")
        assert done.returncode == exit_codes.USAGE
        assert only_line(done.stderr) == (
            "error: none of the 2 runs that have ended here has an incident 'inc_c'; newest: inc_bb22, inc_aa11; "
            "give one of these, or latest, or --run NAME of another run"
        )

    def test_a_beginning_in_several_runs_is_2_and_names_them(self, quick: Run, runs: Path) -> None:
        leave(runs, "old", deadlock("old", at=100.0, name="inc_aa11"), at=100.0)
        leave(runs, "new", deadlock("new", at=200.0, name="inc_ab22"), at=200.0)
        done = quick("explain", "inc_a")
        assert done.returncode == exit_codes.USAGE
        assert "the beginning of 2 incidents: inc_ab22, inc_aa11" in only_line(done.stderr)

    def test_the_directory_of_runs_is_the_one_of_the_settings(self, quick: Run, tmp_path: Path) -> None:
        (tmp_path / "supervisor.toml").write_text('run_dir = "elsewhere"\n')
        leave(tmp_path / "elsewhere", "old", deadlock("old", at=100.0), at=100.0)
        assert quick("explain", "latest", env={"SUPERVISOR_RUN_DIR": ""}).returncode == exit_codes.OK

    def test_latest_of_a_run_without_any_incident_is_an_answer(self, quick: Run, runs: Path) -> None:
        leave(runs, "calm", at=100.0)
        done = quick("explain", "latest")
        assert (done.returncode, done.stdout) == (exit_codes.OK, "no incident in run calm\n")
        done = quick("explain", "latest", "--json", "--run", "calm")
        assert (done.returncode, json.loads(done.stdout)["items"]) == (exit_codes.OK, [])

    def test_status_of_a_run_that_has_ended_says_so(self, quick: Run, runs: Path) -> None:
        leave(runs, "calm", at=100.0)
        done = quick("status", "--run", "calm")
        assert done.returncode == exit_codes.UNREACHABLE
        assert "run 'calm' has ended; see `supervisor explain latest --run calm`" in only_line(done.stderr)
