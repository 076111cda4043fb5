"""What `unknot.init` refuses, in one line that says what to do, leaving nothing behind."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta

import pytest

import unknot
from unknot.integrations.ray import start as started
from unknot.integrations.ray.asked import only_run
from unknot.recovery.run import RunClaim, run_state
from unknot.supervisor import process as processes
from unknot.supervisor.store.redis_store import RedisStore

pytestmark = pytest.mark.usefixtures("nothing_remains")


def refused(kind: type[Exception], *named: str, run: object = "r1", **options: object) -> None:
    with pytest.raises(kind) as caught:
        unknot.init(run, **options)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    assert not [name for name in named if name not in text], text


def test_a_url_that_is_none_is_refused() -> None:
    refused(unknot.ConfigError, "redis", redis="htp://localhost")


@pytest.mark.parametrize("tail", ["?bogus=1", "?db=x", "/abc", "/0?decode_responses=true", "/0#part"])
def test_a_url_with_a_part_that_cannot_be_is_refused_without_its_password(tail: str) -> None:
    with pytest.raises(unknot.ConfigError, match="the URL of Redis") as caught:
        unknot.init("r1", redis=f"redis://:secret@127.0.0.1:1{tail}")
    assert "secret" not in str(caught.value)


def test_a_name_an_address_and_settings_of_another_type_are_refused() -> None:
    refused(unknot.ConfigError, "run=5", "unknot.init('ppo-17')", run=5)
    refused(unknot.ConfigError, "redis=", "an empty address", "None to have one started", redis="")
    refused(unknot.ConfigError, "redis=", "bytes", redis=b"redis://:secret@here")
    refused(unknot.ConfigError, "config=3", "dict", config=3)
    refused(unknot.ConfigError, "config=['slow_after_s']", config=["slow_after_s"])


def test_an_address_of_another_type_is_not_shown_since_it_may_hold_the_password() -> None:
    with pytest.raises(unknot.ConfigError) as caught:
        unknot.init("r1", redis=b"redis://:secret@here")  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_a_refused_start_leaves_the_process_free_to_start_a_run() -> None:
    refused(unknot.ConfigError, "redis", redis="htp://localhost")
    with only_run("r2"):
        refused(unknot.ConfigError, "run r2 is open in this process", "run.close()")
        refused(unknot.ConfigError, "run r2 is open in this process", run="r2")
    refused(unknot.ConfigError, "redis", redis="htp://localhost")


def test_a_redis_that_is_not_there_is_named_with_what_to_check() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    refused(unknot.StoreUnavailable, f"127.0.0.1:{port}", redis=f"redis://127.0.0.1:{port}/0")


def test_a_wrong_password_is_told_without_the_password(redis_url: str) -> None:
    wrong = redis_url.replace(redis_url.split(":")[2].split("@")[0], "not-the-one")
    with pytest.raises(unknot.StoreUnavailable) as caught:
        unknot.init("r1", redis=wrong)
    assert "password" in str(caught.value)
    assert "not-the-one" not in str(caught.value)


def test_an_unknown_setting_is_refused_with_a_suggestion() -> None:
    refused(unknot.ConfigError, "slow_after", "slow_after_s", config={"slow_after": 3})


def test_a_run_name_with_odd_characters_is_refused_with_one_that_would_do() -> None:
    refused(unknot.ConfigError, "my-run", run="my run!")


def test_a_second_driver_of_a_live_run_is_refused_and_told_who_has_it(redis_url: str) -> None:
    with RedisStore.connect(redis_url, "busy") as store:
        claim = RunClaim.take(store, lease_s=30.0)
        try:
            refused(unknot.RunBusy, "busy", f"{os.getpid()}@", run="busy", redis=redis_url)
        finally:
            claim.close()


def test_nobody_renews_the_claim_any_more_when_the_driver_leaves_and_closes_its_store(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", str(tmp_path_factory.mktemp("runs")))

    def renewing() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == "unknot-claim"]

    seen: list[list[str]] = []
    leave = processes.leave

    def watched() -> None:
        seen.append(renewing())
        leave()

    monkeypatch.setattr(processes, "leave", watched)
    with ExitStack() as stack:
        started.driver_process(stack, "renewed", {"redis": redis_url})
        assert renewing() == ["unknot-claim"]
    assert seen == [[]]
    with RedisStore.connect(redis_url, "renewed") as store:
        assert run_state(store) == "closed"


def test_an_unusable_redis_server_binary_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERVISOR_REDIS_SERVER", "/nowhere/redis-server")
    refused(unknot.StoreUnavailable, "/nowhere/redis-server")


def test_a_primitive_outside_of_a_run_says_where_it_belongs() -> None:
    for use in (lambda: unknot.Lock("x"), lambda: unknot.Mailbox("x"), lambda: unknot.progress()):
        with pytest.raises(unknot.NotAMember, match=r"needs a run: .*unknot.init"):
            use()
    with pytest.raises(unknot.NotAMember), unknot.external("approval"):
        pass


def test_an_unknown_instrumentation_and_an_unknown_kind_are_refused_with_a_suggestion() -> None:
    with pytest.raises(unknot.ConfigError, match=r"'threads' \(did you mean threading\?\)"):
        unknot.instrument("threads")
    with pytest.raises(unknot.ConfigError, match="did you mean human"), unknot.external("approval", kind="humen"):  # type: ignore[arg-type]
        pass
    with pytest.raises(unknot.ConfigError, match="limit=5 is no timedelta"), unknot.external("approval", limit=5):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (lambda: unknot.progress(5), "unknot.progress: what=5 is no text; give a few words"),  # type: ignore[arg-type]
        (lambda: unknot.progress("step", "2"), "unknot.progress: n='2' is not a whole number"),  # type: ignore[arg-type]
        (lambda: unknot.progress("step", -1), "unknot.progress: n=-1 is too small; give at least 0"),
        (lambda: unknot.external(5).__enter__(), "unknot.external: label=5 is no text"),  # type: ignore[arg-type]
        (lambda: unknot.external("").__enter__(), "unknot.external: label='' is no text"),
        (lambda: unknot.external("approval", who=5).__enter__(), "unknot.external: who=5 is no text"),  # type: ignore[arg-type]
        (lambda: unknot.external("approval", limit=timedelta(-1)).__enter__(), "unknot.external: limit="),
    ],
)
def test_a_mark_and_an_outside_wait_that_cannot_be_told_are_refused(use: Callable[[], object], told: str) -> None:
    with pytest.raises(unknot.ConfigError) as caught:
        use()
    assert str(caught.value).startswith(told)
