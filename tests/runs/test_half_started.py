"""A start that is refused half way: one line that says why, and no directory, no server, no thread and no Ray of it remains."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import ray
import redis

import unknot
from unknot.integrations.ray import start as started
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore

PASSWORD = "hunter2-secret"
pytestmark = pytest.mark.usefixtures("nothing_remains")
_FAILS = """
import os, psutil, unknot
try:
    unknot.init("r1", redis=os.environ.get("GIVEN"))
except unknot.ConfigError as error:
    print("told:", error)
print("left:", [p.cmdline() for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE])
"""


@pytest.fixture
def own_url(tmp_path_factory: pytest.TempPathFactory, nothing_remains: None) -> Iterator[str]:
    """A server whose settings and users a test may change."""
    with start_redis(tmp_path_factory.mktemp("own")) as server:
        yield server.url


@pytest.fixture
def admin(own_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(own_url) as client:
        yield client


def refused(kind: type[Exception], *named: str, **options: str) -> None:
    with pytest.raises(kind) as caught:
        unknot.init("r1", **options)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    assert PASSWORD not in text
    assert not [name for name in named if name not in text], text


def test_a_word_that_is_neither_on_nor_off_is_refused_before_anything_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERVISOR_DISABLED", "maybe")
    refused(unknot.ConfigError, "SUPERVISOR_DISABLED = 'maybe' is neither on nor off; write 1, true, yes or on")


@pytest.mark.parametrize(("word", "observed"), [("false", True), ("No", True), ("off", True), ("TRUE", False), ("on", False)])
def test_the_word_for_off_leaves_a_run_observed(redis_url: str, monkeypatch: pytest.MonkeyPatch, word: str, observed: bool) -> None:
    monkeypatch.setenv("SUPERVISOR_DISABLED", word)
    with ExitStack() as stack:
        driver = started.driver_process(stack, f"word-{word}", {"redis": redis_url})
        assert (driver.process.table is not None) is observed


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("value", ["~nobody-of-that-name/x", "  ", "a\nb"])
def test_a_directory_of_runs_that_is_no_path_is_refused(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, given: bool
) -> None:
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", value)
    monkeypatch.chdir(tmp_path)
    refused(unknot.ConfigError, "SUPERVISOR_RUN_DIR = ", **({"redis": redis_url} if given else {}))


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("what", ["a file", "below a file", "in a place for no files", "with a name too long"])
def test_a_directory_of_runs_that_cannot_be_made_is_refused(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, what: str, given: bool
) -> None:
    file = tmp_path_factory.mktemp("elsewhere") / "file"
    file.write_text("")
    places = {
        "a file": file,
        "below a file": file / "x",
        "in a place for no files": Path("/proc/unknot"),
        "with a name too long": file.with_name("x" * 300),
    }
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", str(places[what]))
    refused(unknot.UnknotError, "set SUPERVISOR_RUN_DIR to a directory that you may write", **({"redis": redis_url} if given else {}))


def test_a_redis_without_memory_refuses_the_start(admin: redis.Redis, own_url: str) -> None:
    admin.config_set("maxmemory", 1)
    refused(unknot.StoreUnavailable, "it takes no writes (OOM", "raise maxmemory", redis=own_url)


def test_a_redis_that_refuses_the_driver_after_its_claim_gets_the_claim_back(admin: redis.Redis, own_url: str) -> None:
    rules = ("reset", "on", f">{PASSWORD}", "~*", "&*", "+@all", "-sadd")  # registering needs it, the claim does not
    admin.execute_command("ACL", "SETUSER", "trainer", *rules)  # type: ignore[no-untyped-call]
    url = f"redis://trainer:{PASSWORD}@{own_url.rpartition('@')[2]}"
    refused(unknot.StoreUnavailable, "its user has no permission (NOPERM) for ", "ACL SETUSER NAME on resetchannels ~unknot:*", redis=url)
    assert admin.hget("unknot:{r1}:run", "state") == b"closed"


def test_a_directory_that_was_there_before_stays_with_what_lies_in_it(
    admin: redis.Redis, own_url: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path_factory.mktemp("runs")
    (runs / "r1").mkdir()
    (runs / "r1" / "mine").write_text("kept")
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", str(runs))
    for redis_of_run in (None, own_url):
        with ExitStack() as stack:
            started.driver_process(stack, "r1", {"redis": redis_of_run})
    assert (runs / "r1" / "mine").read_text() == "kept"


@pytest.mark.parametrize("given", [False, True])
def test_a_start_that_is_broken_off_after_the_driver_joined_leaves_no_directory(
    own_url: str, tmp_path: Path, given: bool
) -> None:
    with ExitStack() as stack:
        driver = started.driver_process(stack, "r1", {"redis": own_url if given else None})
        started.monitor(stack, driver)
        assert (tmp_path / "r1" / "monitor.log").exists()


def test_a_run_that_stands_keeps_its_directory(
    own_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runs = tmp_path_factory.mktemp("runs")
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", str(runs))
    for name, redis_of_run in (("own", None), ("given", own_url)):
        with ExitStack() as stack:
            started.driver_process(stack, name, {"redis": redis_of_run}).fresh.keep()
        assert (runs / name).is_dir()


def test_a_redis_that_may_evict_keys_is_told_when_the_run_starts(
    admin: redis.Redis, own_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.config_set("maxmemory", 1 << 30)
    admin.config_set("maxmemory-policy", "volatile-lru")
    with ExitStack() as stack:
        started.driver_process(stack, "r1", {"redis": own_url})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("unknot: Redis at 127.0.0.1:")
    assert line.endswith("(maxmemory-policy volatile-lru); set it to noeviction")


@pytest.mark.ray
@pytest.mark.parametrize("given", [False, True])
def test_a_ray_that_fails_half_way_leaves_none_of_its_processes(redis_url: str, tmp_path: Path, given: bool) -> None:
    # Ray reads this after its GCS runs, and fails.
    env = {**os.environ, "RAY_OVERRIDE_RESOURCES": "nonsense", **({"GIVEN": redis_url} if given else {})}
    done = subprocess.run([sys.executable, "-c", _FAILS], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told, left = done.stdout.splitlines()
    assert told.startswith("told: Ray cannot be started (JSONDecodeError: ")
    assert "connect with ray.init(...) first" in told
    assert left == "left: []"
    if given:
        with RedisStore.connect(redis_url, "r1") as store:
            assert store.command("HGET", store.key("run"), "state") == b"closed"


def test_ray_is_named_when_it_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> Callable[[], None]:
        raise ConnectionError("nobody at 10.0.0.1\nand more")

    told = r"Ray cannot be started \(ConnectionError: nobody at 10\.0\.0\.1\); see"
    with monkeypatch.context() as patch, ExitStack() as stack:
        patch.setattr(ray, "init", fails)
        patch.setattr(ray, "is_initialized", lambda: False)
        patch.setattr(ray, "shutdown", lambda: None)
        with pytest.raises(unknot.ConfigError, match=told):
            started.ray_cluster(stack)
