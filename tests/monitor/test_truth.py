"""What the store knows better than any process."""

from __future__ import annotations

import pytest

from tests.monitor.desk import A, B, Desk, atom, crossed, member
from unknot.graph import events as ev
from unknot.graph.slow import slow_chains
from unknot.supervisor.monitor.instructions import AskRound
from unknot.supervisor.monitor.truth import Answers, Questions


@pytest.fixture
def desk() -> Desk:
    return Desk()


def mailboxes(desk: Desk) -> None:
    """Each of two processes waits for a message of the other one."""
    for source, box, sender in ((A, "to-a", "agent/b"), (B, "to-b", "agent/a")):
        desk.party(source).declare(f"mbox:{box}", "mailbox", senders=(sender,), capacity=8)
        desk.party(source).wait(atom(f"mbox:{box}", op="recv"))
    desk.party(A).tell()
    desk.party(B).tell()


def test_it_is_asked_about_everything_that_somebody_waits_for_there_and_about_nothing_else(desk: Desk) -> None:
    mailboxes(desk)
    desk.party(A).wait(atom("lock:weights"), p=f"{A}/x")
    desk.party(A).wait(atom("lock:train.py:3:1@agent/a#1"), p=f"{A}/y").wait(atom("ext=approval"), p=f"{A}/z").tell()
    tickets = desk.party(A).tickets()
    stands = {(p, t) for p, t in tickets.items() if p in (A, f"{A}/x")} | {(B, 2)}
    assert desk.core.questions() == Questions(
        counts=("to-a", "to-b"), holders=("weights",), stands=tuple(sorted(stands))  # type: ignore[arg-type]
    )  # fmt: skip
    assert not Desk().core.questions()


def test_an_item_in_a_mailbox_frees_who_waits_for_it(desk: Desk) -> None:
    mailboxes(desk)
    assert desk.asks()
    desk.store(counts={"to-a": 0, "to-b": 1})
    desk.confirm()
    assert desk.opened() == []
    desk.store(counts={"to-a": 0, "to-b": 0})
    desk.confirm()
    assert desk.opened("deadlock")


def test_a_wait_that_is_over_in_the_store_is_over_whatever_its_process_says(desk: Desk) -> None:
    mailboxes(desk)
    ticket = desk.party(B).tickets()[B]
    assert ticket is not None
    asked = len(desk.asks())
    for _ in range(3):
        desk.store(counts={"to-a": 0, "to-b": 0}, stands={(A, 1): True, (B, ticket): False})
        desk.answer(desk.asks()[0])
    assert (desk.opened(), len(desk.asks())) == ([], asked)
    desk.party(B).wake().wait(atom("mbox:to-b", op="recv")).tell()
    desk.confirm()
    assert desk.opened("deadlock"), "the next wait is another one"


def test_a_wait_that_stands_again_after_the_store_was_restarted_is_believed_again(desk: Desk) -> None:
    mailboxes(desk)
    desk.store(stands={(A, 1): False, (B, 2): False})
    assert desk.core.graph.waiting() == []
    assert desk.core.questions().stands == ((A, 1), (B, 2)), "it is asked about as long as its process tells it"
    told = desk.store(stands={(A, 1): True, (B, 2): True})
    (ask,) = (one for one in told if isinstance(one, AskRound))
    assert ask.sources == (A, B)
    desk.answer(ask)
    desk.confirm()
    assert desk.opened("deadlock")


def test_the_holder_of_a_lock_is_whom_the_store_names(desk: Desk) -> None:
    """A process that waits for nothing does not tell what it holds; the straggler is known all the same."""
    desk.party(A).tell()
    desk.party(B).wait(atom("lock:x")).tell()
    desk.store(holders={"x": A})
    (chain,) = slow_chains(desk.core.graph, 1100.0, 1.0)
    assert (chain.roots, chain.by) == ((A,), B)
    desk.store(holders={"x": "agent/c#1/loader"})
    (chain,) = slow_chains(desk.core.graph, 1100.0, 1.0)
    assert chain.roots == ("agent/c#1/loader",)
    desk.store(holders={"x": ""})
    assert slow_chains(desk.core.graph, 1100.0, 1.0) == ()


def test_a_hold_that_the_store_does_not_know_of_is_no_proof(desk: Desk) -> None:
    """B's release was carried out and its answer lost: it still believes that it holds."""
    crossed(desk)
    desk.store(holders={"left": A, "right": ""}, stands={(A, 1): True, (B, 2): True})
    desk.confirm()
    assert desk.opened() == []


def test_one_that_was_given_a_lock_and_has_not_woken_does_not_wait_for_itself(desk: Desk) -> None:
    desk.party(A).wait(atom("lock:x")).tell()
    desk.store(holders={"x": A}, stands={(A, 1): True})
    desk.store(holders={"x": A}, stands={(A, 1): False})
    desk.party(A).tell()
    desk.later(3.0)
    assert (desk.opened(), desk.asks()) == ([], [])


def test_a_lock_of_a_dead_process_that_never_told_of_it_is_found(desk: Desk) -> None:
    desk.party(A).tell()
    desk.party(B).wait(atom("lock:x")).tell()
    desk.members(member(A, state="dead", error="signal 9"), member(B))
    desk.store(holders={"x": A}, stands={(B, 1): True})
    desk.confirm()
    found = desk.incident("dead")
    assert (found.kind, found.culprits, found.core) == ("orphaned-lock", (A,), (B,))


def test_answers_about_what_is_not_known_any_more_are_nothing(desk: Desk) -> None:
    told = desk.take(
        lambda core, now: core.answered(
            Answers(counts={"gone": 3}, holders={"gone": A}, stands={("agent/z#1", 9): True}), now
        )
    )
    assert told == []
    assert desk.core.graph.participants == {}


def waits_for_dead_senders_item(desk: Desk) -> None:
    """A waits for a mailbox whose only sender has ended well; B, which runs or not, has one of its items in hand."""
    desk.party("agent/s#1").extra = [ev.End(p="agent/s#1", t=1000.0)]
    desk.party("agent/s#1").tell()
    desk.party(A).declare("mbox:q", "mailbox", senders=("agent/s",), capacity=8).wait(atom("mbox:q", op="recv")).tell()


def test_an_item_that_another_member_has_in_hand_may_come_back(desk: Desk) -> None:
    waits_for_dead_senders_item(desk)
    desk.party(B).tell()
    desk.store(counts={"q": 0}, returners={"q": ("agent/b",)}, stands={(A, 1): True})
    for _ in range(2):
        desk.later(1.0)
        desk.party(A).tell()
        desk.answer()
    assert desk.opened("absent", "dead", "deadlock") == []
    desk.store(counts={"q": 0}, returners={"q": ()}, stands={(A, 1): True})
    desk.party(A).tell()
    desk.confirm()
    assert desk.incident("absent").core == (A,), "it was acknowledged: nothing can come any more"


def test_an_item_in_the_hands_of_one_that_waits_for_the_waiter_comes_back_no_more(desk: Desk) -> None:
    waits_for_dead_senders_item(desk)
    desk.party(A).hold("lock:x").tell()
    desk.party(B).wait(atom("lock:x")).tell()
    desk.store(counts={"q": 0}, returners={"q": ("agent/b",)}, holders={"x": A}, stands={(A, 1): True, (B, 2): True})
    desk.confirm()
    assert set(desk.incident("deadlock").core) == {A, B}


def test_one_that_has_an_item_in_hand_and_waits_for_the_next_does_not_wait_for_itself(desk: Desk) -> None:
    waits_for_dead_senders_item(desk)
    desk.store(counts={"q": 0}, returners={"q": ("agent/a",)}, stands={(A, 1): True})
    desk.confirm()
    assert desk.opened("deadlock") == []
    assert desk.incident("absent").core == (A,)


def test_the_items_of_a_dead_member_are_known_as_the_reason(desk: Desk) -> None:
    waits_for_dead_senders_item(desk)
    desk.party(B).tell()
    desk.members(member(A), member(B, state="dead", error="signal 9"))
    desk.store(counts={"q": 0}, returners={"q": ("agent/b",)}, stands={(A, 1): True})
    desk.confirm()
    assert desk.incident("dead").culprits == ("agent/b#1", "agent/s#1")


def test_a_commit_that_waits_for_room_in_several_mailboxes_is_asked_about_with_all_of_them(desk: Desk) -> None:
    party = desk.party(A)
    for box in ("raw", "scored"):
        party.declare(f"mbox:{box}", "mailbox", receivers=("agent/b",), capacity=1)
    party.wait(atom("mbox:raw", op="send"), atom("mbox:scored", op="send")).tell()
    assert desk.core.questions() == Questions(counts=("raw", "scored"), stands=((A, 1),))
    desk.party(B).declare("mbox:back", "mailbox", senders=("agent/a",), capacity=1)
    desk.party(B).wait(atom("mbox:back", op="recv")).tell()
    desk.store(counts={"raw": 0, "scored": 1, "back": 0}, stands={(A, 1): True, (B, 2): True})
    desk.confirm()
    assert set(desk.incident("deadlock").core) == {A, B}
    desk.store(counts={"raw": 0, "scored": 0, "back": 0}, stands={(A, 1): True, (B, 2): True})
    assert desk.core.graph.resources["mbox:scored"].count == 0
