from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil  # type: ignore[import-untyped,unused-ignore]
import pytest
import redis

from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.supervisor.store import embedded
from unknot.supervisor.store.embedded import EmbeddedRedis, attach_or_start, start_redis
from unknot.supervisor.store.location import discover, read_redis_file
from unknot.supervisor.store.redis_store import RedisStore
from unknot.supervisor.store.server_binary import bundled_server, find_server

Eventually = Callable[..., None]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with start_redis(tmp_path / "run") as started:
        yield started


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, protocol=2)


def test_the_server_keeps_what_is_written_and_is_for_this_user_alone(server: EmbeddedRedis) -> None:
    connected = client(server.url)
    wanted = {"appendonly": "yes", "appendfsync": "everysec", "bind": "127.0.0.1", "save": ""}
    assert {name: connected.config_get(name)[name] for name in wanted} == wanted
    connected.close()
    assert mode(server.directory) == 0o700
    assert mode(server.directory / "redis.json") == 0o600
    assert mode(server.directory / "redis.conf") == 0o600
    assert "Ready to accept connections" in (server.directory / "redis.log").read_text()


def test_the_password_is_random_needed_and_not_shown(server: EmbeddedRedis, tmp_path: Path) -> None:
    password, _, address = server.url.removeprefix("redis://:").partition("@")
    assert len(password) >= 32
    assert password not in repr(server)
    assert repr(server) == f"<EmbeddedRedis pid {server.pid} running at {address} in {tmp_path / 'run'}>"
    assert password not in repr(read_redis_file(server.directory))
    open_client = client(f"redis://{address}")
    with pytest.raises(redis.AuthenticationError):
        open_client.ping()
    open_client.close()


def test_the_command_line_finds_a_live_server_and_no_dead_one(tmp_path: Path) -> None:
    environ = {"SUPERVISOR_RUN_DIR": str(tmp_path)}
    with start_redis(tmp_path / "ppo-17") as server:
        (found,) = discover("ppo-17", environ)
        assert (found.run, found.url, found.redis.pid) == ("ppo-17", server.url, server.pid)
        assert discover(None, environ) == (found,)
        assert server.url.split("@")[0].rpartition(":")[2] not in repr(found)
    assert discover("ppo-17", environ) == ()
    assert discover(None, environ) == ()
    assert discover(None, {"SUPERVISOR_RUN_DIR": str(tmp_path / "nowhere")}) == ()


def test_stopping_ends_the_process_keeps_the_data_and_is_idempotent(tmp_path: Path) -> None:
    first = start_redis(tmp_path)
    with RedisStore.connect(first.url, "r") as store:
        store.command("SET", store.key("kept"), "yes")
    first.stop()
    first.stop()
    assert not first.alive
    assert not psutil.pid_exists(first.pid)
    assert not (tmp_path / "redis.json").exists()
    with start_redis(tmp_path) as second, RedisStore.connect(second.url, "r") as store:
        assert store.command("GET", store.key("kept")) == b"yes"


def test_a_server_that_does_not_end_in_time_is_killed(server: EmbeddedRedis) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    server.stop(limit_s=0.1)
    assert not psutil.pid_exists(server.pid)


def test_a_directory_takes_one_server_and_a_second_driver_attaches(server: EmbeddedRedis) -> None:
    with pytest.raises(StoreUnavailable, match=rf"process {os.getpid()} already runs one there \(pid {server.pid}\)"):
        start_redis(server.directory)
    with attach_or_start(server.directory) as attached:
        assert (attached.pid, attached.url, attached.owned) == (server.pid, server.url, False)
    assert server.alive, "who did not start it does not stop it"


def test_two_that_start_at_once_share_one_server(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        servers = list(pool.map(lambda _: attach_or_start(tmp_path), range(3)))
    assert len({server.pid for server in servers}) == 1
    assert sum(server.owned for server in servers) == 1
    for server in servers:
        server.stop()


def test_a_live_server_that_does_not_answer_is_not_doubled(server: EmbeddedRedis) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="lives but does not answer"):
            attach_or_start(server.directory)
    finally:
        os.kill(server.pid, signal.SIGCONT)


def test_the_server_dies_with_a_killed_parent_and_the_next_driver_has_its_data(
    tmp_path: Path, eventually: Eventually
) -> None:
    code = f"""
import sys
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore
server = start_redis({str(tmp_path)!r})
store = RedisStore.connect(server.url, "r")
store.command("SET", store.key("kept"), "yes")
print(server.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert psutil.pid_exists(pid)
        parent.kill()
        parent.wait(10)
        with attach_or_start(tmp_path) as server, RedisStore.connect(server.url, "r") as store:
            assert server.owned
            assert server.pid != pid
            assert store.command("GET", store.key("kept")) == b"yes"
    eventually(lambda: not psutil.pid_exists(pid))


def test_a_thread_that_ends_does_not_take_the_server_with_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(start_redis, tmp_path).result()
    with server:
        connected = client(server.url)
        assert connected.ping()
        connected.close()


def test_a_port_that_is_taken_in_the_last_moment_is_changed(
    server: EmbeddedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = int(server.url.rpartition(":")[2].partition("/")[0])
    free = embedded._free_port()
    ports = [taken, free]
    monkeypatch.setattr(embedded, "_free_port", lambda: ports.pop(0))
    with start_redis(tmp_path / "other") as other:
        assert f":{free}/" in other.url
    assert server.alive


def test_a_server_that_cannot_start_says_where_its_log_is(tmp_path: Path) -> None:
    (tmp_path / "appendonly.aof").mkdir()  # in the way of Redis 6
    (tmp_path / "appendonlydir").write_text("in the way of Redis 7")
    with pytest.raises(StoreUnavailable, match=r"ended at once \(status 1\); see .*redis\.log"):
        start_redis(tmp_path)


def test_a_server_that_cannot_start_leaves_no_directory_that_was_made_for_it(tmp_path: Path) -> None:
    ends = script(tmp_path / "redis-server", "Redis server v=7.0.15 sha=0")
    for start in (start_redis, attach_or_start):
        with pytest.raises(StoreUnavailable, match=r"ended at once \(status 0\); its log ends with: Redis server v=7\.0\.15"):
            start(tmp_path / "run", server=str(ends))
        assert not (tmp_path / "run").exists()


def test_only_a_directory_that_was_made_for_the_server_is_fresh(tmp_path: Path) -> None:
    with start_redis(tmp_path / "run") as server, attach_or_start(tmp_path / "run") as attached:
        assert (server.fresh, attached.fresh) == (True, False)
        embedded.remove_directory(tmp_path / "run")
        assert server.alive
        assert (tmp_path / "run" / "redis.json").exists(), "a server lives there"
    with start_redis(tmp_path / "run") as again:
        assert not again.fresh
    embedded.remove_directory(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_who_waited_for_a_directory_that_went_makes_it_anew(tmp_path: Path, eventually: Eventually) -> None:
    path = tmp_path / "run"
    path.mkdir()
    with ThreadPoolExecutor(1) as pool, (path / "redis.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = pool.submit(start_redis, path)
        eventually(lambda: any(Path(f.path) == path / "redis.lock" and f.fd != lock.fileno() for f in psutil.Process().open_files()))
        shutil.rmtree(path)
        fcntl.flock(lock, fcntl.LOCK_UN)
        with waiting.result(60) as server:
            assert server.alive
            assert (path / "redis.json").exists()


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "redis.lock").mkdir()
    with pytest.raises(StoreUnavailable, match=r"cannot be made or written .* set SUPERVISOR_RUN_DIR"):
        attach_or_start(tmp_path)


@pytest.mark.parametrize("name", ["a\nport 1", "a\0b", " ", "~nobody-of-that-name/x"])
def test_a_directory_that_is_no_path_is_refused(name: str) -> None:
    for start in (start_redis, attach_or_start):
        with pytest.raises(ConfigError, match="the run's directory = "):
            start(name)


def test_a_directory_whose_name_is_no_text_is_taken(tmp_path: Path) -> None:
    with start_redis(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")) as server:
        assert server.alive


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="set SUPERVISOR_RUN_DIR to a directory that you may write"):
        start_redis(tmp_path / "file" / "run")


def script(path: Path, says: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_without_a_server_both_remedies_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unknot.supervisor.store.server_binary.bundled_server", lambda: None)
    with pytest.raises(StoreUnavailable, match=r"apt install redis-server, or pip install 'unknot\[redis-server\]'"):
        find_server(environ={"PATH": str(tmp_path)})


def test_a_server_on_the_path_comes_before_the_bundled_one(tmp_path: Path) -> None:
    on_path = script(tmp_path / "redis-server", "Redis server v=7.0.15 sha=0 malloc=libc")
    assert find_server(environ={"PATH": str(tmp_path)}) == on_path
    valkey = script(tmp_path / "valkey-server", "Valkey server v=8.1.1 sha=0")
    on_path.unlink()
    assert find_server(environ={"PATH": str(tmp_path)}) == valkey


def test_a_server_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    bundled = bundled_server()
    script(tmp_path / "redis-server", "Redis server v=5.0.7 sha=0")
    if bundled is not None:
        assert find_server(environ={"PATH": str(tmp_path)}) == bundled
    with pytest.raises(StoreUnavailable, match=r"is version 5\.0, 6\.2 or newer is needed"):
        find_server(str(tmp_path / "redis-server"))


def test_a_named_server_is_taken_alone(tmp_path: Path) -> None:
    named = script(tmp_path / "mine", "Redis server v=7.2.4 sha=0")
    assert find_server(environ={"SUPERVISOR_REDIS_SERVER": str(named)}) == named
    with pytest.raises(StoreUnavailable, match="nowhere does not run"):
        find_server(environ={"SUPERVISOR_REDIS_SERVER": str(tmp_path / "nowhere")})
    with pytest.raises(StoreUnavailable, match="does not look like a Redis server"):
        find_server(str(script(tmp_path / "other", "hello")))
