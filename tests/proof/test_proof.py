"""Why a reported deadlock is real: one test for each sentence of the proof, with real processes.

Each test brings one fault into a run whose picture, as the monitor has it, looks like a deadlock and is none; asserts that
the fault did happen; and then makes the deadlock real, and sees it reported. See docs/design.md.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.proof.proxy import Proxy, rounds
from tests.proof.workers import Scene, Watching, Worker, until
from unknot.graph.events import Record, Wait
from unknot.supervisor.incidents import Incident

A, B = "agent/a#1", "agent/b#1"


def waits_in(record: Record) -> dict[str, int]:
    return {event.p: event.ticket for event in record.events if isinstance(event, Wait)}


def standing(watching: Watching, participant: str) -> int | None:
    """The ticket in which the monitor believes a participant to stand."""
    return watching.core.graph.ticket(participant)


def told_once(scene: Scene, watching: Watching) -> Incident:
    """The deadlock of both, reported, and nothing else of its kind."""
    found = scene.incident("deadlock")
    assert found.core == (A, B)
    assert found.tickets == {pid: standing(watching, pid) for pid in (A, B)}
    assert len(scene.incidents("deadlock")) == 1
    return found


def crossing(a: Worker, b: Worker) -> None:
    """Each holds the lock that the other one wants."""
    a.call("lock", "left")
    b.call("lock", "right")
    b.begin("lock", "left")
    a.begin("lock", "right")


def test_two_processes_that_cross_are_a_deadlock_and_the_report_names_both_places(scene: Scene) -> None:
    a, b = scene.workers("agent/a", "agent/b")
    watching = scene.watch()
    crossing(a, b)
    found = told_once(scene, watching)
    assert found.confirmed_at is not None
    assert found.closing_wait_at is not None
    assert 0 < found.confirmed_at - found.closing_wait_at < 10.0
    assert {line.participant: line.resource for line in found.lines} == {A: "lock:right", B: "lock:left"}
    assert all(line.site is not None and line.site.startswith("proof/worker.py:") for line in found.lines)


def test_a_record_that_is_delayed_makes_no_false_report_and_the_true_one_follows(
    scene: Scene, proxy: Callable[[], Proxy]
) -> None:
    """B's wait for A has ended, its record of that has not come; A waits for B, which runs."""
    slow = proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/b": slow.url})
    watching = scene.watch()
    ended = b.begin("await", A, "b1")
    until(lambda: standing(watching, B) is not None)
    slow.rule = lambda _: "late"
    b.call("go", "b1", thread="hand")
    ended.result()
    waiting = a.begin("await", B, "a1")
    until(lambda: any(rounds(kept.record) for kept in slow.kept), "the candidate was asked about, the answer is on its way")
    assert standing(watching, B) is not None, "by what the monitor has, both wait for each other"
    assert scene.incidents() == []
    slow.rule = lambda _: "pass"
    slow.release()
    until(lambda: standing(watching, B) is None)
    assert scene.incidents() == []
    assert slow.done["late"] >= 2
    b.begin("await", A, "b2")
    told_once(scene, watching)
    assert not waiting.done


def test_a_delayed_record_of_a_true_deadlock_delays_its_report(scene: Scene, proxy: Callable[[], Proxy]) -> None:
    slow = proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/b": slow.url})
    watching = scene.watch()
    slow.rule = lambda _: "late"
    crossing(a, b)
    until(lambda: standing(watching, A) is not None)
    until(lambda: any(waits_in(kept.record) for kept in slow.kept), "the record of B's wait is held back")
    assert scene.incidents("deadlock") == []
    slow.rule = lambda _: "pass"
    slow.release()
    told_once(scene, watching)


def test_a_redis_that_answers_one_process_nothing_delays_the_report_and_what_arrives_at_last_changes_nothing(
    scene: Scene, proxy: Callable[[], Proxy]
) -> None:
    """The publisher gives each record up; those that were given up arrive after later ones, and are refused."""
    slow = proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/b": slow.url})
    watching = scene.watch()
    passing = b.begin("await", A, "b1")
    until(lambda: standing(watching, B) is not None)
    slow.rule = lambda _: "stall"
    b.call("go", "b1", thread="hand")
    passing.result()
    b.begin("await", A, "b2")
    until(lambda: slow.done["stall"] >= 2)
    slow.rule = lambda _: "pass"
    a.begin("await", B, "a1")
    found = told_once(scene, watching)
    before = watching.core.graph.absorbed(B)
    assert len(slow.release()) >= 2
    b.call("go", "b2", thread="hand")
    assert scene.incident("deadlock", state="resolved").id == found.id
    assert watching.core.graph.absorbed(B) > before


def test_connections_that_are_cut_again_and_again_cost_time_and_nothing_else(
    scene: Scene, proxy: Callable[[], Proxy]
) -> None:
    bad = proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/a": bad.url, "agent/b": bad.url})
    watching = scene.watch()
    a.call("lock", "left")
    bad.cut()
    b.call("lock", "right")
    bad.cut()
    waiting = [b.begin("lock", "left"), a.begin("lock", "right")]
    until(lambda: standing(watching, A) or standing(watching, B))
    bad.cut()
    told_once(scene, watching)
    bad.cut()
    assert bad.cuts == 4
    assert not any(call.done for call in waiting)
    assert scene.incidents("unresponsive") == []


def test_while_a_record_is_lost_its_process_is_unknown_and_nothing_is_a_deadlock_and_the_next_one_heals(
    scene: Scene, proxy: Callable[[], Proxy]
) -> None:
    bad = proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/b": bad.url})
    watching = scene.watch()
    until(lambda: watching.core.graph.absorbed(B) > 0)
    bad.rule = lambda _: "lose"
    crossing(a, b)
    until(lambda: bad.done["lose"] >= 1)
    until(lambda: watching.core.graph.is_unknown(B), "its heartbeat tells of a record that never came")
    lost = bad.done["lose"]
    until(lambda: bad.done["lose"] > lost, "it is asked for another, which is lost too")
    assert scene.incidents("deadlock") == []
    bad.rule = lambda _: "pass"
    told_once(scene, watching)
    assert not watching.core.graph.is_unknown(B)


def test_records_that_come_twice_or_again_much_later_change_nothing(scene: Scene, proxy: Callable[[], Proxy]) -> None:
    double = proxy()
    double.rule = lambda _: "twice"
    a, b = scene.workers("agent/a", "agent/b", through={"agent/b": double.url})
    watching = scene.watch()
    passing = b.begin("await", A, "b1")
    until(lambda: standing(watching, B) is not None)
    b.call("go", "b1", thread="hand")
    passing.result()
    until(lambda: standing(watching, B) is None)
    a.begin("await", B, "a1")
    until(lambda: standing(watching, A) is not None)
    _again(scene)
    until(lambda: watching.core.graph.counters["duplicate_records"] > 0)
    assert double.done["twice"] >= 2
    assert (standing(watching, B), scene.incidents()) == (None, []), "an old wait of B does not stand again"
    b.begin("await", A, "b2")
    told_once(scene, watching)
    _again(scene)
    b.call("go", "b2", thread="hand")
    assert scene.incident("deadlock", state="resolved").core == (A, B)


def _again(scene: Scene) -> None:
    """Everything that is in the stream comes once more."""
    for _, fields in scene.store.command("XRANGE", scene.store.key("events"), "-", "+"):
        scene.store.command("XADD", scene.store.key("events"), "*", "r", fields[b"r"])


def test_records_of_two_processes_in_another_order_than_they_were_written_make_no_false_report(
    scene: Scene, proxy: Callable[[], Proxy]
) -> None:
    """A's wait ended before B's began, but the monitor reads B's first. No order between processes is assumed."""
    slow_a, slow_b = proxy(), proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/a": slow_a.url, "agent/b": slow_b.url})
    watching = scene.watch()
    first = a.begin("await", B, "a1")
    until(lambda: standing(watching, A) is not None)
    slow_a.rule = slow_b.rule = lambda _: "late"
    a.call("go", "a1", thread="hand")
    first.result()
    until(lambda: any(not waits_in(kept.record) for kept in slow_a.kept), "A's later record is held back")
    b.begin("await", A, "b1")
    until(lambda: any(B in waits_in(kept.record) for kept in slow_b.kept))
    slow_b.rule = lambda _: "pass"
    slow_b.release()
    until(lambda: any(rounds(kept.record) for kept in slow_a.kept), "the false candidate is asked about")
    assert (standing(watching, A) is not None, standing(watching, B) is not None) == (True, True)
    slow_a.rule = lambda _: "pass"
    slow_a.release()
    until(lambda: standing(watching, A) is None)
    assert scene.incidents() == []
    a.begin("await", B, "a2")
    told_once(scene, watching)


def test_records_of_one_process_that_overtake_each_other_change_nothing(
    scene: Scene, proxy: Callable[[], Proxy]
) -> None:
    bad = proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/b": bad.url})
    watching = scene.watch()
    until(lambda: watching.core.graph.absorbed(B) > 0)
    a.begin("await", B, "a1")
    bad.rule = lambda _: "late"
    passing = b.begin("await", A, "b1")
    until(lambda: any(B in waits_in(kept.record) for kept in bad.kept))
    b.call("go", "b1", thread="hand")
    passing.result()
    until(lambda: bad.kept[-1].record.n > 1 and not waits_in(bad.kept[-1].record))
    newest = bad.kept[-1].record.n
    bad.rule = lambda _: "pass"
    released = bad.release(backwards=True)
    assert len(released) >= 2
    until(lambda: watching.core.graph.absorbed(B) >= newest)
    assert (standing(watching, B), scene.incidents()) == (None, [])
    b.begin("await", A, "b2")
    told_once(scene, watching)


def test_a_member_that_does_not_answer_is_unresponsive_and_the_deadlock_is_told_when_it_does(scene: Scene) -> None:
    a, b = scene.workers("agent/a", "agent/b")
    watching = scene.watch(answer_limit_s=0.6)
    a.call("lock", "left")
    b.call("lock", "right")
    b.begin("lock", "left")
    until(lambda: standing(watching, B) is not None)
    b.stop()
    a.begin("lock", "right")
    silent = scene.incident("unresponsive")
    assert (silent.culprits, silent.state) == ((B,), "open")
    assert "does not answer" in silent.lines[0].text
    assert scene.incidents("deadlock") == []
    b.go_on()
    assert scene.incident("unresponsive", state="resolved").resolution == "it answers again"
    told_once(scene, watching)


def test_a_wait_that_moves_between_the_two_rounds_dissolves_the_candidate(
    scene: Scene, proxy: Callable[[], Proxy]
) -> None:
    slow = proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/b": slow.url})
    watching = scene.watch(answer_limit_s=20.0)
    first = b.begin("await", A, "b1")
    until(lambda: standing(watching, B) is not None)
    ticket = standing(watching, B)
    slow.rule = lambda record: "late" if rounds(record) or slow.kept else "pass"
    a.begin("await", B, "a1")
    until(lambda: slow.kept, "B's answer to the first round is on its way")
    b.call("go", "b1", thread="hand")
    first.result()
    b.begin("run", "b2")
    until(lambda: not waits_in(slow.kept[-1].record), "B has moved on since")
    (answer,) = slow.release(1)
    assert waits_in(answer)[B] == ticket, "the first round was answered before B moved"
    until(lambda: {n for kept in slow.kept for n in rounds(kept.record)} - set(rounds(answer)), "the second round asks")
    assert scene.incidents() == []
    slow.rule = lambda _: "pass"
    slow.release()
    until(lambda: standing(watching, B) is None)
    assert scene.incidents() == []
    b.call("go", "b2", thread="hand")
    b.begin("await", A, "b3")
    told_once(scene, watching)


def test_a_receiver_whose_item_is_in_the_store_already_does_not_wait_whatever_its_process_says(
    scene: Scene, proxy: Callable[[], Proxy]
) -> None:
    """B was given its item, but the hint does not reach it; A, which sent it, waits for B's answer."""
    slow = proxy()
    a, b = scene.workers("agent/a", "agent/b", through={"agent/b": slow.url})
    watching = scene.watch()
    a.call("declare", "to-b", ["agent/a"], ["agent/b"])
    a.call("declare", "to-a", ["agent/b"], ["agent/a"])
    receiving = b.begin("receive", "to-b")
    until(lambda: standing(watching, B) is not None)
    slow.hold_pops()
    a.call("send", "to-b", "work")
    until(lambda: slow.held_pops, "the hint is held back")
    a.begin("receive", "to-a")
    until(lambda: standing(watching, A) is not None)
    asked = slow.done["pass"]
    until(lambda: watching.core._truth._over, "the store says that B's wait is over")
    assert not receiving.done
    assert standing(watching, B) is None
    assert (scene.incidents(), slow.done["pass"]) == ([], asked), "nobody had to be asked"
    slow.let_pops()
    assert receiving.result() == "work"
    b.begin("receive", "to-b")
    told_once(scene, watching)


def test_one_that_runs_however_long_is_slow_and_no_deadlock(scene: Scene) -> None:
    a, b = scene.workers("agent/a", "agent/b")
    watching = scene.watch(slow_after_s=0.5)
    for worker in (a, b):
        worker.call("progress")
    a.call("lock", "left")
    b.call("lock", "right")
    b.begin("lock", "left")
    running = a.begin("run", "a1")
    found = scene.incident("slow")
    assert found.culprits == (A,)
    assert found.victims == (B,)
    assert scene.incidents("deadlock", "unresponsive") == []
    a.call("go", "a1", thread="hand")
    running.result()
    a.begin("lock", "right")
    told_once(scene, watching)
