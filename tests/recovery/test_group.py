from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from unknot.recovery.errors import (
    ConfigError,
    FencedError,
    GroupDone,
    LeaseLost,
    RunClosed,
    StaleGeneration,
    WaitTimeout,
)
from unknot.recovery.group import GroupSlot, Joined, break_group, group_names, group_status, join_once
from unknot.recovery.recorder_null import NullRecorder
from unknot.recovery.registration import new_boot, register
from unknot.recovery.run import RunClaim
from unknot.supervisor.store.leader import Lease
from unknot.supervisor.store.redis_store import RedisStore

Join = Callable[..., NullRecorder]
_runs = itertools.count(1)


class Ranks:
    """Processes of one group's ranks."""

    def __init__(self, store: RedisStore, join: Join, size: int) -> None:
        self.store = store
        self.size = size
        self.recorders = [join(f"trainer/{rank}") for rank in range(size)]

    def join(self, rank: int, timeout_s: float = 10.0) -> GroupSlot:
        return GroupSlot.join(self.store, "policy", timeout_s=timeout_s, **self._who(rank))  # type: ignore[arg-type]

    def once(self, rank: int, token: str) -> Joined:
        return join_once(self.store, "policy", token=token, **self._who(rank))  # type: ignore[arg-type]

    def join_all(self) -> list[GroupSlot]:
        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(self.join, range(self.size)))

    def _who(self, rank: int) -> dict[str, object]:
        recorder = self.recorders[rank]
        return {"size": self.size, "rank": rank, "member": recorder.member, "incarnation": recorder.incarnation}


def test_a_generation_is_complete_when_every_rank_has_joined(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 3)
    slots = ranks.join_all()
    assert [(slot.rank, slot.generation, slot.sources) for slot in slots] == [
        (rank, 1, ("trainer/0#1", "trainer/1#1", "trainer/2#1")) for rank in range(3)
    ]
    assert group_status(store, "policy").state == "forming"
    slots[0].running()
    assert group_status(store, "policy").state == "running"
    assert group_names(store) == ("policy",)
    assert repr(slots[1]) == "<GroupSlot policy generation 1 rank 1 of 3>"


def test_while_ranks_are_missing_they_are_named(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 3)
    assert group_status(store, "policy").generation == 0
    assert not ranks.once(1, "t1").complete
    assert group_status(store, "policy").missing == (0, 2)


def test_joining_again_with_the_same_token_is_the_same_join(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    assert ranks.once(0, "t0") == ranks.once(0, "t0") == Joined(generation=1, complete=False)
    done = Joined(generation=1, complete=True, sources=("trainer/0#1", "trainer/1#1"))
    assert ranks.once(1, "t1") == ranks.once(1, "t1") == ranks.once(0, "t0") == done


def test_a_break_ends_exactly_the_generation_it_names(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    first = ranks.join_all()[0]
    first.running()
    assert not break_group(store, "policy", 7, reason="wrong")
    assert first.reason_if_broken() is None
    assert break_group(store, "policy", 1, reason="a deadlock was broken")
    assert break_group(store, "policy", 1, reason="twice is once")
    assert first.reason_if_broken() == "a deadlock was broken"
    with pytest.raises(StaleGeneration, match=r"generation 1 of group policy is over \(a deadlock was broken\)"):
        first.running()
    second = ranks.join_all()[0]
    assert second.generation == 2
    assert not break_group(store, "policy", 1, reason="late")
    assert first.reason_if_broken() == "generation 2 has begun"
    assert second.reason_if_broken() is None


def test_a_rank_that_joins_anew_breaks_the_generation_it_stood_in(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    ranks.join_all()[0].running()
    assert ranks.once(0, "anew") == Joined(generation=2, complete=False)
    assert ranks.once(1, "too").generation == 2
    assert ranks.once(0, "anew").complete


def test_a_new_incarnation_replaces_a_rank_while_the_group_forms(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    ranks.once(0, "t0")
    ranks.recorders[0] = join("trainer/0")
    assert not ranks.once(1, "t1").complete, "the replaced rank does not count"
    assert ranks.once(0, "again").sources == ("trainer/0#2", "trainer/1#1")
    assert group_status(store, "policy").generation == 1


def test_a_new_incarnation_of_a_rank_breaks_a_running_generation(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    survivor = ranks.join_all()[1]
    survivor.running()
    ranks.recorders[0] = join("trainer/0")
    assert ranks.once(0, "again").generation == 2
    assert survivor.reason_if_broken() == "generation 2 has begun"
    assert ranks.once(1, "anew").sources == ("trainer/0#2", "trainer/1#1")


def test_a_replaced_rank_can_neither_join_nor_break(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 1)
    slot = ranks.join(0)
    join("trainer/0")
    with pytest.raises(FencedError):
        ranks.once(0, "late")
    with pytest.raises(FencedError):
        slot.break_("late")
    with pytest.raises(FencedError):
        slot.done()


def test_a_group_is_done_when_every_rank_is_and_can_begin_again(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    slots = ranks.join_all()
    slots[0].done()
    assert group_status(store, "policy").state == "forming"
    slots[1].done()
    assert group_status(store, "policy").state == "done"
    assert not slots[0].break_("late"), "what is done cannot be broken"
    assert ranks.join_all()[0].generation == 2


def test_who_joins_a_group_that_is_done_is_told_so_unless_another_driver_has_the_run(store: RedisStore, join: Join) -> None:
    claim = RunClaim.take(store, lease_s=600)
    ranks = Ranks(store, join, 2)
    for slot in ranks.join_all():
        slot.done()
    with pytest.raises(GroupDone, match=r"group policy is done: in generation 1 run\(\) has returned on every rank"):
        ranks.once(0, "late")
    assert group_status(store, "policy").generation == 1
    claim.close()
    RunClaim.take(store)
    for rank in range(2):
        ranks.recorders[rank] = join(f"trainer/{rank}")
    assert ranks.join_all()[0].generation == 2


def test_the_rendezvous_of_a_generation_goes_when_all_have_joined_the_next_one(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    slots = ranks.join_all()
    place = store.key("gstore", "policy", "1")
    store.command("HSET", place, "k", "v")
    slots[0].break_("a test")
    ranks.once(0, "anew")
    assert store.command("EXISTS", place) == 1
    break_group(store, "policy", 2, reason="before all have joined it")
    ranks.once(0, "third")
    ranks.once(1, "third")
    assert store.command("EXISTS", place) == 0


def test_who_waits_for_missing_ranks_is_told_which_generation_forms(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    told: list[int] = []
    with pytest.raises(WaitTimeout):
        GroupSlot.join(
            store, "policy", size=2, rank=0, member="trainer/0", incarnation=1, while_missing=told.append, timeout_s=0.01
        )
    assert set(told) == {1}
    assert ranks.join_all()[0].generation == 1


def test_giving_up_takes_the_join_back(store: RedisStore, join: Join) -> None:
    ranks = Ranks(store, join, 2)
    with pytest.raises(WaitTimeout, match="for group policy"):
        ranks.join(0, timeout_s=0.01)
    with pytest.raises(LookupError):
        GroupSlot.join(
            store,
            "policy",
            size=2,
            rank=0,
            member="trainer/0",
            incarnation=1,
            give_up=lambda: LookupError("interrupted"),
        )
    assert group_status(store, "policy").ranks == (None, None)
    assert store.command("EXISTS", store.key("groupq", "policy")) == 0


def test_a_closing_run_ends_the_wait_for_other_ranks(
    store: RedisStore, join: Join, eventually: Callable[..., None]
) -> None:
    claim = RunClaim.take(store)
    ranks = Ranks(store, join, 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ranks.join, 0)
        eventually(lambda: group_status(store, "policy").missing == (1,))
        claim.closing()
        with pytest.raises(RunClosed):
            waiting.result(10)


def test_ranks_of_different_sizes_do_not_form_a_group(store: RedisStore, join: Join) -> None:
    Ranks(store, join, 2).once(0, "t0")
    with pytest.raises(ConfigError, match="group policy is forming with 2 ranks, not 3"):
        Ranks(store, join, 3).once(1, "t1")
    with pytest.raises(ConfigError, match="rank 2 does not fit size 2"):
        GroupSlot.join(store, "policy", size=2, rank=2, member="trainer/2", incarnation=1)


def test_only_the_present_leader_can_break_a_group(store: RedisStore, join: Join) -> None:
    Ranks(store, join, 1).join(0)
    old, new = Lease(store), Lease(store)
    token = old.acquire()
    old.release()
    with pytest.raises(LeaseLost):
        break_group(store, "policy", 1, reason="late", leader_token=(token or 0) + 7)
    assert break_group(store, "policy", 1, reason="now", leader_token=new.acquire())


class GroupMachine(RuleBasedStateMachine):
    """Ranks that join, poll, leave by error, die and come back, and a monitor that breaks: whatever the order, all

    ranks that were told of one complete generation were told the same sources, and generations only grow.
    """

    url = ""
    size = 3

    def __init__(self) -> None:
        super().__init__()
        self.store = RedisStore.connect(self.url, f"group-model-{os.getpid()}-{next(_runs)}")
        self.incarnations = [0] * self.size
        self.tokens: list[str | None] = [None] * self.size
        self.inside: list[int | None] = [None] * self.size
        self.told: dict[int, tuple[str, ...]] = {}
        self.seen = [0] * self.size
        for rank in range(self.size):
            self.restart(rank)

    def teardown(self) -> None:
        self.store.close()

    ranks = st.integers(0, size - 1)

    @rule(rank=ranks)
    def restart(self, rank: int) -> None:
        facts = register(self.store, f"trainer/{rank}", role="trainer", pid=1, host="here", boot=new_boot())
        self.incarnations[rank] = facts.incarnation
        self.tokens[rank] = self.inside[rank] = None

    @rule(rank=ranks)
    def join(self, rank: int) -> None:
        if self.inside[rank] is not None:
            return
        self.tokens[rank] = self.tokens[rank] or secrets.token_hex(4)
        joined = self.ask(rank)
        if not joined.complete:
            return
        assert joined.generation > self.seen[rank], "a rank never comes into the same generation twice"
        assert joined.sources[rank] == f"trainer/{rank}#{self.incarnations[rank]}"
        assert self.told.setdefault(joined.generation, joined.sources) == joined.sources
        self.inside[rank] = self.seen[rank] = joined.generation
        self.tokens[rank] = None

    def ask(self, rank: int) -> Joined:
        who = {"size": self.size, "rank": rank, "member": f"trainer/{rank}"}
        token, incarnation = self.tokens[rank] or "", self.incarnations[rank]
        first = join_once(self.store, "policy", token=token, incarnation=incarnation, **who)  # type: ignore[arg-type]
        again = join_once(self.store, "policy", token=token, incarnation=incarnation, **who)  # type: ignore[arg-type]
        assert first == again
        return first

    @rule(rank=ranks)
    def leave_by_an_error(self, rank: int) -> None:
        self.inside[rank] = None

    @rule()
    def the_monitor_breaks_what_stands(self) -> None:
        status = group_status(self.store, "policy")
        if status.generation:
            assert break_group(self.store, "policy", status.generation, reason="test")
            assert group_status(self.store, "policy").state == "broken"

    @invariant()
    def generations_only_grow(self) -> None:
        status = group_status(self.store, "policy")
        assert status.generation >= max(self.seen)
        if status.state == "forming" and status.generation in self.told:
            assert status.ranks == self.told[status.generation], "a complete generation never changes its ranks"


def test_ranks_agree_on_every_generation(redis_url: str) -> None:
    GroupMachine.url = redis_url
    run_state_machine_as_test(
        GroupMachine,
        settings=settings(
            max_examples=20, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
