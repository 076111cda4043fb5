"""`unknot.init` and the run a driver holds: starts the members, waits for them, ends everything it started.

Whatever init starts (a private redis-server, Ray, the monitor) goes onto one exit stack, so that a failure half-way and the end of
the run take the same way out, in reverse order.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import ray
import structlog

from unknot.graph.errors import UnknotError
from unknot.graph.events import Atom, Clause
from unknot.graph.hazards import Hazard
from unknot.integrations.instrument import instrument
from unknot.integrations.ray import asked
from unknot.integrations.ray import start as started
from unknot.integrations.ray.arguments import kept_arguments
from unknot.integrations.ray.asked import Made
from unknot.integrations.ray.calls import GroupCalls, GroupHandle, MemberCalls, MemberHandle, has_run
from unknot.integrations.ray.checkpointing import Around, Saving, checkpoint, chosen, has_state, unsaved
from unknot.integrations.ray.decorators import MAIN, Spec
from unknot.integrations.ray.host import worker_environment
from unknot.integrations.ray.keeper import Keeper, Kept
from unknot.integrations.ray.news import IncidentNews, NewsTeller
from unknot.integrations.ray.start import whole_message
from unknot.recovery.errors import NameTaken, RunClosed, RunFailed, StoreUnavailable
from unknot.recovery.mailbox import Ack, Mailbox, MailboxStatistics, Order
from unknot.recovery.manifest import ManifestId
from unknot.recovery.outcome import Recovery, final_digests, recoveries_of
from unknot.recovery.registration import MemberInfo, expect
from unknot.recovery.values import limit_s
from unknot.recovery.weight_rights import declare_publishers
from unknot.supervisor.incidents import Incident
from unknot.supervisor.members import STARTING
from unknot.supervisor.monitor.lock_orders import LockOrderWatch
from unknot.supervisor.store.hazard_store import HazardStore
from unknot.supervisor.store.incident_store import IncidentStore
from unknot.supervisor.store.kept_incidents import keep_incidents

_SLICE_S = 0.2
_GRACE_S = 8.0
_log = structlog.get_logger("unknot.run")


class Report(msgspec.Struct, frozen=True):
    """How a run ended: each member's outcome, and the incidents it met.

    digests: SHA-256 over the final weights, optimizer and random generators of each trainer group that has a state.
    recoveries: of every member that was started again, how long each part took.
    hazards: locks of the run that its members take in orders that another schedule could turn into a deadlock.
    unsaved: by trainer group, in a sentence, that its last checkpoints failed, so that it could not go on from where it ended.
    """

    run: str
    outcomes: dict[str, str]
    incidents: tuple[Incident, ...]
    digests: dict[str, str] = {}
    recoveries: tuple[Recovery, ...] = ()
    hazards: tuple[Hazard, ...] = ()
    unsaved: dict[str, str] = {}


class _Place(NamedTuple):
    """Where in the run a member is: its name, and its rank in a collective group of a size."""

    member: str
    group: str | None = None
    rank: int = 0
    size: int = 1


class Run:
    """One training run, as its driver holds it. Made by `unknot.init`; a context manager."""

    def __init__(self, name: str, driver: started.Driver, cleanup: contextlib.ExitStack) -> None:
        self.name = name
        self._process = driver.process
        self._claim = driver.claim
        self._directory = driver.directory
        self._news = IncidentNews(sys.stderr)
        self._teller = NewsTeller(self._news, lambda: [*self._incidents(quickly=True), *self._hazards(quickly=True)])
        self._cleanup = cleanup
        self._members: dict[str, MemberHandle] = {}
        self._waited_for: list[MemberHandle] = []
        self._mailboxes: list[Mailbox] = []  # whose rights were not compared with the members yet
        self._saving: dict[str, Saving] = {}
        self._called: set[str] = set()  # ranks that the driver calls: they end with the run
        self._keeper = Keeper(driver.process)
        if driver.process.listener is not None:
            driver.process.listener.handle("restart", lambda c: self._keeper.restart(c.participant, c.reason))
        self._closed = False
        if driver.process.table is not None:
            self._teller.start()

    @property
    def redis_url(self) -> str:
        """Where the run's Redis is; holds its password."""
        return self._process.settings.redis

    def group(
        self, cls: Any, *args: Any, size: int, name: str | None = None, ray: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> GroupHandle:
        """Start the ranks of a collective group.

        Args:
            cls: an actor class, `@ray.remote` over `@unknot.trainer`; further arguments go to its constructor.
            size: the number of ranks.
            name: the group's name; by default what the decorator says.
            ray: further actor options of Ray.

        Raises:
            ConfigError: not such a class, a size below 1, arguments or options that do not fit, or Ray refuses; then no rank
                is left, and the name is free.
            NameTaken: a group of that name was started.
            RunClosed: after `close`.
        """
        self._check_open("run.group")
        made = Made(cls, args, kwargs, ray)
        spec = asked.check_made(made, "run.group")
        group = asked.check_own_name("run.group: a group", spec.group if name is None else name)
        prefix = "trainer/" if group == "policy" else f"trainer/{group}-"
        places = [_Place(f"{prefix}{rank}", group, rank, size) for rank in range(asked.check_size(size))]
        ranks = [place.member for place in places]
        calling = None if has_run(cls) else GroupCalls(self._process, cls, group=group, ranks=ranks, failed=self._failure)
        handles = self._start(spec, made, places, call="run.group")
        if calling is None:
            self._waited_for += handles
        else:
            self._called.update(ranks)
        if has_state(cls):
            self._saving[group] = Saving(group, calling, lambda: self._keeper.outcomes.keys() >= set(ranks))
        return GroupHandle(group, handles, calling)

    def spawn(
        self, cls: Any, *args: Any, name: str, ray: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> MemberHandle:
        """Start one member; further arguments go to its constructor.

        Raises:
            ConfigError: not an actor class over one of Unknot's decorators, arguments or options that do not fit, or Ray
                refuses; then nothing is left of it, and the name is free.
            NameTaken: a member of that role and name was started.
            RunClosed: after `close`.
        """
        self._check_open("run.spawn")
        made = Made(cls, args, kwargs, ray)
        spec = asked.check_made(made, "run.spawn")
        place = _Place(f"{spec.role}/{asked.check_own_name('run.spawn: a member', name)}")
        return self._start(spec, made, [place], call="run.spawn")[0]

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise RunClosed(run=self.name, call=call)

    def _start(self, spec: Spec, made: Made, places: Sequence[_Place], *, call: str) -> list[MemberHandle]:
        """All of them, or none. Expected after Ray has taken them: a process registers later, or is known already."""
        for place in places:
            if place.member in self._members:
                raise NameTaken(name=place.member, run=self.name)
        handles: list[MemberHandle] = []
        try:
            args, kwargs = kept_arguments(made.args, made.kwargs)
            made = made._replace(args=args, kwargs=kwargs)
            for place in places:
                calls = MemberCalls(made.cls, made.options) if place.group is None else None
                handles.append(MemberHandle(place.member, self._actor(spec, made, place), calls))
            kept = [Kept(h.member, h.actor, getattr(h.actor, MAIN).remote, spec.restart) for h in handles]
            for place in places:
                expect(self._process.store, place.member, role=spec.role)
        except BaseException as error:
            self._unstart(handles)
            if isinstance(error, UnknotError) or not isinstance(error, Exception):
                raise
            raise asked.refused_by_ray(call, error) from error
        self._members |= {handle.member: handle for handle in handles}
        for one in kept:
            self._keeper.add(one)
        return handles

    def _actor(self, spec: Spec, made: Made, place: _Place) -> Any:
        settings = msgspec.structs.replace(self._process.settings, role=spec.role, **place._asdict())
        options = asked.ray_options(made.options, worker_environment(settings), spec.restart)
        return made.cls.options(**options).remote(*made.args, **made.kwargs)

    def _unstart(self, handles: Sequence[MemberHandle]) -> None:
        for handle in handles:
            try:
                ray.kill(handle.actor)
            except Exception as error:  # noqa: BLE001 - the error that led here says more
                _log.warning("run.actor.not_killed", member=handle.member, error=whole_message(error))
            self._keeper.note_end(handle.member, "done", "")

    def mailbox(
        self, name: str, *, capacity: int = 1024, senders: str | Sequence[str] | None = None,
        receivers: str | Sequence[str] | None = None, ack: Ack = "step", order: Order = "arrival",
        origins: Sequence[str] | None = None,
    ) -> Mailbox:  # fmt: skip
        """Declare a mailbox.

        Args:
            name: its name.
            capacity: how many unconsumed items it takes before a sender waits.
            senders, receivers: member names or patterns such as "agent/*"; None lets anybody, and then nobody can be proved
                to be the only one who could help.
            ack: when what a trainer group takes is consumed: with its `step`, or with the `manifest` that covers it.
            order: `arrival`, or `origin` for runs that are to be repeated exactly.
            origins: with order `origin`, the members that items come from first, in the order of their turns.

        Raises:
            ConfigError: it is declared already with other values, or these cannot be: the message names the one that cannot.
        """
        self._check_open("run.mailbox")
        box = Mailbox(name, self._process.store, self._process.recorder)
        box.declare(capacity, senders, receivers, ack=ack, order=order, origins=origins)
        self._mailboxes.append(box)
        return box

    def weights(self, name: str, *, publishers: str | Sequence[str]) -> None:
        """Declare who publishes weights. Needed only where others than trainers do.

        Args:
            name: of the weights.
            publishers: member names or patterns such as "judge/*".

        Raises:
            ConfigError: declared otherwise already, nobody is named, or a pattern can match no member.
        """
        self._check_open("run.weights")
        declare_publishers(self._process.store, name, publishers)

    def mailbox_statistics(self, name: str) -> MailboxStatistics:
        """A mailbox as it stands. ConfigError when it is not declared."""
        self._check_open("run.mailbox_statistics")
        return Mailbox(name, self._process.store, self._process.recorder).statistics()

    def wait(self, *, timeout: timedelta | None = None) -> Report:
        """Until every trainer's `run` has returned (without such trainers: every member's that has one).

        Raises:
            RunFailed: a member failed; names the first one and its error.
            TimeoutError: `timeout` passed.
            ConfigError: `timeout` is no timedelta, or below zero.
            RunClosed: after `close`.
        """
        self._check_open("run.wait")
        limit_s(timeout, name="run.wait: timeout")
        end = None if timeout is None else time.monotonic() + timeout.total_seconds()
        targets = self._waited_for or [h for h in self._members.values() if h.member not in self._called]
        for started_all in (False, True):
            if started_all:
                self._tell_strays()
            with self._announced(targets, started_all=started_all, end=end):
                while not self._is_over(targets, started_all=started_all):
                    self._keeper.wait_news(_SLICE_S)
                    if end is not None and time.monotonic() >= end:
                        waiting = [h.member for h in targets if h.member not in self._keeper.outcomes]
                        raise TimeoutError(f"run {self.name}: still running after {timeout}: {', '.join(waiting)}")
        LockOrderWatch(self._process.store).look()
        failed = self._unsaved()
        found, hazards = self._incidents(), self._hazards()
        self._news.tell([*found, *hazards])
        store = self._process.store
        return Report(
            self.name, dict(self._keeper.outcomes), tuple(found), final_digests(store), recoveries_of(store), tuple(hazards), failed
        )

    def _tell_strays(self) -> None:
        """Once all have started: a list of rights that matches none of them is misspelt, and its mailbox waits for nobody."""
        members = [one.member for one in self._process.members()]
        for box in self._mailboxes:
            for told in box.unmatched(members):
                _log.warning("mailbox.rights.unmatched", run=self.name, mailbox=box.name, told=told)
        self._mailboxes.clear()

    def _is_over(self, targets: Sequence[MemberHandle], *, started_all: bool) -> bool:
        failure = self._failure()
        if failure is not None:
            raise failure
        if started_all or not targets:
            return all(handle.member in self._keeper.outcomes for handle in targets)
        there = {m.member for m in self._process.members() if m.state != "starting"}
        return all(handle.member in there or handle.member in self._keeper.outcomes for handle in targets)

    def _announced(
        self, targets: Sequence[MemberHandle], *, started_all: bool, end: float | None
    ) -> contextlib.AbstractContextManager[Any]:
        """Until they have started, nobody in the run can be waited for: Ray is."""
        process = self._process
        recorder = process.recorder
        if started_all:
            incarnations = {m.member: m.incarnation for m in process.members()}
            atoms = tuple(Atom(p=f"{h.member}#{incarnations.get(h.member, 1)}") for h in targets)
        else:
            atoms = tuple(Atom(external=f"{STARTING}{h.member}") for h in targets)
        need = Clause(k=len(atoms), of=atoms)
        # The end of the run's time ends the run: nobody is freed by it, so it is a limit and no deadline.
        limit_s = None if end is None else max(end - time.monotonic(), 0.0)
        return recorder.wait(recorder.next_ticket(), [need], interruptible=False, limit_s=limit_s)

    def _failure(self) -> RunFailed | None:
        """How the run has failed, None if it has not."""
        failures = list(self._keeper.failures)
        if not failures:
            return None
        dead = self._dead()
        first = dead[0].member if dead else failures[0][0]
        told = {member: whole_message(failure) for member, failure in failures}
        error = told.get(first) or (dead[0].error if dead else "an unknown error")
        failed = RunFailed(run=self.name, member=first, error=error)
        failed.__cause__ = dict(failures).get(first, failures[0][1])
        return failed

    def _dead(self) -> list[MemberInfo]:
        """The dead members, the first one first; none where Redis is away, since the members' own errors are told in any case."""
        try:
            return sorted((m for m in self._process.members() if m.state == "dead"), key=lambda m: m.ended_at)
        except StoreUnavailable as error:
            _log.warning("run.members.not_read", run=self.name, error=str(error))
            return []

    def incidents(self, *, open_only: bool = True) -> list[Incident]:
        """The run's incidents, oldest first. RunClosed after `close`; they are in its directory then."""
        self._check_open("run.incidents")
        return self._incidents(open_only=open_only)

    def _incidents(self, *, open_only: bool = False, quickly: bool = False) -> list[Incident]:
        store = self._process.observing_store if quickly else self._process.store
        return list(IncidentStore(store).list(open_only=open_only))

    def _hazards(self, *, quickly: bool = False) -> list[Hazard]:
        return HazardStore(self._process.observing_store if quickly else self._process.store).list()

    def checkpoint(self, *, group: str | None = None, timeout: timedelta | None = None) -> ManifestId:
        """Have the trainer group save a manifest at its next step boundary; its id, once it is committed.

        Args:
            group: which one, where several have a state.
            timeout: None waits for ever: a group that waits for something else comes to no step boundary.

        Raises:
            ConfigError: no trainer group has a state, or it is not said which one.
            CheckpointFailed: the manifest could not be made. Training goes on, and the one before it stays the newest.
            RunFailed: a member has failed for good.
            WaitTimeout: (a TimeoutError) it was not committed in time.
        """
        self._check_open("run.checkpoint")
        limit_s(timeout, name="run.checkpoint: timeout")
        process = self._process
        around = Around(process.store, process.recorder, self._failure, self._keeper.wait_news)
        return checkpoint(around, chosen(self._saving, group), timeout)

    def close(self) -> None:
        """End the run: members leave their loops, and all that `init` started is stopped. Twice is once."""
        if self._closed:
            return
        self._closed = True
        with self._cleanup:
            self._teller.stop()
            try:
                self._claim.closing()
            except StoreUnavailable as error:
                _log.warning("run.closing.not_said", run=self.name, error=str(error))
            self._let_go()
            self._tell_unsaved()
            self._leave_incidents()

    def _let_go(self) -> None:
        keeper = self._keeper
        keeper.closing()
        keeper.wait_all(_GRACE_S)
        keeper.stop()
        for handle in self._members.values():
            ray.kill(handle.actor)
            if keeper.outcomes.get(handle.member) in (None, "idle"):
                keeper.note_end(handle.member, "done", "")

    def _unsaved(self) -> dict[str, str]:
        observed = self._process.table is not None
        return unsaved(self._process.store, self.name, self._incidents if observed else None)

    def _tell_unsaved(self) -> None:
        """Who reads no report and watches no incidents would not know that there is nothing to go on from."""
        try:
            for group, told in self._unsaved().items():
                _log.warning("checkpoint.failed", run=self.name, group=group, told=told)
        except StoreUnavailable as error:
            _log.warning("checkpoint.failures.not_read", run=self.name, error=str(error))

    def _leave_incidents(self) -> None:
        """For `supervisor explain` after the run's Redis has ended."""
        try:
            found = self._incidents()
            keep_incidents(self._directory, run=self.name, incidents=found, at=self._process.clock())
            self._news.tell(found)
        except (OSError, ValueError, StoreUnavailable) as error:
            _log.warning("run.incidents.not_kept", run=self.name, error=str(error))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()




def init(
    run: str | None = None, *, redis: str | None = None, config: Mapping[str, Any] | None = None
) -> Run:
    """Start a run as its driver.

    Args:
        run: the run's name; by default one made of the date and the process id.
        redis: the URL of a Redis 6.2 or newer; by default a private one is started and stopped with the run.
        config: settings that go before environment and file, such as {"slow_after_s": 30}.

    Raises:
        ConfigError: an unknown setting, a run name with odd characters, a URL that is none; or this process has a run open, or
            is a member of one.
        StoreUnavailable: Redis is not reached, refuses, or is too old; or none can be started.
        RunBusy: another live driver has this run.
    """
    name, explicit = asked.checked_init(run, redis, config)
    with contextlib.ExitStack() as stack:
        stack.enter_context(asked.only_run(name))
        driver = started.driver_process(stack, name, explicit)
        started.ray_cluster(stack)
        if driver.process.table is not None:
            stack.callback(instrument("ray"))
            started.monitor(stack, driver)
        driver.fresh.keep()
        return Run(name, driver, stack.pop_all())
