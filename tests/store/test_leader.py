from __future__ import annotations

import itertools
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unknot.recovery.answers import ask
from unknot.supervisor.store.leader import Lease
from unknot.supervisor.store.redis_store import RedisStore

_names = itertools.count(1)


def test_one_leads_and_the_others_do_not(store: RedisStore) -> None:
    first, second = Lease(store), Lease(store)
    assert first.acquire() == 1
    assert second.acquire() is None
    assert first.acquire() == 1, "renewing keeps the token"
    assert repr(first) == f"<Lease {first.holder}, leading with token 1>"
    assert repr(second) == f"<Lease {second.holder}, not leading>"


def test_the_token_grows_with_every_change_of_hands(store: RedisStore, eventually: Callable[..., None]) -> None:
    first, second = Lease(store, lease_s=0.05), Lease(store)
    first.acquire()
    eventually(second.acquire)
    assert second.token == 2
    assert first.acquire() is None
    assert first.token is None
    second.release()
    second.release()
    assert first.acquire() == 3


def test_a_lease_that_ended_without_anybody_taking_it_goes_on(
    store: RedisStore, eventually: Callable[..., None]
) -> None:
    lease = Lease(store, lease_s=0.01)
    lease.acquire()
    until = float(store.command("HGET", store.key("leader"), "until"))
    eventually(lambda: store.time() > until)
    assert lease.acquire() == 1


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["acquire", "release", "lapse"])), max_size=25))
def test_at_most_one_holds_the_present_token(redis_url: str, moves: list[tuple[str, str]]) -> None:
    with RedisStore.connect(redis_url, f"leader-model-{next(_names)}") as store:
        holder, last, token = None, None, 0
        for who, move in moves:
            if move == "lapse":
                store.command("HSET", store.key("leader"), "until", 0)
                last, holder = holder or last, None
                continue
            answers = [ask(store, "leader", who, 60, move) for _ in range(2)]
            assert answers[0] == answers[1] or answers[0].word == "busy"
            if move == "release":
                last, holder = (None, None) if who in (holder, last) else (last, holder)
            elif holder in (None, who):
                token += 0 if who in (holder, last) else 1
                holder, last = who, None
                assert answers[0] == ("ok", (str(token).encode(),))
            else:
                assert answers[0].word == "busy"
                assert answers[0].text(1) == holder
