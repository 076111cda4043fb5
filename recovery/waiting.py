"""How a request stands in a queue of Redis until it is served, interrupted, closed, fenced or out of time.

One rule makes every race harmless: *a wake-up is a hint, the script is the truth*. Whoever serves a waiter changes
the state in one script and pushes a word to the waiter's own wake key. The waiter pops that key, and whatever came
(also nothing, after a few seconds) it asks the script again with the same ticket. So a wake-up that was lost, with
a broken connection or a restarted Redis, costs a slice of time and never a lost grant; one that came twice is
nothing. Leaving is the same question in another mode: the script either takes the waiter out of the queue or says
how it was served in the meantime. A grant that came first wins over a time-out or an interrupt that came second:
then the wait has ended by itself, and giving the resource back would only hide it.

Rejected: polling (wakes late or loads Redis: measured for 8 processes, 33 % use of the lock against 93 %), and
publish/subscribe (forgets what nobody heard).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from unknot.graph.events import Clause, Resource
from unknot.recovery.answers import Answer, refuse_fenced
from unknot.recovery.errors import ConfigError, DeadlockInterrupted, RunClosed, WaitTimeout
from unknot.recovery.ports import Recorder, Store, Ticket

Mode = Literal["wait", "try", "leave"]
# How long a lost wake-up may go unnoticed.
SLICE_S = 5.0
# What says in any mode that the request was not served and stands nowhere.
_NOT_SERVED = ("busy", "full", "empty", "left")


class Request(NamedTuple):
    """One request of one participant: what it is for, how to ask the script in a mode, how to give back a grant.

    `others`: what `needs` names beside `resource`.
    """

    participant: str
    ticket: int
    resource: Resource
    needs: tuple[Clause, ...]
    ask: Callable[[Mode], Answer]
    give_back: Callable[[Answer], object]
    others: tuple[Resource, ...] = ()


def obtain(store: Store, recorder: Recorder, request: Request, *, timeout_s: float | None) -> Answer:
    """Ask, and wait if need be, until the request is served; the script's answer `granted`.

    `timeout_s`: seconds, None for ever, 0 to not wait at all.

    Raises:
        WaitTimeout: not served in time.
        DeadlockInterrupted: the supervisor ended this wait.
        RunClosed: the run has ended.
        FencedError: a newer incarnation of this member stands.
        ConfigError: `timeout_s` is no such number.
    """
    _check_limit(request, timeout_s)
    mode: Mode = "wait" if timeout_s is None or timeout_s > 0 else "try"
    answer = _checked(store, recorder, request, request.ask(mode))
    if answer.word != "queued":
        return _served(request, answer, timeout_s)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    resources = (request.resource, *request.others)
    with recorder.wait(request.ticket, request.needs, resources, deadline_s=timeout_s) as announced:
        try:
            answer = _stand(store, recorder, request, announced=announced, deadline=deadline)
        except BaseException:
            _leave_quietly(request)
            raise
        return _served(request, answer, timeout_s)


def _check_limit(request: Request, timeout_s: Any) -> None:
    number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
    if timeout_s is None or (number and timeout_s >= 0):  # not a number is not
        return
    raise ConfigError(
        what=f"timeout_s={timeout_s!r} of a wait for {request.resource.r} is no time",
        todo="give seconds from 0 up, or None to wait for ever",
    )


def _stand(store: Store, recorder: Recorder, request: Request, *, announced: Ticket, deadline: float | None) -> Answer:
    """Until the request is no longer queued, an interrupt came through the recorder, or `deadline` has passed."""
    wake_key = store.key("wake", f"{request.participant}|{request.ticket}")
    while True:
        left = SLICE_S if deadline is None else deadline - time.monotonic()
        if left > 0:
            store.blocking_pop(wake_key, timeout_s=min(SLICE_S, left))
        if error := announced.poll_interrupt():
            answer = _checked(store, recorder, request, request.ask("leave"))
            if answer.word == "left":
                raise error
            return answer
        passed = deadline is not None and time.monotonic() >= deadline
        answer = _checked(store, recorder, request, request.ask("leave" if passed else "wait"))
        if answer.word != "queued":
            return answer


def _leave_quietly(request: Request) -> None:
    """The waiting thread is leaving by an exception (KeyboardInterrupt, Redis gone): it must not stay in the queue.

    What it was given in this very moment nobody would ever use, so it is given back. The exception under way says
    more than a second failure would.
    """
    with contextlib.suppress(Exception):
        answer = request.ask("leave")
        if answer.word == "granted":
            request.give_back(answer)


def _checked(store: Store, recorder: Recorder, request: Request, answer: Answer) -> Answer:
    if answer.word == "interrupted":
        raise DeadlockInterrupted(participant=request.participant, resource=request.resource.r, incident=answer.text())
    if answer.word == "closed":
        raise RunClosed(run=store.run)
    return refuse_fenced(answer, recorder.member, recorder.incarnation)


def _served(request: Request, answer: Answer, timeout_s: float | None) -> Answer:
    if answer.word in _NOT_SERVED:
        raise WaitTimeout(participant=request.participant, resource=request.resource.r, timeout_s=timeout_s or 0.0)
    return answer
