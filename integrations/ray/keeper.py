"""Keeps the members of a run going: enters their code, sees how it ended, has them started again or gives them up.

Ray starts a lost actor's process again by itself (`max_restarts`), in which the member registers before anything else, and so fences its
predecessor. But every call that was running on the lost process has failed, the one that had entered the member's code too; so
that one is made again here. This thread only looks and decides (recovery/restart.py says what); it never fights Ray. A driver that is
busy or waits for something else keeps its members all the same.

Rejected: `max_task_retries`, by which Ray repeats the call itself. It knows no policy, no intensity and no pause, and repeats the calls
of user code too.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import psutil
import ray
import structlog

from unknot.graph.errors import UnknotError
from unknot.integrations.ray import start as started
from unknot.integrations.ray.deaths import Deaths
from unknot.integrations.ray.start import whole_message
from unknot.recovery.marks import mark
from unknot.recovery.registration import MemberInfo, crashed, end_other, one_member
from unknot.recovery.restart import Decision, Ending, RestartPolicy, decide, pause_s
from unknot.supervisor.process import Process

_SLICE_S = 0.2
# How long a lost member's new process may take to register before its call is made anyway, to learn what has become of it.
_CALL_ANYWAY_S = 10.0
_log = structlog.get_logger("unknot.keeper")


class Kept:
    """One member under the keeper's eyes."""

    def __init__(self, member: str, actor: Any, enter: Callable[[], Any], policy: RestartPolicy) -> None:
        self.member = member
        self.actor = actor
        self.enter = enter
        self.policy = policy
        self.main = enter()
        self.restarts: list[float] = []
        self.enter_at: float | None = None
        self.enter_by = 0.0
        self.incarnation: int | None = None  # that its code was entered in, as far as is known
        self.lost_at: int | None = None  # the incarnation that was expected when its last loss was decided on

    def still_lives(self, info: MemberInfo) -> bool:
        """Whether the process that its code was entered in is there: Ray could not reach it, or not yet."""
        return info.state == "alive" and info.incarnation == self.incarnation and not is_gone(info)

    def has_lost(self, info: MemberInfo) -> bool:
        """Whether a call that failed means that a process was lost; else it was not reached, or is not there yet."""
        return not self.is_missing(info) and not self.still_lives(info)

    def is_missing(self, info: MemberInfo) -> bool:
        """Whether nobody has registered since its last loss was decided on."""
        return self.lost_at == info.incarnation and info.state == "starting"


class _End(NamedTuple):
    """How a member's code ended: the kind, the outcome, in words, and the error."""

    ending: Ending
    outcome: str
    how: str
    error: Exception | None


class Keeper:
    """All members of one run. Reading `outcomes` and `failures` needs no lock.

    outcomes: how each member that has ended for good did: `done`, `closed`, `idle`, `failed`. failures: (member, error) in the order
    seen.
    """

    def __init__(self, process: Process, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.outcomes: dict[str, str] = {}
        self.failures: list[tuple[str, Exception]] = []
        self.restarts = 0
        self.failed_looks = 0
        self._process = process
        self._clock = clock
        self._kept: dict[str, Kept] = {}
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._closing = False
        self._deaths = Deaths()
        self._thread = threading.Thread(target=self._loop, name="unknot-keeper", daemon=True)

    @property
    def kept(self) -> Mapping[str, Kept]:
        """All members that were ever added, by name."""
        return self._kept

    def add(self, kept: Kept) -> None:
        """Keep one more member; its code has been entered."""
        self._kept[kept.member] = kept
        if not self._thread.is_alive() and not self._stop.is_set():
            self._thread.start()

    def wait_news(self, timeout_s: float) -> None:
        """Until a member has ended for good, `timeout_s` seconds at most."""
        with self._news:
            known = len(self.outcomes)
            self._news.wait_for(lambda: len(self.outcomes) > known, timeout_s)

    def wait_all(self, timeout_s: float) -> None:
        """Until all members have ended, `timeout_s` seconds at most. (Two threads that wait for one reference of Ray may hang.)"""
        with self._news:
            self._news.wait_for(lambda: self.outcomes.keys() >= self._kept.keys(), timeout_s)

    def closing(self) -> None:
        """The run ends: nobody is started again any more."""
        self._closing = True

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self._deaths.close()

    def restart(self, member: str, why: str) -> str:
        """Replace a member's process if it is stopped (SIGSTOP); in a word what was done.

        Whoever merely holds the interpreter lock for long is not killed for it. A process on another host cannot be looked at.
        """
        kept = self._kept.get(member)
        if kept is None or member in self.outcomes:
            return "gone"
        info = one_member(self._process.store, member)
        if info.host != socket.gethostname():
            return f"refused: it runs on {info.host}"
        try:
            state = psutil.Process(info.pid).status()
        except psutil.NoSuchProcess:
            return "gone"
        if state != psutil.STATUS_STOPPED:
            return f"refused: its process is not stopped but {state}"
        _log.warning("keeper.member.replaced", member=info.source, why=why)
        os.kill(info.pid, signal.SIGKILL)  # Ray asks a process to end, and one that is stopped never does
        return "restarting"

    def _loop(self) -> None:
        while not self._stop.is_set():
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - the keeper outlives what it meets, and says what it was
                self.failed_looks += 1
                _log.error("keeper.look.failed", error=whole_message(error))
                self._stop.wait(_SLICE_S)

    def _look(self) -> None:
        self._enter_due()
        self._look_for_deaths()
        waited = {k.main: k for k in self._kept.values() if k.member not in self.outcomes and k.enter_at is None}
        if not waited:
            self._stop.wait(_SLICE_S)
            return
        done, _ = started.raw_wait(list(waited), num_returns=1, timeout=_SLICE_S, fetch_local=False)
        for ref in done:
            self._ended(waited[ref])

    def _look_for_deaths(self) -> None:
        """Free at once what a lost process had; whether it is started again is decided when Ray tells of it."""
        unknown = {m for m in self._kept if m not in self.outcomes and not self._deaths.knows(m)}
        gone = self._deaths.look()
        if unknown:
            gone += self._deaths.watch(info for info in self._process.members() if info.member in unknown)
        for member, incarnation in gone:
            if self._kept[member].policy.kind != "temporary" and not self._closing and member not in self.outcomes:
                self._note_crash(member, incarnation, "its process is gone")

    def _enter_due(self) -> None:
        for kept in self._kept.values():
            if kept.enter_at is None or self._clock() < kept.enter_at or self._closing:
                continue
            # A call of an actor that is being restarted hangs for a while and fails.
            info = one_member(self._process.store, kept.member)
            if self._clock() >= kept.enter_by or info.state == "alive":
                kept.enter_at, kept.incarnation = None, info.incarnation
                kept.main = kept.enter()

    def _ended(self, kept: Kept) -> None:
        try:
            outcome: str = started.raw_get(kept.main)
        except Exception as error:  # noqa: BLE001 - every failure of a member is a decision, or is told as RunFailed
            self._decide(kept, _End(_ending_of(error), "failed", whole_message(error), error))
        else:
            self._decide(kept, _End("returned", outcome, "its run returned", None))

    def _decide(self, kept: Kept, end: _End) -> None:
        info = one_member(self._process.store, kept.member)
        decision = self._decision(kept, end, info)
        if end.error is not None:
            _log.warning("keeper.member.lost", member=kept.member, how=end.how, again=decision.again, why=decision.why)
        if decision.again:
            self._again(kept, end, decision, info)
        else:
            self._over(kept, end)

    def _decision(self, kept: Kept, end: _End, info: MemberInfo) -> Decision:
        if self._closing or end.outcome in ("closed", "idle"):
            return Decision(again=False, why="the run ends")
        if end.ending == "crashed" and kept.is_missing(info) and isinstance(end.error, ray.exceptions.ActorDiedError):
            return Decision(again=False, why="Ray does not start it again")
        if end.ending == "crashed" and not kept.has_lost(info):
            return Decision(again=True, why="its process could not be reached", step=1)
        return decide(kept.policy, end.ending, restarts=kept.restarts, now=self._clock())

    def _again(self, kept: Kept, end: _End, decision: Decision, info: MemberInfo) -> None:
        if end.ending != "crashed" or kept.has_lost(info):
            kept.restarts.append(self._clock())
            self.restarts += 1
        if end.ending != "crashed":
            ray.kill(kept.actor, no_restart=False)
        if is_gone(info):
            self._note_crash(kept.member, info.incarnation, end.how)
        kept.lost_at = one_member(self._process.store, kept.member).incarnation
        pause = pause_s(kept.policy, decision.step) * random.uniform(0.75, 1.25)
        kept.enter_at = self._clock() + pause
        kept.enter_by = kept.enter_at + _CALL_ANYWAY_S

    def _note_crash(self, member: str, incarnation: int, how: str) -> None:
        try:
            store, at = self._process.store, self._process.clock()
            if crashed(store, member, incarnation, how=how).done:
                mark(store, (member, incarnation + 1), "noticed", at)
                mark(store, (member, incarnation + 1), "fenced", self._process.clock())
        except UnknotError as error:
            _log.warning("keeper.crash.not_said", member=member, error=str(error))

    def _over(self, kept: Kept, end: _End) -> None:
        if end.error is not None:
            self.failures.append((kept.member, end.error))
            self.note_end(kept.member, "dead", end.how)
        with self._news:
            self.outcomes[kept.member] = end.outcome
            self._news.notify_all()

    def note_end(self, member: str, state: Any, error: str) -> None:
        """The member's process may have been unable to say it itself; what it said itself stands."""
        try:
            end_other(self._process.store, member, state=state, error=error)
        except UnknotError as refused:
            _log.warning("keeper.end.not_said", member=member, error=str(refused))


def is_gone(info: MemberInfo) -> bool:
    """Whether the process of a member's present incarnation is known to be gone: it ran on this host, and does not any more."""
    if info.state != "alive" or info.host != socket.gethostname():
        return False
    try:
        return psutil.Process(info.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _ending_of(error: Exception) -> Ending:
    """An error of user code is told as RayTaskError, also where it is about another actor that died."""
    if isinstance(error, ray.exceptions.RayTaskError) or getattr(error, "actor_init_failed", False):
        return "raised"
    lost = (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError)
    return "crashed" if isinstance(error, lost) else "raised"
