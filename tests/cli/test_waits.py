"""From published records to who waits for what."""

from __future__ import annotations

from unknot.graph.events import Arrive, Atom, Clause, Event, Hold, Record, Resource, Wait
from unknot.supervisor.cli.waits import WaitView, locks_waited_for, waits_of

NOW = 1000.0


def record(source: str, *events: Event) -> Record:
    return Record(src=source, n=1, t=NOW, full=True, events=events)


def wait(who: str, *clauses: Clause, t: float = 990.0, **more: object) -> Wait:
    return Wait(p=who, t=t, ticket=1, needs=clauses, **more)  # type: ignore[arg-type]


def one(*atoms: Atom, k: int | None = None) -> Clause:
    return Clause(k=len(atoms) if k is None else k, of=atoms)


def only(*records: Record, holders: dict[str, str] | None = None) -> WaitView:
    (view,) = waits_of(records, now=NOW, holders=holders)
    return view


def test_a_wait_for_a_lock_names_its_holder_from_another_process() -> None:
    view = only(
        record("a#1", wait("a#1", one(Atom(r="lock:x")), site="a.py:3")),
        record("b#1", Hold(p="b#1/loader", r="lock:x")),
    )
    assert (view.participant, view.text, view.age_s, view.site) == ("a#1", "lock:x", 10.0, "a.py:3")
    assert view.holders == view.helpers == ("b#1/loader",)


def test_a_holder_that_only_redis_knows_is_named() -> None:
    view = only(record("a#1", wait("a#1", one(Atom(r="lock:x")))), holders={"lock:x": "c#4"})
    assert view.holders == ("c#4",)


def test_a_receiver_waits_for_the_declared_senders_or_for_anybody() -> None:
    need = wait("a#1", one(Atom(r="mbox:q", op="recv")))
    declared = only(record("a#1", Resource(r="mbox:q", type="mailbox", senders=("agent/b", "agent/c")), need))
    assert (declared.text, declared.helpers) == ("a message in mbox:q", ("agent/b", "agent/c"))
    open_one = only(record("a#1", Resource(r="mbox:q", type="mailbox"), need))
    assert open_one.helpers == ("anybody",)


def test_a_sender_waits_for_the_receivers() -> None:
    need = wait("a#1", one(Atom(r="mbox:q", op="send")))
    view = only(record("a#1", Resource(r="mbox:q", type="mailbox", receivers=("judge/j",)), need))
    assert (view.text, view.helpers) == ("room in mbox:q", ("judge/j",))


def test_a_collective_waits_for_the_ranks_that_have_not_arrived() -> None:
    ranks = tuple(f"trainer/{rank}#1/queue:policy" for rank in range(3))
    group = Resource(r="coll:policy@g1", type="collective", members=ranks)
    view = only(
        record("trainer/0#1", group, wait(ranks[0], one(Atom(r="coll:policy@g1", seq=41)))),
        record("trainer/0#1", Arrive(p=ranks[0], r="coll:policy@g1", seq=41)),
        record("trainer/1#1", Arrive(p=ranks[1], r="coll:policy@g1", seq=40)),
    )
    assert view.text == "coll:policy@g1 #41"
    assert view.helpers == ranks[1:]


def test_alternatives_and_conjunctions_are_told_apart() -> None:
    a, b, c = (Atom(r=f"lock:{name}") for name in "abc")
    view = only(record("a#1", wait("a#1", one(a, b), one(a, b, c, k=1), one(a, b, c, k=2))))
    assert (
        view.text == "all of lock:a, lock:b and any of lock:a, lock:b, lock:c and 2 of lock:a, lock:b, lock:c"
    )


def test_an_outside_wait_shows_its_label_and_a_call_its_callee() -> None:
    view = only(record("a#1", wait("a#1", one(Atom(external="approval")), one(Atom(p="agent/b#1")))))
    assert view.text == "approval (external) and the answer of agent/b#1"
    assert view.helpers == ("external approval", "agent/b#1")


def test_a_deadline_and_a_limit_are_told_as_time_left() -> None:
    view = only(record("a#1", wait("a#1", one(Atom(external="x")), deadline=NOW + 5, limit=NOW + 60)))
    assert (view.deadline_in_s, view.limit_in_s) == (5.0, 60.0)


def test_the_oldest_wait_comes_first() -> None:
    need = one(Atom(r="lock:x"))
    views = waits_of([record("a#1", wait("a#1", need, t=995), wait("b#1", need, t=900))], now=NOW)
    assert [view.participant for view in views] == ["b#1", "a#1"]


def test_locks_that_somebody_waits_for_are_named_once() -> None:
    atoms = (Atom(r="lock:b"), Atom(r="lock:a"), Atom(r="mbox:q", op="recv"), Atom(p="x#1"))
    assert locks_waited_for(
        [record("a#1", wait("a#1", one(*atoms)), wait("b#1", one(Atom(r="lock:a"))))]
    ) == ("a", "b")
