"""The outbox and its pump, on a real Redis and against a real receiver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest
from pytest_httpserver import HTTPServer
from standardwebhooks.webhooks import Webhook
from structlog.testing import capture_logs
from werkzeug import Request, Response

from tests.alerts.incidents import AT, SECRET, action, incident, webhook
from unknot.supervisor.alerts.alert import detected, resolved
from unknot.supervisor.alerts.delivery import Schedule
from unknot.supervisor.alerts.outbox import Deliveries, Ending, Outbox
from unknot.supervisor.alerts.pump import AlertPump
from unknot.supervisor.config import Config
from unknot.supervisor.store.redis_store import RedisStore

QUICK = Schedule(first_s=0.01, most_s=0.02, give_up_s=30)


def until(met: Callable[[], bool], *, limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not met():
        assert time.monotonic() < deadline, "the condition was not met in time"
        threading.Event().wait(0.01)


def pump_for(store: RedisStore, server: HTTPServer, *, schedule: Schedule = QUICK) -> AlertPump:
    return AlertPump(store, webhook(server.url_for("/hook")), schedule=schedule, attempt_limit_s=2.0)


class Receiver:
    """Answers with the given statuses in turn, the last one for ever; keeps the ids that it saw."""

    def __init__(self, server: HTTPServer, *statuses: int) -> None:
        self.ids: list[str] = []
        self._statuses = list(statuses)
        server.expect_request("/hook").respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        Webhook(SECRET).verify(request.get_data(), dict(request.headers))
        self.ids.append(request.headers["webhook-id"])
        status = self._statuses.pop(0) if len(self._statuses) > 1 else self._statuses[0]
        return Response(status=status)


class TestOutbox:
    def test_the_same_alert_is_put_once(self, store: RedisStore) -> None:
        outbox = Outbox(store)
        assert outbox.put(detected(incident(), at=AT))
        assert not outbox.put(detected(incident(actions=(action(),)), at=AT + 5))
        assert outbox.put(resolved(incident(), at=AT))
        assert outbox.deliveries() == Deliveries(waiting=2)

    def test_a_put_whose_answer_was_lost_says_yes_again(self, store: RedisStore) -> None:
        alert = detected(incident(), at=AT)
        assert Outbox(store).put(alert)
        assert Outbox(store).put(alert)

    def test_a_claimed_alert_is_offered_to_nobody_else_until_the_claim_lapses(
        self, store: RedisStore
    ) -> None:
        one, two = Outbox(store), Outbox(store)
        one.put(detected(incident(), at=AT))
        assert one.claim(hold_s=0.2, receiver="r") is not None
        assert two.claim(hold_s=0.2, receiver="r") is None
        until(lambda: two.claim(hold_s=30, receiver="r") is not None)

    def test_a_claim_whose_answer_was_lost_is_given_again(self, store: RedisStore) -> None:
        Outbox(store).put(detected(incident(), at=AT))
        first, again = (
            store.script("alert_claim", [store.key()], [30, "r", "somebody", 1]) for _ in range(2)
        )
        assert first[0] == again[0]

    def test_a_delivery_that_was_written_down_twice_counts_once(self, store: RedisStore) -> None:
        outbox, alert = Outbox(store), detected(incident(), at=AT)
        outbox.put(alert)
        ending = Ending(id=alert.id, type=alert.type, end="delivered", attempts=1, at=AT, status=200)
        assert outbox.end(ending)
        assert outbox.end(ending)
        assert outbox.deliveries() == Deliveries(ok=1)

    def test_a_delivered_alert_is_known_for_ever_after(self, store: RedisStore) -> None:
        outbox, alert = Outbox(store), detected(incident(), at=AT)
        outbox.put(alert)
        outbox.end(Ending(id=alert.id, type=alert.type, end="delivered", attempts=1, at=AT))
        assert not Outbox(store).put(alert)
        assert outbox.ending(alert.id) is not None

    def test_a_late_answer_about_an_ended_alert_changes_nothing(self, store: RedisStore) -> None:
        slow, quick, alert = Outbox(store), Outbox(store), detected(incident(), at=AT)
        slow.put(alert)
        claim = slow.claim(hold_s=30, receiver="r")
        assert claim is not None
        quick.end(Ending(id=alert.id, type=alert.type, end="delivered", attempts=1, at=AT))
        tried = msgspec.structs.replace(claim.entry, attempts=1)
        assert not slow.again(tried, pause_s=0, hold_s=0)
        assert quick.deliveries() == Deliveries(ok=1)


class TestPump:
    def test_an_incident_is_announced_once_when_it_stands_and_once_when_it_is_over(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        receiver = Receiver(httpserver, 200)
        pump = pump_for(store, httpserver)
        over = incident(state="resolved", resolved_at=AT)
        assert [pump.announce(one) for one in (incident(), incident(state="acting"), over, over)] == [
            True,
            False,
            True,
            False,
        ]
        while pump.pump_once():
            pass
        assert receiver.ids == [detected(incident(), at=AT).id, resolved(over, at=AT).id]
        assert Outbox(store).deliveries() == Deliveries(ok=2)
        pump.stop()

    def test_without_a_receiver_nothing_is_kept(self, store: RedisStore) -> None:
        pump = AlertPump(store, Config())
        assert not pump.enabled
        assert not pump.announce(incident())
        assert not pump.pump_once()
        assert Outbox(store).deliveries() == Deliveries()

    def test_a_failed_attempt_is_repeated_with_the_same_id(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        receiver = Receiver(httpserver, 500, 302, 404, 200)
        pump = pump_for(store, httpserver)
        pump.announce(incident())
        until(lambda: pump.pump_once() and len(receiver.ids) == 4)
        assert set(receiver.ids) == {detected(incident(), at=AT).id}
        assert Outbox(store).deliveries() == Deliveries(ok=1, failed=3)
        ending = Outbox(store).ending(receiver.ids[0])
        assert ending is not None
        assert (ending.end, ending.attempts, ending.status) == ("delivered", 4, 200)
        pump.stop()

    def test_an_alert_that_never_arrives_is_given_up_and_its_record_kept(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        receiver = Receiver(httpserver, 500)
        pump = pump_for(store, httpserver, schedule=Schedule(first_s=0.01, most_s=0.02, give_up_s=0.1))
        pump.announce(incident())
        until(lambda: pump.pump_once() and Outbox(store).deliveries().dropped == 1)
        ending = Outbox(store).ending(receiver.ids[0])
        assert ending is not None
        assert ending.end == "given up"
        assert "status 500" in ending.why
        assert not pump.announce(incident())
        pump.stop()

    def test_after_410_nothing_more_is_sent_to_this_address(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        receiver = Receiver(httpserver, 410)
        pump = pump_for(store, httpserver)
        pump.announce(incident())
        pump.announce(incident(id="inc_0002"))
        while pump.pump_once():
            pass
        assert len(receiver.ids) == 1
        assert Outbox(store).deliveries() == Deliveries(failed=1, dropped=2)
        pump.stop()

    def test_another_address_is_not_switched_off_by_the_410_of_the_old_one(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        Receiver(httpserver, 410)
        pump = pump_for(store, httpserver)
        pump.announce(incident())
        assert pump.pump_once()
        httpserver.expect_request("/new").respond_with_data(status=200)
        moved = AlertPump(store, webhook(httpserver.url_for("/new")), schedule=QUICK)
        moved.announce(incident(id="inc_0002"))
        assert moved.pump_once()
        assert Outbox(store).deliveries().ok == 1
        moved.stop()
        pump.stop()

    def test_an_overloaded_receiver_gets_no_other_alert_meanwhile(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        receiver = Receiver(httpserver, 503)
        pump = pump_for(store, httpserver, schedule=Schedule(first_s=60, most_s=60, give_up_s=3600))
        pump.announce(incident())
        pump.announce(incident(id="inc_0002"))
        assert pump.pump_once()
        assert not pump.pump_once()
        assert len(receiver.ids) == 1
        pump.stop()

    def test_announcing_does_not_wait_for_a_receiver_that_hangs(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        asked, release = threading.Event(), threading.Event()

        def hang(_request: Request) -> Response:
            asked.set()
            release.wait(20)
            return Response(status=200)

        httpserver.expect_request("/hook").respond_with_handler(hang)
        pump = pump_for(store, httpserver)
        pump.start()
        pump.announce(incident())
        assert asked.wait(10)
        began = time.monotonic()
        pump.announce(incident(id="inc_0002"))
        took_s = time.monotonic() - began
        release.set()
        pump.stop()
        assert took_s < 1.0

    def test_what_is_due_is_sent_before_the_pump_ends(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        receiver = Receiver(httpserver, 200)
        pump = pump_for(store, httpserver)
        pump.start()
        for number in range(5):
            pump.announce(incident(id=f"inc_{number}"))
        pump.stop(timeout_s=20)
        assert len(receiver.ids) == 5

    def test_log_lines_hold_neither_the_secret_nor_the_path_of_the_receiver(
        self, store: RedisStore, httpserver: HTTPServer
    ) -> None:
        httpserver.expect_request("/hook/geheim").respond_with_data(status=500)
        pump = AlertPump(store, webhook(httpserver.url_for("/hook/geheim?token=geheim")), schedule=QUICK)
        with capture_logs() as lines:
            pump.announce(incident())
            pump.pump_once()
        pump.stop()
        assert [line["event"] for line in lines] == ["alert.queued", "alert.failed"]
        assert "geheim" not in str(lines)
        assert SECRET not in str(lines)


PUMP_PROCESS = """
import sys
from tests.alerts.incidents import webhook
from unknot.supervisor.alerts.pump import AlertPump
from unknot.supervisor.store.redis_store import RedisStore

url, run, hook = sys.argv[1:]
pump = AlertPump(RedisStore.connect(url, run), webhook(hook), attempt_limit_s=1.0)
while True:
    pump.pump_once()
"""


@pytest.fixture
def pump_process(
    store: RedisStore, redis_url: str, httpserver: HTTPServer
) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        code = textwrap.dedent(PUMP_PROCESS)
        hook = httpserver.url_for("/hook")
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        env = {**os.environ, "PYTHONPATH": root}
        started.append(subprocess.Popen([sys.executable, "-c", code, redis_url, store.run, hook], env=env))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_pump_that_is_killed_in_the_middle_loses_no_alert_and_makes_no_second_id(
    store: RedisStore, httpserver: HTTPServer, pump_process: Callable[[], subprocess.Popen[bytes]]
) -> None:
    seen: list[str] = []
    reached, release = threading.Event(), threading.Event()

    def answer(request: Request) -> Response:
        seen.append(request.headers["webhook-id"])
        if len(seen) == 2:
            reached.set()
            release.wait(20)
        return Response(status=200)

    httpserver.expect_request("/hook").respond_with_handler(answer)
    announcer = pump_for(store, httpserver)
    told = [incident(id=f"inc_{number}") for number in range(4)]
    for one in told:
        announcer.announce(one)

    victim = pump_process()
    assert reached.wait(30)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    release.set()
    pump_process()
    until(lambda: Outbox(store).deliveries().waiting == 0, limit_s=30)

    assert sorted(set(seen)) == sorted(detected(one, at=AT).id for one in told)
    assert len(seen) == 5, "only the alert whose answer died with the pump is sent again"
    assert Outbox(store).deliveries().ok == 4
