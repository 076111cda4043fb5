"""Steps of agents, judges and environments: a body that runs again until it has run once.

A step is a transaction of one member. What it receives stays unacknowledged; what it sends, writes and publishes is buffered;
when its block ends one script (`step_commit.lua`), checked against the member's incarnation, does all of it or nothing. So a
crash at any moment leaves either the whole step or none of it: the next incarnation's registration puts the items back and
passes the locks on, and its steps go on at the last committed seq + 1 (`step:<member>`).

Why a loop and a block: `for step in steps(): with step: ...`. A block alone cannot run again, and a decorated function would
hide the loop that users write anyway. The block's exit swallows the interrupt of a deadlock and the loop yields the same seq again.

What a script whose answer was lost did is found out by asking again with the same ticket; when Redis stays away beyond the store's
limit the step is `unknown`, StoreUnavailable is raised, and whoever steps on (this process or the next) first asks Redis how many
steps are committed.

Waiting for room holds nothing. A commit whose mailboxes have no room for all of its items at once stands in the queues of all of
them, as an ordinary wait that the detector sees, and has written nothing. Rejected: to reserve room as it comes, which would be a
lock on each mailbox, taken in any order; and to send what fits, since half a step is what a step must never be.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from unknot.graph.errors import UnknotError
from unknot.graph.events import Atom, Clause, Resource
from unknot.recovery.answers import Answer, ask, ask_as_member
from unknot.recovery.errors import ConfigError, DeadlockInterrupted, RunClosed, StaleWeights, StepAborted
from unknot.recovery.items import Item
from unknot.recovery.lock import forget_hold, holds_of
from unknot.recovery.mailbox import Mailbox, no_origin
from unknot.recovery.points import reached
from unknot.recovery.ports import Recorder, Store
from unknot.recovery.step import Step
from unknot.recovery.step_buffer import Buffer, backoff_s
from unknot.recovery.values import whole
from unknot.recovery.waiting import Mode, Request, obtain
from unknot.recovery.weights import VERSIONS_KEPT


class MemberSteps:
    """The steps of one member's process.

    Args:
        store: of the run.
        recorder: of the process.
        seed: the run's.
        weights_kept: how many versions of published weights stay.
        drop: whether to consume a received item without showing it; None shows all.
        pause: waits so many seconds.
        on_commit: called after each commit.
    """

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        *,
        seed: int = 0,
        weights_kept: int = VERSIONS_KEPT,
        drop: Callable[[Item], bool] | None = None,
        pause: Callable[[float], object] = time.sleep,
        on_commit: Callable[[], object] = lambda: None,
    ) -> None:
        self.store = store
        self.recorder = recorder
        self.seed = seed
        self.weights_kept = weights_kept
        self.drop = drop
        self._pause = pause
        self._on_commit = on_commit
        self._lock = threading.Lock()
        self._open: Step | None = None
        self._boxes: dict[str, Mailbox] = {}
        self._next: int | None = None
        self._unknown: tuple[Step, Buffer] | None = None
        self._attempts = (0, 0)
        self._reason = "unknown"
        self._run_ends = False

    def run(self, *, until: int | None = None, attempts: int = 5) -> Iterator[Step]:
        """The steps from the last committed one on, each again until it is committed.

        Args:
            until: the number of steps of the whole run; None goes on for ever.
            attempts: how often this process may begin one step.

        Raises:
            StepAborted: a step was begun that often.
            RunClosed: the run ends.
            ConfigError: a number that cannot be (at the call, not in the loop); the loop's body did not enter its step.
            FencedError, StoreUnavailable: as every call.
        """
        check_loop(until, attempts)
        return self._loop(until, attempts)

    def _loop(self, until: int | None, attempts: int) -> Iterator[Step]:
        while True:
            seq, attempt = self._position()
            if until is not None and seq >= until:
                return
            if self._run_ends:
                raise RunClosed(run=self.store.run)
            if attempt >= attempts:
                raise StepAborted(group=self.recorder.member, seq=seq, attempts=attempt, reason=self._reason)
            if attempt:
                self._pause(backoff_s(attempt))
            step = Step(self, seq, attempt)
            yield step
            if step.state == "new":
                raise ConfigError(what=f"{step!r} was not entered", todo="for step in unknot.steps(): with step: ...")

    def _position(self) -> tuple[int, int]:
        """The next step and its attempt. What became of an unknown step is found out first."""
        if self._unknown is not None:
            self._resolve(*self._unknown)
        if self._next is None:
            self._next = committed_steps(self.store, self.recorder.member)
        if self._attempts[0] != self._next:
            self._attempts = (self._next, 0)
        return self._attempts

    def _resolve(self, step: Step, buffer: Buffer) -> None:
        done = committed_steps(self.store, self.recorder.member) > step.seq
        if done:
            self._committed(step, step.locks_taken())
        else:
            self.undo(step, buffer)
        self._unknown = self._next = None
        if done:
            buffer.run_deferred()

    # --- for Step ---

    def begin(self, step: Step) -> None:
        """A step's block begins. ConfigError: another one is open, or this one was used before."""
        with self._lock:
            if self._open is not None:
                thread = self._open.thread.name if self._open.thread is not None else "?"
                raise ConfigError(
                    what=f"{self.recorder.member} has step {self._open.seq} open in thread {thread}",
                    todo="a member has one step at a time: end that one first",
                )
            if step.state != "new":
                raise ConfigError(what=f"{step!r} was used already", todo="let the loop over unknot.steps() give the next one")
            self._open = step

    def ended(self, step: Step, buffer: Buffer) -> None:
        """A step's block has ended, one way or another."""
        with self._lock:
            self._open = None
        if step.state == "open":
            step.move("unknown")
            self._unknown = (step, buffer)

    def box(self, name: str) -> Mailbox:
        """The mailbox of that name; its settings are looked up once."""
        return self._boxes.setdefault(name, Mailbox(name, self.store, self.recorder))

    def holds(self, participant: str) -> dict[str, int]:
        """The locks that a thread of this process holds: name -> token."""
        return holds_of(self.store, participant)

    def commit(self, step: Step, buffer: Buffer) -> bool:
        """Commit, or undo for another attempt. True, as `__exit__` answers it.

        Raises:
            ConfigError, StaleWeights: the step can never be committed as it is; it is undone.
            RunClosed: the run ended before there was room; the step is undone.
            StoreUnavailable: Redis did not say; nothing is half done.
        """
        reached("step.commit.before", self.recorder.member)
        locks = step.locks_taken()
        try:
            answer = self._obtain(step, buffer, locks)
        except DeadlockInterrupted as interrupted:
            self.undo(step, buffer, reason=str(interrupted))
            return True
        except (ConfigError, RunClosed):
            self.undo(step, buffer)
            raise
        if answer.word == "conflict":
            self.undo(step, buffer, reason=f"there was a conflict: {answer.text()}")
            self._next = None
            return True
        if answer.word != "committed":
            self.undo(step, buffer)
            raise _refusal(self.store, answer)
        self._run_ends = answer.number(1) == 1
        self._committed(step, locks)
        buffer.run_deferred()
        reached("step.ended", self.recorder.member)
        return True

    def undo(self, step: Step, buffer: Buffer, *, reason: str = "unknown") -> None:
        """Give back what the step received and locked; the next attempt comes after a pause."""
        reached("step.undo.before", self.recorder.member)
        locks = step.locks_taken()
        if buffer.has_received or locks:
            me = (self.recorder.member, self.recorder.incarnation)
            ask_as_member(self.store, "step_rollback", *me, step.participant, buffer.undo_plan(locks))
        self._forget(step, locks)
        step.move("undone")
        self._attempts, self._reason = (step.seq, step.attempt + 1), reason
        reached("step.undo.after", self.recorder.member)

    # --- helpers ---

    def _committed(self, step: Step, locks: dict[str, int]) -> None:
        reached("step.commit.after", self.recorder.member)
        self._forget(step, locks)
        step.move("committed")
        self._on_commit()
        self._next = step.seq + 1

    def _forget(self, step: Step, locks: dict[str, int]) -> None:
        for name in locks:
            forget_hold(self.store, self.recorder, step.participant, name)

    def _obtain(self, step: Step, buffer: Buffer, locks: dict[str, int]) -> Answer:
        """Ask the commit script, standing in the queues of full mailboxes until there is room for everything."""
        ticket, plan, bodies = self.recorder.next_ticket(), buffer.plan(locks), buffer.bodies()
        me = (self.recorder.member, self.recorder.incarnation, step.participant, ticket)

        def ask_commit(mode: Mode) -> Answer:
            answer = ask(self.store, "step_commit", *me, mode, step.seq, self.weights_kept, plan, *bodies)
            if answer.word == "queued":
                reached("step.commit.waiting", self.recorder.member)
            return answer

        boxes = [self.box(name).resource for name in buffer.mailboxes()]
        needs = tuple(Clause(k=1, of=(Atom(r=box.r, op="send"),)) for box in boxes)
        first = boxes[0] if boxes else Resource(r=f"step:{self.recorder.member}", type="event")
        request = Request(step.participant, ticket, first, needs, ask_commit, lambda _: None, tuple(boxes[1:]))
        return obtain(self.store, self.recorder, request, timeout_s=None)


def check_loop(until: int | None, attempts: int) -> None:
    """ConfigError if no loop of steps can have these."""
    if until is not None:
        whole(until, name="until", least=0)
    whole(attempts, name="attempts", least=1)


def committed_steps(store: Store, member: str) -> int:
    """How many steps a member has committed: also the seq of its next one."""
    return int(store.command("HGET", store.key("step", member), "committed") or 0)


def _refusal(store: Store, answer: Answer) -> UnknotError:
    """Why a step can never be committed as it is."""
    if answer.word == "no origin":
        return no_origin(answer.text(0), answer.text(1))
    if answer.word == "unknown":
        name = answer.text()
        return ConfigError(what=f"run {store.run} has no mailbox {name} any more", todo=f"declare it: run.mailbox({name!r})")
    assert answer.word == "stale", answer
    return StaleWeights(
        name=answer.text(0), n=answer.number(1), generation=0, current_n=answer.number(1), current_generation=answer.number(2)
    )
