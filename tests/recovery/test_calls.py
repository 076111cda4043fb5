"""What the store knows of a driver's calls: which have failed, and how many all ranks have answered."""

from __future__ import annotations

import os
import secrets

import pytest

from unknot.recovery.calls import Failure, answered_by_all, failure_of, note_answered, note_failure, text_of
from unknot.recovery.errors import FencedError
from unknot.recovery.group import GroupSlot
from unknot.recovery.registration import new_boot, register
from unknot.supervisor.store.redis_store import RedisStore

FIRST = Failure(source="trainer/0#1", error="ValueError: no")


@pytest.fixture
def slot(store: RedisStore) -> GroupSlot:
    """The only rank of a group."""
    return joined(store)


def joined(store: RedisStore) -> GroupSlot:
    me = register(store, "trainer/0", role="trainer", pid=os.getpid(), host="here", boot=new_boot())
    return GroupSlot.join(store, "policy", size=1, rank=0, member="trainer/0", incarnation=me.incarnation)


def test_of_a_call_the_first_failure_stays_and_the_next_generation_sees_it(store: RedisStore, slot: GroupSlot) -> None:
    call = secrets.token_hex(8)
    assert failure_of(store, call) is None
    note_failure(store, slot, call, FIRST)
    note_failure(store, slot, call, Failure(source="trainer/0#1", error="KeyError: later"))
    slot.break_("the call has failed")
    assert failure_of(store, call) == FIRST


def test_a_generation_that_is_over_makes_no_call_fail(store: RedisStore, slot: GroupSlot) -> None:
    slot.break_("a rank was lost")
    note_failure(store, slot, "c", FIRST)
    assert failure_of(store, "c") is None, "else one rank of the next might carry it out, and another one pass it over"
    joined(store)
    with pytest.raises(FencedError):
        note_failure(store, slot, "c", FIRST)


def test_a_group_has_answered_what_its_slowest_rank_has(store: RedisStore, slot: GroupSlot) -> None:
    assert answered_by_all(store, slot) == 0
    note_answered(store, slot, 4)
    assert answered_by_all(store, slot) == 5


def test_an_error_without_words_is_told_by_its_type() -> None:
    assert text_of(KeyboardInterrupt()) == "KeyboardInterrupt: "
    assert text_of(ValueError("one\ntwo")) == "ValueError: one"
