"""Threads that never used anything of ours are told as running: they might still help."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import thread as pools
from queue import SimpleQueue
from types import FrameType, SimpleNamespace
from typing import cast

import pytest

from unknot.graph.events import Atom, Clause, Record, Resource, Start
from unknot.graph.live import LiveGraph
from unknot.graph.verdict import evaluate
from unknot.supervisor.recorder import bystanders
from unknot.supervisor.recorder.bystanders import Bystanders
from unknot.supervisor.recorder.table import WaitTable

BOX = Resource(r="mbox:go", type="mailbox", capacity=1, senders=("agent/a",))
NEED = Clause(k=1, of=(Atom(r="mbox:go", op="recv"),))


@pytest.fixture
def table() -> WaitTable:
    """A table that tells of bystanders."""
    made = WaitTable(member="agent/a", incarnation=1, role="agent", clock=lambda: 10.0)
    made.slot()
    made.add_source(Bystanders(made))
    return made


@pytest.fixture
def helper() -> Iterator[threading.Thread]:
    """A plain thread of the user's."""
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait, name="helper")
    thread.start()
    yield thread
    gate.set()
    thread.join()


def told(table: WaitTable) -> list[str]:
    return [e.p for e in table.snapshot(publish_after_s=0.0).events if isinstance(e, Start) and "helper" in e.p]


def test_a_plain_thread_is_told_as_running_and_its_member_can_still_send(
    table: WaitTable, helper: threading.Thread
) -> None:
    assert len(told(table)) == 1
    with table.wait(table.next_ticket(), [NEED], [BOX]):
        snapshot = table.snapshot(publish_after_s=0.0)
    graph = LiveGraph()
    graph.absorb(Record(src=table.source, n=1, t=10.0, full=True, events=snapshot.events))
    assert evaluate(graph, 10.0).stuck == ()


def test_without_such_a_thread_the_wait_for_oneself_is_seen(table: WaitTable, monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever else lives in the process of the tests.
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    with table.wait(table.next_ticket(), [NEED], [BOX]):
        snapshot = table.snapshot(publish_after_s=0.0)
    graph = LiveGraph()
    graph.absorb(Record(src=table.source, n=1, t=10.0, full=True, events=snapshot.events))
    assert evaluate(graph, 10.0).stuck == ("agent/a#1",)


def test_a_thread_of_a_library_or_of_ours_is_not_told(table: WaitTable, helper: threading.Thread) -> None:
    def of_library() -> None:
        gate.wait()

    gate = threading.Event()
    of_library.__module__ = "ray._private.worker"
    thread = threading.Thread(target=of_library, name="helper-of-ray")
    thread.start()
    try:
        assert [p for p in told(table) if "of-ray" in p] == []
    finally:
        gate.set()
        thread.join()


def test_an_idle_worker_of_a_pool_is_not_told_and_a_busy_one_is(
    table: WaitTable, eventually: Callable[..., None]
) -> None:
    gate = threading.Event()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="helper-pool") as pool:
        pool.submit(int).result()
        eventually(lambda: told(table) == [])
        busy = pool.submit(gate.wait)
        try:
            eventually(busy.running)
            assert len(told(table)) == 1
        finally:
            gate.set()
        busy.result()
        eventually(lambda: told(table) == [])


@pytest.mark.parametrize(("queued", "item"), [(["work"], None), ([], "work")])
def test_a_worker_with_work_in_its_queue_or_its_hands_can_act(queued: list[str], item: str | None) -> None:
    # Between the put and the worker's next bytecode: a moment that no test can hold still.
    queue: SimpleQueue[str] = SimpleQueue()
    for one in queued:
        queue.put(one)
    frame = SimpleNamespace(f_code=pools._worker.__code__, f_locals={"work_queue": queue, "work_item": item})
    thread = cast("threading.Thread", SimpleNamespace(ident=7))
    assert not bystanders._is_idle(thread, {7: cast("FrameType", frame)})


class Server:
    """Stands for a metrics server: its loop is the standard library's, its class the library's."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def serve(self) -> None:
        """Until told to end."""
        self.gate.wait()


def test_a_thread_that_runs_a_method_of_a_librarys_object_is_that_librarys(
    table: WaitTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "__module__", "prometheus_client.exposition")
    server = Server()
    thread = threading.Thread(target=server.serve, name="helper-metrics")
    thread.start()
    try:
        assert told(table) == []
    finally:
        server.gate.set()
        thread.join()
