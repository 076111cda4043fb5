"""What a process does with what the monitor asks of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tests.recorder.members import Member
from unknot.integrations.threads import TracedLock
from unknot.recovery.errors import DeadlockInterrupted
from unknot.supervisor.recorder import commands
from unknot.supervisor.recorder.commands import Ask, Command, Listener
from unknot.supervisor.store.redis_store import RedisStore
from unknot.supervisor.store.subscription import Message


class Heard:
    """A listener on a real channel, and what it did."""

    def __init__(self, store: RedisStore) -> None:
        self.answered: list[int] = []
        self.done: list[str] = []
        self.acks: list[tuple[str, str]] = []
        self.failures: list[Exception] = []
        self.listener = Listener(
            store.listen(["ask", "cmd"]), source="agent/a#1", answer=self.answered.append,
            acknowledge=lambda key, outcome: self.acks.append((key, outcome)), on_error=self.failures.append,
        )  # fmt: skip
        self.listener.handle("interrupt", self._interrupt)

    def _interrupt(self, command: Command) -> str:
        self.done.append(command.key)
        return "interrupted"

    def take(self, message: commands.Message) -> None:
        self.listener.take(commands.encode(message))


@pytest.fixture
def heard(store: RedisStore) -> Iterator[Heard]:
    one = Heard(store)
    yield one
    one.listener.stop()


def command(key: str, *, token: int = 1, source: str = "agent/a#1", do: str = "interrupt") -> Command:
    return msgspec.convert(
        {"key": key, "token": token, "source": source, "do": do, "incident": "inc_1"}, type=Command
    )  # fmt: skip


def test_a_round_is_answered_by_those_it_names_and_by_nobody_else(heard: Heard) -> None:
    heard.take(Ask(round=1, sources=("agent/b#1", "agent/a#1")))
    heard.take(Ask(round=2, sources=("agent/b#1", "agent/a#2")))
    assert heard.answered == [1]


def test_a_command_is_carried_out_once_and_acknowledged_as_often_as_it_comes(heard: Heard) -> None:
    for _ in range(3):
        heard.take(command("k1"))
    assert heard.done == ["k1"]
    assert heard.acks == [("k1", "interrupted")] * 3


def test_a_command_to_another_process_or_incarnation_is_none_of_its_business(heard: Heard) -> None:
    heard.take(command("k1", source="agent/a#2"))
    heard.take(command("k2", source="agent/b#1"))
    assert (heard.done, heard.acks) == ([], [])


def test_a_leader_that_was_replaced_is_refused(heard: Heard) -> None:
    heard.take(command("k1", token=5))
    heard.take(command("k2", token=4))
    heard.take(command("k3", token=5))
    heard.take(command("k4", token=6))
    assert heard.done == ["k1", "k3", "k4"]
    assert heard.acks[1] == ("k2", "stale-leader")


def test_what_a_process_cannot_do_it_says(heard: Heard) -> None:
    heard.take(command("k1", do="break"))
    assert heard.acks == [("k1", "unsupported")]


def test_a_command_that_fails_is_acknowledged_with_the_failure_and_is_not_tried_again(heard: Heard) -> None:
    def fail(told: Command) -> str:
        heard.done.append(told.key)
        raise OSError("no such socket")

    heard.listener.handle("break", fail)
    heard.take(command("k1", do="break"))
    heard.take(command("k1", do="break"))
    assert heard.acks == [("k1", "failed: OSError: no such socket")] * 2
    assert heard.done == ["k1"]
    assert heard.listener.errors == len(heard.failures) == 1


def test_a_message_that_cannot_be_read_does_not_end_the_listener(
    heard: Heard, store: RedisStore, eventually: Callable[..., None]
) -> None:
    heard.listener.start()
    eventually(lambda: store.publish("ask", b"not msgpack") == 1)
    store.publish("cmd", commands.encode(command("k1")) + b"rest")
    store.publish("ask", commands.encode(Ask(round=3, sources=("agent/a#1",))))
    eventually(lambda: heard.answered == [3])
    assert heard.listener.errors >= 2


def test_a_listener_whose_connection_is_cut_hears_again(
    heard: Heard, store: RedisStore, eventually: Callable[..., None]
) -> None:
    heard.listener.start()
    eventually(lambda: store.publish("ask", commands.encode(Ask(round=1, sources=("agent/a#1",)))) == 1)
    assert store.command("CLIENT", "KILL", "TYPE", "pubsub") >= 1
    eventually(lambda: store.publish("ask", commands.encode(Ask(round=2, sources=("agent/a#1",)))) == 1)
    eventually(lambda: 2 in heard.answered)


def test_a_channel_that_fails_in_an_unknown_way_is_listened_to_again(eventually: Callable[..., None]) -> None:
    class Breaking:
        """Fails once, then speaks."""

        def __init__(self) -> None:
            self.opened = 0

        def messages(self, stop: threading.Event) -> Iterator[Message]:
            self.opened += 1
            if self.opened == 1:
                raise AttributeError("'NoneType' object has no attribute 'readline'")
            yield Message("ask", commands.encode(Ask(round=9, sources=("agent/a#1",))))
            stop.wait(10)

        def close(self) -> None:
            """Nothing to close."""

    answered: list[int] = []
    listener = Listener(Breaking(), source="agent/a#1", answer=answered.append, acknowledge=lambda *_: None)
    listener.start()
    eventually(lambda: answered == [9])
    assert listener.errors == 1
    listener.stop()


def test_the_monitor_ends_one_wait_in_a_real_process_and_gets_stacks(
    member: Callable[..., Member], store: RedisStore, eventually: Callable[..., None]
) -> None:
    one = member("agent/a")
    held = TracedLock(one.table, "x")
    held.acquire()
    raised: list[DeadlockInterrupted] = []

    def wait() -> None:
        try:
            held.acquire()
        except DeadlockInterrupted as error:
            raised.append(error)

    waiter = threading.Thread(target=wait, name="waiter")
    waiter.start()
    eventually(lambda: one.table.waits())
    (ticket,) = (waiting.ticket for waiting in one.table.waits().values())
    order = {"token": 1, "source": "agent/a#1", "incident": "inc_1", "participant": "agent/a#1/waiter"}
    for key, number in (("wrong", ticket + 1), ("right", ticket)):
        message = Command(key=key, do="interrupt", ticket=number, **order)  # type: ignore[arg-type]
        eventually(lambda message=message: store.publish("cmd", commands.encode(message)) == 1)
    store.publish("cmd", commands.encode(Command(key="stacks", do="stacks", **order)))  # type: ignore[arg-type]
    waiter.join(10)
    assert [(e.participant, e.resource, e.incident) for e in raised] == [
        ("agent/a#1/waiter", "lock:x@agent/a#1", "inc_1")
    ]
    acks = store.key("acks")
    eventually(lambda: store.command("HGET", acks, "stacks"))
    assert store.command("HMGET", acks, "wrong", "right") == [b"gone", b"interrupted"]
    assert b"MainThread: " in store.command("HGET", acks, "stacks")
    assert store.command("TTL", acks) > 0, "answers that nobody reads do not stay"
    held.release()
