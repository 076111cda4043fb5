"""One attempt to deliver an alert, and what follows from it.

Standard Webhooks asks: 2xx is success and everything else is not; redirects are not followed; 410 switches
the receiver off; 429, 502, 503 and 504 mean that it is overloaded, so everything for it waits. Every other
failure is tried again with growing, jittered pauses, also 4xx: a receiver that is put up wrongly is often
mended within the hour. After that hour the alert is given up, since a training run's news is then stale; the
record of it stays. (The specification's example goes on for three days: right for payments, wrong here.)
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.supervisor.alerts.alert import Alert
from unknot.supervisor.alerts.webhook import Endpoint, headers

if TYPE_CHECKING:
    import httpx2

ATTEMPT_LIMIT_S = 15.0
_THROTTLED = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The pauses between attempts.

    `first_s`, then doubling up to `most_s`, given up `give_up_s` after the first.
    """

    first_s: float = 2.0
    most_s: float = 300.0
    give_up_s: float = 3600.0

    def pause_s(self, number: int, chance: float) -> float:
        """The pause after attempt `number` (from 1); `chance` in [0, 1) spreads it over its upper half.

        Exponential back-off with equal jitter: M. Brooker, "Exponential Backoff And Jitter", AWS, 2015.
        """
        doubled = min(self.first_s * 2.0 ** min(number - 1, 32), self.most_s)
        return doubled * (0.5 + 0.5 * chance)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one attempt.

    A status, or none and why. `retry_after_s`: the pause that the receiver asked for.
    """

    status: int | None = None
    retry_after_s: float | None = None
    why: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What follows.

    `pause_s` before the next attempt, `hold_s` during which nothing is sent to this receiver.
    """

    then: Literal["delivered", "retry", "given up"]
    pause_s: float = 0.0
    hold_s: float = 0.0
    disable: bool = False
    why: str = ""


def decide(attempt: Attempt, *, number: int, age_s: float, schedule: Schedule, chance: float) -> Verdict:
    """What follows from attempt `number` (from 1) of an alert that is `age_s` old.

    Pure: `chance` is the jitter.
    """
    if attempt.status is not None and HTTPStatus.OK <= attempt.status < HTTPStatus.MULTIPLE_CHOICES:
        return Verdict(then="delivered")
    why = _why(attempt)
    if attempt.status == HTTPStatus.GONE:
        return Verdict(then="given up", disable=True, why=f"{why}: the receiver wants no more alerts")
    left_s = schedule.give_up_s - age_s
    asked_s = attempt.retry_after_s or 0.0
    if left_s <= 0 or asked_s > left_s:
        return Verdict(
            then="given up", why=f"{why} at attempt {number}; no more after {schedule.give_up_s:g} s"
        )
    pause_s = min(max(schedule.pause_s(number, chance), asked_s), left_s)
    return Verdict(
        then="retry", pause_s=pause_s, hold_s=pause_s if attempt.status in _THROTTLED else 0.0, why=why
    )


def _why(attempt: Attempt) -> str:
    if attempt.status is None:
        return attempt.why
    if HTTPStatus.MULTIPLE_CHOICES <= attempt.status < HTTPStatus.BAD_REQUEST:
        return f"status {attempt.status}: redirects are not followed, set webhook_url to the final address"
    return f"status {attempt.status}"


def retry_after_s(text: str | None, *, now: float) -> float | None:
    """The seconds that `Retry-After` asks for, as a number or a date; None if it says nothing usable."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(aware.timestamp() - now, 0.0)


class Sender:
    """Posts alerts to one receiver. Opens its connection at the first attempt."""

    def __init__(self, endpoint: Endpoint, *, limit_s: float = ATTEMPT_LIMIT_S) -> None:
        self.endpoint = endpoint
        self._limit_s = limit_s
        self._client: httpx2.Client | None = None

    def send(self, alert: Alert, *, at: float) -> Attempt:
        """One attempt at `at` (seconds since the epoch).

        Never raises for what the network or the receiver does.
        """
        import httpx2

        content = alert.body.encode()
        signed = headers(alert, self.endpoint.secret, at=at)
        try:
            with self._open().stream("POST", self.endpoint.url, content=content, headers=signed) as answer:
                asked_s = retry_after_s(answer.headers.get("retry-after"), now=datetime.now(UTC).timestamp())
                return Attempt(status=answer.status_code, retry_after_s=asked_s)
        except httpx2.TimeoutException:
            return Attempt(why=f"no answer within {self._limit_s:g} s")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            return Attempt(why=f"not reached ({type(error).__name__})")

    def close(self) -> None:
        """Give the connection back."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> httpx2.Client:
        import httpx2

        if self._client is None:
            self._client = httpx2.Client(timeout=self._limit_s, follow_redirects=False)
        return self._client


def require_extra() -> None:
    """Raise ConfigError unless the packages that send alerts are installed."""
    try:
        import httpx2  # noqa: F401
        import standardwebhooks  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            what=f"alerts need the package {error.name}", todo="pip install 'unknot[alerts]'"
        ) from error
