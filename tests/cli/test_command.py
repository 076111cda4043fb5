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
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_httpserver import HTTPServer
from standardwebhooks.webhooks import Webhook

from tests.cli.running import LIMIT_S, Run, only_line
from tests.cli.scene import Scene, deadlock
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwqpPbS1/3EBc="


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
        assert (done.returncode, done.stderr) == (exit_codes.OK, "")
        assert done.stdout == f"no incident in run {store.run}\n"
        done = quickly("explain", "inc_a1")
        assert done.returncode == exit_codes.USAGE
        assert f"run {store.run} has no incident; see" in only_line(done.stderr)

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

    @pytest.mark.parametrize("text", ["tool = 5 # supervisor\n", "[tool]\nsupervisor = 5\n", "[tool.supervisor]\nlease_s = -1\n"])
    def test_a_pyproject_that_cannot_be_used_is_2_and_named(self, quick: Run, tmp_path: Path, text: str) -> None:
        (tmp_path / "pyproject.toml").write_text(text)
        done = quick("config")
        assert (done.returncode, done.stdout) == (exit_codes.USAGE, "")
        assert str(tmp_path / "pyproject.toml") in only_line(done.stderr)

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
