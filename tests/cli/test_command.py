"""The command as users and scripts meet it: a real process, its two streams, and its exit code."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest
from pytest_httpserver import HTTPServer
from standardwebhooks.webhooks import Webhook

from tests.cli.scene import Scene, deadlock
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.main import main
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "unknot.supervisor.cli.main"]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwqpPbS1/3EBc="
LIMIT_S = 60

Done = subprocess.CompletedProcess[str]


class Run(Protocol):
    def __call__(
        self, *args: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def base_env(tmp_path: Path) -> dict[str, str]:
    """An environment without settings of whoever runs the tests, and with no run on this machine."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SUPERVISOR_", "UNKNOT_"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PYTHONUTF8": "1",
        "SUPERVISOR_RUN_DIR": str(tmp_path / "runs"),
        "XDG_STATE_HOME": str(tmp_path),
    }


@pytest.fixture
def bare(base_env: dict[str, str], tmp_path: Path) -> Run:
    """Runs the command in a process of its own, without any address."""

    def run(*args: str, env: Mapping[str, str] | None = None) -> Done:
        return subprocess.run(
            [*COMMAND, *args],
            env={**base_env, **(env or {})},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return run


@pytest.fixture
def quick(
    base_env: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """As `bare`, but in this process: where a process of its own proves nothing more."""

    def run(*args: str, env: Mapping[str, str] | None = None) -> Done:
        with monkeypatch.context() as patch:
            for name in set(os.environ) - set(base_env):
                patch.delenv(name)
            for name, value in {**base_env, **(env or {})}.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["supervisor", *args])
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(args, ended.value.code, out, err)

    return run


def at_run(run: Run, redis_url: str, name: str) -> Run:
    """The same for one run."""

    def at(*args: str, env: Mapping[str, str] | None = None) -> Done:
        return run(*args, env={"SUPERVISOR_REDIS": redis_url, "SUPERVISOR_RUN": name, **(env or {})})

    return at


@pytest.fixture
def supervisor(bare: Run, redis_url: str, store: RedisStore) -> Run:
    """Runs the command in a process of its own, for the run of this test."""
    return at_run(bare, redis_url, store.run)


@pytest.fixture
def quickly(quick: Run, redis_url: str, store: RedisStore) -> Run:
    """Runs the command in this process, for the run of this test."""
    return at_run(quick, redis_url, store.run)


@pytest.fixture
def spawn(
    base_env: dict[str, str], redis_url: str, store: RedisStore
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command and leaves it running."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str, **more: Any) -> subprocess.Popen[str]:
        env = {**base_env, "SUPERVISOR_REDIS": redis_url, "SUPERVISOR_RUN": store.run}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        # Whoever runs the tests in the background of a shell has the interrupt ignored, and children inherit that.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            started.append(subprocess.Popen([*COMMAND, *args], env=env, text=True, **streams))
        finally:
            signal.signal(signal.SIGINT, before)
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def only_line(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


class TestStatus:
    def test_a_healthy_run_is_0(self, supervisor: Run, store: RedisStore) -> None:
        Scene(store).member("trainer/0")
        done = supervisor("status")
        assert (done.returncode, done.stderr) == (exit_codes.OK, "")
        assert "healthy" in done.stdout
        assert "\x1b" not in done.stdout

    def test_an_open_deadlock_is_1_and_json_says_it(self, supervisor: Run, store: RedisStore) -> None:
        Scene(store).knot()
        done = supervisor("status", "--json")
        assert (done.returncode, done.stderr) == (exit_codes.FOUND, "")
        document = json.loads(only_line(done.stdout))
        assert list(document)[:4] == ["schema", "generated_at", "partial", "items"]
        assert document["schema"] == "supervisor.status/1"
        assert document["partial"] is False
        assert document["generated_at"].endswith("Z")
        kinds = [item["item"] for item in document["items"]]
        assert kinds == ["run", "member", "member", "wait", "wait", "incident", "action"]
        wait = document["items"][3]
        assert wait["holders"] == ["agent/b#1"]
        assert 42 <= wait["age_s"] < 120

    def test_a_failed_member_is_1(self, quickly: Run, store: RedisStore) -> None:
        Scene(store).member("agent/a", state="dead")
        assert quickly("status").returncode == exit_codes.FOUND

    def test_what_is_empty_is_an_empty_list(self, quickly: Run, store: RedisStore) -> None:
        Scene(store).incident(deadlock(store.run, at=store.time(), state="resolved"))
        document = json.loads(quickly("status", "--json").stdout)
        incident = next(item for item in document["items"] if item["item"] == "incident")
        assert incident["stacks"] == {}
        assert document["problems"] == []

    def test_incomplete_data_is_4_and_says_so_on_both_streams(self, quickly: Run, store: RedisStore) -> None:
        scene = Scene(store)
        scene.member("agent/a")
        store.command("HSET", store.key("proc", "agent/a#1"), "full", b"\xc1")
        done = quickly("status", "--json")
        assert done.returncode == exit_codes.INCOMPLETE
        assert json.loads(done.stdout)["partial"] is True
        assert "the record of agent/a#1 cannot be read" in only_line(done.stderr)

    def test_it_loads_nothing_heavy(
        self, base_env: dict[str, str], store: RedisStore, redis_url: str
    ) -> None:
        Scene(store).knot()
        code = (
            "import sys\n"
            "from unknot.supervisor.cli import main\n"
            f"sys.argv = ['supervisor', 'status', '--redis', {redis_url!r}, '--run', {store.run!r}]\n"
            "try:\n    main.main()\n"
            "except SystemExit:\n    pass\n"
            "heavy = ['torch', 'ray', 'networkx', 'textual', 'httpx2', 'structlog', 'rich', 'standardwebhooks']\n"
            "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=base_env,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        assert done.stdout.startswith(f"run {store.run}")
        assert done.stderr == "[]\n"

    def test_a_reader_that_leaves_is_no_error(
        self, spawn: Callable[..., subprocess.Popen[str]], store: RedisStore
    ) -> None:
        Scene(store).member("trainer/0")
        reader, writer = os.pipe()
        process = spawn("status", stdout=writer)
        os.close(writer)
        os.close(reader)
        _, stderr = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, stderr) == (exit_codes.OK, "")

    def test_ascii_holds_no_other_signs(self, quickly: Run, store: RedisStore) -> None:
        Scene(store).knot()
        assert quickly("status", "--ascii").stdout.isascii()

    def test_a_stdout_without_unicode_gets_ascii(self, supervisor: Run, store: RedisStore) -> None:
        Scene(store).knot()
        done = supervisor("status", env={"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
        assert done.returncode == exit_codes.FOUND
        assert done.stdout.isascii()

    def test_colour_can_be_forced(self, quickly: Run, store: RedisStore) -> None:
        Scene(store).knot()
        assert "\x1b[1;31m" in quickly("status", "--color", "always").stdout

    def test_the_only_run_of_this_machine_is_found(
        self, quick: Run, base_env: dict[str, str], tmp_path: Path
    ) -> None:
        (tmp_path / "supervisor.toml").write_text('run_dir = "elsewhere"\n')
        with start_redis(tmp_path / "elsewhere" / "only-one") as server:
            with RedisStore.connect(server.url, "only-one") as other:
                Scene(other)
            done = quick("status", env={"SUPERVISOR_RUN_DIR": ""})
        assert (done.returncode, done.stderr) == (exit_codes.OK, "")
        assert done.stdout.startswith("run only-one")


class TestErrors:
    def test_a_redis_that_is_not_there_is_3_in_one_line_without_the_password(self, bare: Run) -> None:
        done = bare("status", "--redis", "redis://:geheim@127.0.0.1:1", "--run", "x", "--timeout", "500ms")
        assert (done.returncode, done.stdout) == (exit_codes.UNREACHABLE, "")
        assert "127.0.0.1:1" in only_line(done.stderr)
        assert "geheim" not in done.stderr
        assert "Traceback" not in done.stderr

    @pytest.mark.parametrize(
        ("tail", "said"),
        [("/0?bogus=1", "option 'bogus'"), ("/0?db=x", "db="), ("/abc", "no number of a database"), ("/0#x", "%23")],
    )
    def test_an_address_with_a_part_that_cannot_be_is_2_in_one_line_without_the_password(
        self, quick: Run, tail: str, said: str
    ) -> None:
        done = quick("status", "--redis", f"redis://:geheim@127.0.0.1:1{tail}", "--run", "x")
        assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
        assert said in only_line(done.stderr)
        assert "geheim" not in done.stderr

    def test_with_v_there_is_a_traceback(self, quick: Run) -> None:
        done = quick("status", "-v", "--redis", "redis://127.0.0.1:1", "--run", "x", "--timeout", "500ms")
        assert done.returncode == exit_codes.UNREACHABLE
        assert "Traceback" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("error: ")

    def test_no_address_and_no_run_on_this_machine_is_3_and_says_what_to_give(self, bare: Run) -> None:
        done = bare("status")
        assert done.returncode == exit_codes.UNREACHABLE
        assert "--redis URL" in only_line(done.stderr)

    def test_an_unknown_run_is_2_and_the_live_ones_are_named(self, quickly: Run, store: RedisStore) -> None:
        Scene(store)
        done = quickly("status", "--run", "nowhere")
        assert done.returncode == exit_codes.USAGE
        assert store.run in only_line(done.stderr) or "more" in done.stderr

    def test_more_than_one_live_run_is_2_and_they_are_named(
        self, quickly: Run, redis_url: str, store: RedisStore
    ) -> None:
        Scene(store)
        with RedisStore.connect(redis_url, f"{store.run}-b") as other:
            Scene(other)
            done = quickly("status", env={"SUPERVISOR_RUN": ""})
            other.command("HSET", other.key("run"), "state", "closed")
        assert done.returncode == exit_codes.USAGE
        assert "more than one run is live" in only_line(done.stderr)

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (("status", "--bad"), "--bad"),
            (("nothing",), "nothing"),
            (("watch", "--interval", "100ms"), "too short"),
            (("watch", "--interval", "1"), "has no unit"),
            (("status", "--timeout", "soon"), "is not a duration"),
            (("status", "--config", "nowhere.toml"), "nowhere.toml"),
            (("status", "--run", "a b"), "a-b"),
        ],
    )
    def test_a_mistake_in_the_arguments_is_2_with_nothing_on_stdout(
        self, quickly: Run, args: tuple[str, ...], said: str
    ) -> None:
        done = quickly(*args)
        assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
        assert said in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_misspelt_variable_is_a_warning_on_stderr(self, supervisor: Run, store: RedisStore) -> None:
        Scene(store)
        done = supervisor("status", "--json", env={"SUPERVISOR_LEESE_S": "3"})
        assert done.returncode == exit_codes.OK
        assert "did you mean SUPERVISOR_LEASE_S?" in only_line(done.stderr)
        json.loads(only_line(done.stdout))


class TestExplain:
    def test_latest_a_whole_id_and_a_unique_beginning_are_taken(
        self, quickly: Run, store: RedisStore
    ) -> None:
        scene = Scene(store)
        scene.incident(deadlock(store.run, at=scene.now - 100, name="inc_aa11"))
        scene.incident(deadlock(store.run, at=scene.now, name="inc_ab22"))
        for name, wanted in {"latest": "inc_ab22", "inc_aa11": "inc_aa11", "inc_aa": "inc_aa11"}.items():
            done = quickly("explain", name)
            assert (done.returncode, done.stderr) == (exit_codes.OK, "")
            assert wanted in done.stdout.splitlines()[0]

    def test_a_beginning_of_several_is_2_and_names_them(self, quickly: Run, store: RedisStore) -> None:
        scene = Scene(store)
        scene.incident(deadlock(store.run, at=scene.now, name="inc_aa11"))
        scene.incident(deadlock(store.run, at=scene.now, name="inc_ab22"))
        done = quickly("explain", "inc_a")
        assert done.returncode == exit_codes.USAGE
        assert "inc_aa11" in done.stderr
        assert "inc_ab22" in done.stderr

    def test_a_run_without_incidents_says_so(self, quickly: Run, store: RedisStore) -> None:
        Scene(store)
        done = quickly("explain", "latest")
        assert done.returncode == exit_codes.USAGE
        assert "has no incident" in only_line(done.stderr)

    def test_json_holds_the_whole_incident_with_stacks(self, quickly: Run, store: RedisStore) -> None:
        Scene(store).knot()
        document = json.loads(only_line(quickly("explain", "latest", "--json").stdout))
        assert document["schema"] == "supervisor.explain/1"
        (incident,) = document["items"]
        assert incident["stacks"] == {"agent/a#1": ["agents.py:31 in act", "agents.py:9 in run"]}
        assert [line["culprit"] for line in incident["lines"]] == [False, True]


class TestWatch:
    def test_once_shows_the_picture_and_ends(self, supervisor: Run, store: RedisStore) -> None:
        Scene(store).knot()
        done = supervisor("watch", "-1")
        assert (done.returncode, done.stderr) == (exit_codes.OK, "")
        assert "INCIDENTS (1)" in done.stdout

    def test_once_with_json_is_one_document(self, quickly: Run, store: RedisStore) -> None:
        Scene(store).knot()
        document = json.loads(only_line(quickly("watch", "--once", "--json").stdout))
        assert document["schema"] == "supervisor.watch/1"

    def test_without_a_terminal_each_change_is_a_line_until_the_run_ends(
        self, spawn: Callable[..., subprocess.Popen[str]], store: RedisStore
    ) -> None:
        scene = Scene(store)
        scene.member("trainer/0")
        process = spawn("watch", "--interval", "250ms")
        assert process.stdout is not None
        head = [process.stdout.readline() for _ in range(3)]
        assert [line.split("  ", 1)[1] for line in head] == [
            f"run {store.run} is live\n",
            "no monitor leads\n",
            "member trainer/0#1 is alive\n",
        ]
        scene.member("trainer/0", state="dead", error="SIGKILL")
        assert process.stdout.readline().endswith("  member trainer/0#1 is dead (SIGKILL)\n")
        scene.run_state("closed")
        rest, stderr = process.communicate(timeout=LIMIT_S)
        assert rest.endswith(f"  run {store.run} is closed\n")
        assert (process.returncode, stderr) == (exit_codes.OK, "")

    def test_fail_on_deadlock_ends_with_1_at_the_first_one(
        self, spawn: Callable[..., subprocess.Popen[str]], store: RedisStore
    ) -> None:
        scene = Scene(store)
        process = spawn("watch", "--interval", "250ms", "--fail-on", "deadlock", "--json")
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["schema"] == "supervisor.change/1"
        scene.incident(deadlock(store.run, at=scene.now, cause="slow", name="inc_slow"))
        assert json.loads(process.stdout.readline())["items"][0]["id"] == "inc_slow"
        scene.knot()
        rest, _ = process.communicate(timeout=LIMIT_S)
        told = [item for one in rest.splitlines() for item in json.loads(one)["items"]]
        assert ("incident", "inc_a1") in [(item["what"], item["id"]) for item in told]
        assert process.returncode == exit_codes.FOUND

    def test_an_interrupt_from_the_keyboard_is_130(
        self, spawn: Callable[..., subprocess.Popen[str]], store: RedisStore
    ) -> None:
        Scene(store)
        process = spawn("watch")
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=LIMIT_S)
        assert process.returncode == exit_codes.INTERRUPTED
        assert "Traceback" not in stderr

    def test_a_redis_that_goes_away_is_3(
        self, spawn: Callable[..., subprocess.Popen[str]], tmp_path: Path
    ) -> None:
        with start_redis(tmp_path / "redis") as server, RedisStore.connect(server.url, "gone") as other:
            Scene(other)
            process = spawn(
                "watch", "--interval", "250ms", "--timeout", "500ms", "--redis", server.url, "--run", "gone"
            )
            assert process.stdout is not None
            process.stdout.readline()
        _, stderr = process.communicate(timeout=LIMIT_S)
        assert process.returncode == exit_codes.UNREACHABLE
        assert "cannot use Redis" in stderr.splitlines()[-1]

    @pytest.mark.parametrize("more", [(), ("--no-alt-screen",)])
    def test_on_a_terminal_it_draws_and_leaves_the_last_picture(
        self, spawn: Callable[..., subprocess.Popen[str]], store: RedisStore, more: tuple[str, ...]
    ) -> None:
        scene = Scene(store)
        scene.knot()
        terminal, inner = pty.openpty()
        process = spawn("watch", "--interval", "250ms", *more, stdout=inner, stdin=inner)
        os.close(inner)
        seen = read_until(terminal, "agent/a#1")
        scene.run_state("closed")
        seen += read_until(terminal, None)
        os.close(terminal)
        process.wait(LIMIT_S)
        assert process.returncode == exit_codes.OK
        assert ("\x1b[?1049h" in seen) is not bool(more)
        assert "interrupt agent/b#1" in seen[seen.rfind("MEMBERS (2)") :]


def read_until(terminal: int, mark: str | None) -> str:
    """What the terminal shows until `mark`, or until the process has closed it."""
    seen, deadline = b"", time.monotonic() + LIMIT_S
    while mark is None or mark.encode() not in seen:
        assert time.monotonic() < deadline, seen
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
    return seen.decode(errors="replace")


class TestOthers:
    def test_config_shows_values_and_origins_and_no_secret(self, quick: Run, tmp_path: Path) -> None:
        (tmp_path / "supervisor.toml").write_text(
            'lease_s = "9s"\nwebhook_url = "https://hooks.example/T0/geheim"\n'
        )
        done = quick(
            "config", "--json", env={"SUPERVISOR_WEBHOOK_SECRET": SECRET, "SUPERVISOR_HEARTBEAT_S": "2"}
        )
        assert done.returncode == exit_codes.OK
        items = {item["key"]: item for item in json.loads(done.stdout)["items"]}
        assert (items["lease_s"]["value"], items["lease_s"]["origin"]) == (
            9.0,
            str(tmp_path / "supervisor.toml"),
        )
        assert items["heartbeat_s"]["origin"] == "environment SUPERVISOR_HEARTBEAT_S"
        assert items["webhook_secret"]["value"] == "***"
        assert "geheim" not in done.stdout
        assert SECRET not in done.stdout

    def test_a_misspelt_key_in_the_file_is_2(self, quick: Run, tmp_path: Path) -> None:
        (tmp_path / "supervisor.toml").write_text("leese_s = 9\n")
        done = quick("config")
        assert done.returncode == exit_codes.USAGE
        assert "did you mean lease_s?" in only_line(done.stderr)

    def test_a_test_alert_is_delivered_signed(
        self, bare: Run, httpserver: HTTPServer, tmp_path: Path
    ) -> None:
        httpserver.expect_request("/hook").respond_with_data(status=202)
        (tmp_path / "secret").write_text(SECRET)
        done = bare("alerts", "test", httpserver.url_for("/hook"), "--secret-file", str(tmp_path / "secret"))
        assert (done.returncode, done.stderr) == (exit_codes.OK, "")
        assert "status 202" in done.stdout
        request, _ = httpserver.log[0]
        Webhook(SECRET).verify(request.get_data(), dict(request.headers))

    def test_a_test_alert_that_is_refused_is_5_and_says_why(self, quick: Run, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/hook/geheim").respond_with_data(status=401)
        url = httpserver.url_for("/hook/geheim")
        done = quick("alerts", "test", url, "--json", env={"SUPERVISOR_WEBHOOK_SECRET": SECRET})
        assert done.returncode == exit_codes.FAILED
        assert json.loads(done.stdout)["items"][0]["status"] == 401
        assert "status 401" in only_line(done.stderr)
        assert "geheim" not in done.stdout + done.stderr

    def test_a_test_alert_without_a_secret_is_2(self, quick: Run) -> None:
        done = quick("alerts", "test", "http://127.0.0.1:1/hook")
        assert done.returncode == exit_codes.USAGE
        assert "SUPERVISOR_WEBHOOK_SECRET" in only_line(done.stderr)

    def test_help_lists_every_exit_code_with_a_sentence(self, quick: Run) -> None:
        lines = quick("help", "exit-codes").stdout.splitlines()
        assert [int(line.split()[0]) for line in lines] == [0, 1, 2, 3, 4, 5, 130]

    def test_the_version_is_shown(self, quick: Run) -> None:
        from unknot import __version__

        assert quick("--version").stdout == f"supervisor {__version__}\n"

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_a_completion_script_goes_to_stdout_and_completes(self, quick: Run, shell: str) -> None:
        assert "supervisor" in quick("completion", shell).stdout

    def test_commands_are_completed(self, bare: Run) -> None:
        env = {"_SUPERVISOR_COMPLETE": "complete_bash", "COMP_WORDS": "supervisor st", "COMP_CWORD": "1"}
        assert bare(env=env).stdout.split() == ["status"]

    def test_a_daemon_leads_the_run_until_it_is_told_to_stop(
        self, spawn: Callable[..., subprocess.Popen[str]], store: RedisStore
    ) -> None:
        Scene(store)
        process = spawn("daemon")
        deadline = time.monotonic() + LIMIT_S
        while not store.command("HGET", store.key("leader"), "holder"):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        process.send_signal(signal.SIGTERM)
        stdout, _ = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, stdout) == (exit_codes.OK, "")
