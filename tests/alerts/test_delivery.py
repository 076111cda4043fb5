"""What follows from an attempt: pure decisions, and the real exchange with a receiver."""

from __future__ import annotations

import json
import socket
import threading
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_httpserver import HTTPServer
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from werkzeug import Request, Response

from tests.alerts.incidents import AT, SECRET, incident
from unknot.recovery.errors import ConfigError
from unknot.supervisor.alerts.alert import detected
from unknot.supervisor.alerts.delivery import Attempt, Schedule, Sender, decide, retry_after_s
from unknot.supervisor.alerts.webhook import Endpoint, check_secret, endpoint, endpoint_of, headers
from unknot.supervisor.config import Config
from unknot.supervisor.config_values import Secret

SCHEDULE = Schedule(first_s=2, most_s=300, give_up_s=3600)


def judge(status: int | None, *, number: int = 1, age_s: float = 0.0, retry_after_s: float | None = None):  # type: ignore[no-untyped-def]  # noqa: ANN201
    attempt = Attempt(status=status, retry_after_s=retry_after_s, why="not reached")
    return decide(attempt, number=number, age_s=age_s, schedule=SCHEDULE, chance=0.5)


class TestDecision:
    @pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
    def test_any_2xx_is_a_delivery(self, status: int) -> None:
        assert judge(status).then == "delivered"

    @pytest.mark.parametrize("status", [None, 301, 302, 307, 308, 400, 401, 404, 408, 500, 501])
    def test_any_other_answer_is_tried_again_and_holds_up_nobody_else(self, status: int | None) -> None:
        verdict = judge(status)
        assert (verdict.then, verdict.hold_s, verdict.disable) == ("retry", 0.0, False)
        assert verdict.pause_s > 0

    def test_a_redirect_says_what_to_do(self) -> None:
        assert "set webhook_url to the final address" in judge(302).why

    def test_410_gives_up_and_switches_the_receiver_off(self) -> None:
        verdict = judge(410)
        assert (verdict.then, verdict.disable) == ("given up", True)

    @pytest.mark.parametrize("status", [429, 502, 503, 504])
    def test_an_overloaded_receiver_gets_nothing_until_the_next_attempt(self, status: int) -> None:
        verdict = judge(status)
        assert verdict.then == "retry"
        assert verdict.hold_s == verdict.pause_s > 0

    def test_the_pause_that_the_receiver_asks_for_is_kept(self) -> None:
        assert judge(429, retry_after_s=90).pause_s == 90
        assert judge(429, retry_after_s=0).pause_s > 0

    def test_after_an_hour_it_is_given_up(self) -> None:
        assert judge(500, number=30, age_s=3599).then == "retry"
        assert judge(500, number=30, age_s=3600).then == "given up"

    def test_a_receiver_that_asks_for_more_than_the_hour_is_given_up(self) -> None:
        assert judge(503, retry_after_s=7200).then == "given up"

    def test_the_last_attempt_is_made_when_the_hour_is_over(self) -> None:
        assert judge(500, number=30, age_s=3599).pause_s == 1

    @given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
    def test_pauses_grow_to_their_most_and_are_spread_over_half_of_it(
        self, number: int, chance: float
    ) -> None:
        pause_s = SCHEDULE.pause_s(number, chance)
        assert 1 <= pause_s <= 300
        assert pause_s <= SCHEDULE.pause_s(number + 1, chance)

    @given(
        st.one_of(st.none(), st.integers(200, 599)),
        st.integers(1, 99),
        st.floats(0, 9999),
        st.floats(0, 0.99),
    )
    def test_no_alert_is_tried_for_longer_than_the_hour(
        self, status: int | None, number: int, age_s: float, chance: float
    ) -> None:
        verdict = decide(Attempt(status=status), number=number, age_s=age_s, schedule=SCHEDULE, chance=chance)
        assert verdict.then != "retry" or age_s + verdict.pause_s <= SCHEDULE.give_up_s + 1e-6

    def test_retry_after_is_read_as_seconds_and_as_a_date(self) -> None:
        later = format_datetime(datetime.fromtimestamp(AT + 60, UTC), usegmt=True)
        assert retry_after_s("120", now=AT) == 120
        assert retry_after_s(later, now=AT) == 60
        assert retry_after_s(later, now=AT + 900) == 0
        assert retry_after_s("soon", now=AT) is None
        assert retry_after_s(None, now=AT) is None


class TestReceiver:
    @pytest.mark.parametrize(
        "text", ["", "MfKQ9r8GKYqr", "whsec_", "whsec_???", "whsec_c2hvcnQ=", f"whsec_{'QUFB' * 40}"]
    )
    def test_a_secret_that_cannot_sign_is_refused_and_not_repeated(self, text: str) -> None:
        with pytest.raises(ConfigError, match="openssl rand") as caught:
            check_secret(Secret.of(text))
        assert not text.removeprefix("whsec_") or text.removeprefix("whsec_") not in str(caught.value)

    def test_a_secret_without_padding_is_a_secret(self) -> None:
        check_secret(Secret.of(SECRET.rstrip("=")))

    def test_an_address_without_a_secret_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="no secret to sign"):
            endpoint_of(Config(webhook_url="https://host/x"), {})
        assert endpoint_of(Config(), {}) is None

    @pytest.mark.parametrize(
        "url", ["ftp://host/x", "file:///etc/passwd", "gopher://x", "https://", "host/x"]
    )
    def test_only_http_and_https_are_taken(self, url: str) -> None:
        with pytest.raises(ConfigError):
            endpoint(url, Secret.of(SECRET))

    def test_a_receiver_shows_neither_its_path_nor_its_secret(self) -> None:
        found = endpoint("https://hooks.example/T0/geheim", Secret.of(SECRET))
        assert found.shown == "https://hooks.example/…"
        assert "geheim" not in found.fingerprint
        assert SECRET not in repr(found)

    def test_the_signature_is_made_for_the_time_of_the_attempt(self) -> None:
        alert = detected(incident(), at=AT)
        first, second = (
            headers(alert, Secret.of(SECRET), at=AT),
            headers(alert, Secret.of(SECRET), at=AT + 60),
        )
        assert first["webhook-id"] == second["webhook-id"]
        assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 60
        assert first["webhook-signature"] != second["webhook-signature"]


def sender_to(server: HTTPServer, *, limit_s: float = 5.0) -> Sender:
    return Sender(Endpoint(url=server.url_for("/hook"), secret=Secret.of(SECRET)), limit_s=limit_s)


def now() -> float:
    return datetime.now(UTC).timestamp()


class TestExchange:
    def test_the_receiver_can_verify_the_exact_bytes(self, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/hook", method="POST").respond_with_data(status=204)
        sender, alert = sender_to(httpserver), detected(incident(), at=AT)
        assert sender.send(alert, at=now()).status == 204
        sender.close()
        request, _ = httpserver.log[0]
        body = request.get_data()
        assert body == alert.body.encode()
        assert Webhook(SECRET).verify(body, dict(request.headers)) == json.loads(alert.body)
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(body + b" ", dict(request.headers))
        assert request.headers["webhook-id"] == alert.id
        assert request.headers["content-type"] == "application/json"

    def test_a_redirect_is_not_followed(self, httpserver: HTTPServer) -> None:
        elsewhere = {"location": httpserver.url_for("/elsewhere")}
        httpserver.expect_request("/hook").respond_with_data(status=307, headers=elsewhere)
        sender = sender_to(httpserver)
        assert sender.send(detected(incident(), at=AT), at=now()).status == 307
        sender.close()
        assert [request.path for request, _ in httpserver.log] == ["/hook"]

    def test_the_pause_that_is_asked_for_arrives(self, httpserver: HTTPServer) -> None:
        httpserver.expect_request("/hook").respond_with_data(status=429, headers={"retry-after": "17"})
        sender = sender_to(httpserver)
        assert sender.send(detected(incident(), at=AT), at=now()) == Attempt(status=429, retry_after_s=17)
        sender.close()

    def test_a_receiver_that_hangs_is_left_after_the_limit(self, httpserver: HTTPServer) -> None:
        done = threading.Event()

        def hang(_request: Request) -> Response:
            done.wait(20)
            return Response(status=200)

        httpserver.expect_request("/hook").respond_with_handler(hang)
        sender = sender_to(httpserver, limit_s=0.3)
        try:
            assert sender.send(detected(incident(), at=AT), at=now()) == Attempt(why="no answer within 0.3 s")
        finally:
            done.set()
            sender.close()

    def test_a_receiver_that_is_not_there_is_an_attempt_and_no_error(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}/hook?token=geheim"
            sender = Sender(Endpoint(url=url, secret=Secret.of(SECRET)), limit_s=2)
            attempt = sender.send(detected(incident(), at=AT), at=now())
            sender.close()
        assert attempt.status is None
        assert "not reached" in attempt.why
        assert "geheim" not in attempt.why
