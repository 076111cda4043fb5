"""A Redis that is there and refuses what a run needs: one line that says what is missing and what to give, and whether waiting helps."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from tests.store.refused import PASSWORD, refusal
from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.store.embedded import start_redis
from unknot.supervisor.store.redis_store import RedisStore, StoreLimits
from unknot.supervisor.store.refusals import RIGHTS
from unknot.supervisor.store.scripts import load_script, script_names

SHORT = StoreLimits(connect_s=2.0, answer_s=2.0, retry_s=2.0)


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this module, whose settings its tests may change."""
    with start_redis(tmp_path_factory.mktemp("refusing")) as server:
        yield server.url


@pytest.fixture
def admin(server_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_url) as client:
        yield client
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


@pytest.fixture
def user_with(admin: redis.Redis, server_url: str) -> Iterator[Callable[[str], str]]:
    """`user_with(rules)` is the URL of a user who has these rights alone."""

    def make(rules: str) -> str:
        admin.execute_command("ACL", "SETUSER", "trainer", "reset", "on", f">{PASSWORD}", *rules.split())  # type: ignore[no-untyped-call]
        return f"redis://trainer:{PASSWORD}@{server_url.rpartition('@')[2]}"

    yield make
    admin.execute_command("ACL", "DELUSER", "trainer")  # type: ignore[no-untyped-call]


def refused(url: str, *, writes: bool = True) -> StoreUnavailable:
    error = refusal(url, writes=writes, limits=SHORT)
    assert isinstance(error, StoreUnavailable)
    return error


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ("~* &* +@all -@scripting", "the command EVALSHA"),
        ("~* &* +@all -set", "the command SET"),
        ("~* &* +@all -get", "the command GET"),
        ("~* &* +@all -info", "the command INFO"),
        ("~* &* +@all -publish", "the command PUBLISH"),
        ("~* &* -@all", "the command PING"),
        ("~other:* &* +@all", "the keys unknot:*"),
        ("&* +@all", "the keys unknot:*"),
        ("~* resetchannels +@all", "the channels unknot:*"),
    ],
)
def test_a_permission_that_the_user_lacks_is_named_with_the_one_command_that_gives_it(
    user_with: Callable[[str], str], rules: str, missing: str
) -> None:
    error = refused(user_with(rules))
    assert f"its user has no permission (NOPERM) for {missing}; have its administrator run ACL SETUSER NAME {RIGHTS}" in str(error)
    assert error.lasting
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.lasting) == (str(error), True)


def test_the_rights_that_are_told_are_enough_and_the_trial_leaves_no_key(
    user_with: Callable[[str], str], admin: redis.Redis
) -> None:
    with RedisStore.connect(user_with(f"resetchannels {RIGHTS}"), "ppo-17", limits=SHORT) as store, store.listen(["cmd"]) as heard:
        assert store.warnings == ()
        assert admin.keys("*") == []
        assert store.script("member_expect", [store.key()], ["agent/a", "agent"])
        heard.open()
        assert store.publish("cmd", b"x") == 1
        store.blocking_pop(store.key("none"), timeout_s=0.01)
        store.command("SCAN", 0, "MATCH", "unknot:{*}:run", "COUNT", 10)
        store.time()
        with store.pipeline() as pipe:
            pipe.hset(store.key("h"), "a", "1")
            pipe.execute()
        store.command("XADD", store.key("s"), "*", "r", "1")
        store.command("XREAD", "BLOCK", 1, "STREAMS", store.key("s"), "0")
    admin.flushdb()


def test_the_rights_that_are_told_cover_each_command_that_a_script_calls(admin: redis.Redis) -> None:
    granted = {"info", "time"}
    for category in re.findall(r"\+@(\w+)", RIGHTS):
        granted |= {str(command) for command in admin.acl_cat(category)}
    for name in script_names():
        called = {word.lower() for word in re.findall(r"redis\.call\('(\w+)'", load_script(name).text)}
        assert called <= granted, name


def test_a_permission_that_is_taken_away_while_a_run_lives_is_the_same_error(user_with: Callable[[str], str]) -> None:
    with RedisStore.connect(user_with("~* &* +@all"), "ppo-17", limits=SHORT) as store:
        user_with("~* &* +@all -hset -hget")
        calls: tuple[Callable[[], object], ...] = (
            lambda: store.command("HGET", store.key("run"), "state"),
            lambda: store.script("member_expect", [store.key()], ["agent/a", "agent"]),
        )
        for call in calls:
            with pytest.raises(StoreUnavailable, match=r"has no permission \(NOPERM\) for") as caught:
                call()
            assert caught.value.lasting


def test_a_password_that_was_changed_while_a_run_lives_is_told_as_that(user_with: Callable[[str], str], admin: redis.Redis) -> None:
    with RedisStore.connect(user_with("~* &* +@all"), "ppo-17", limits=SHORT) as store:
        admin.execute_command("ACL", "SETUSER", "trainer", "resetpass", ">another")  # type: ignore[no-untyped-call]
        store.close()  # what it connects anew is refused
        with pytest.raises(StoreUnavailable, match=r"it refuses this user or password \(WRONGPASS\)") as caught:
            store.command("GET", store.key("x"))
    assert caught.value.lasting


@contextmanager
def replica_of(primary: str, directory: Path) -> Iterator[str]:
    """A second server that follows `primary`; its URL."""
    with start_redis(directory) as server, redis.Redis.from_url(server.url) as client:
        parts = urlsplit(primary)
        client.config_set("masterauth", parts.password or "")
        client.replicaof("127.0.0.1", str(parts.port))
        yield server.url


def test_a_read_only_replica_names_its_primary_and_can_be_looked_at(server_url: str, tmp_path: Path) -> None:
    with replica_of(server_url, tmp_path) as url:
        error = refused(url)
        primary = server_url.rpartition("@")[2].partition("/")[0]
        assert f"this is a read-only replica (READONLY); use the address of its primary, which it says is {primary}" in str(error)
        assert not error.lasting, "after a failover it is none any more"
        with RedisStore.connect(url, "ppo-17", limits=SHORT, writes=False) as store:
            assert store.command("GET", store.key("x")) is None
            calls: tuple[Callable[[], object], ...] = (
                lambda: store.command("SET", store.key("x"), 1),
                lambda: store.script("member_expect", [store.key()], ["agent/a", "agent"]),
            )
            for call in calls:
                with pytest.raises(StoreUnavailable, match="this is a read-only replica"):
                    call()


def test_a_redis_without_memory_says_what_to_do_and_can_be_looked_at(server_url: str, admin: redis.Redis) -> None:
    admin.config_set("maxmemory", 1)
    error = refused(server_url)
    assert "it takes no writes (OOM: it uses all the memory that its maxmemory allows); raise maxmemory" in str(error)
    assert not error.lasting
    with RedisStore.connect(server_url, "ppo-17", limits=SHORT, writes=False) as store:
        assert store.command("GET", store.key("x")) is None
        with pytest.raises(StoreUnavailable, match="OOM: "):
            store.command("SET", store.key("x"), 1)


def test_a_redis_that_may_evict_keys_of_the_run_is_warned_of(server_url: str, admin: redis.Redis) -> None:
    admin.config_set("maxmemory-policy", "allkeys-lru")
    with RedisStore.connect(server_url, "ppo-17", limits=SHORT) as store:
        assert store.warnings == (), "without a limit nothing is evicted"
    admin.config_set("maxmemory", 1 << 30)
    with RedisStore.connect(server_url, "ppo-17", limits=SHORT) as store:
        (warning,) = store.warnings
    assert "may evict keys of the run when its memory is full (maxmemory-policy allkeys-lru); set it to noeviction" in warning
