"""One attempt of one step of a member that is no trainer."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from unknot.recovery.answers import ask_as_member
from unknot.recovery.errors import (
    ConfigError,
    DeadlockInterrupted,
    FencedError,
    StepWouldHang,
    StoreUnavailable,
    WaitTimeout,
)
from unknot.recovery.items import VALUE_LIMIT, Item, pickled
from unknot.recovery.mailbox import Mailbox
from unknot.recovery.points import reached
from unknot.recovery.step_buffer import Buffer, Publication, Send, seed_of
from unknot.recovery.values import limit_s, whole
from unknot.recovery.weights import Published, Version, Weights

if TYPE_CHECKING:
    from unknot.recovery.steps import MemberSteps

T = TypeVar("T")
State = Literal["new", "open", "committed", "undone", "unknown"]
# unknown: Redis did not say in time whether the commit or the roll-back was carried out.
TRANSITIONS: dict[State, tuple[State, ...]] = {
    "new": ("open",),
    "open": ("committed", "undone", "unknown"),
    "committed": (),
    "undone": (),
    "unknown": ("committed", "undone"),
}


class Step:
    """One step: everything it does is committed together when its block ends, or not at all.

    Attributes:
        seq: its number, from 0; the same when it is run again.
        attempt: how often this process ran it before.
        seed: decided by the run's seed, the member and `seq`.
        id: the same in each attempt; for outside systems that know a request again by a key.
    """

    def __init__(self, steps: MemberSteps, seq: int, attempt: int) -> None:
        self._steps = steps
        self._store = steps.store
        self._recorder = steps.recorder
        self._buffer = Buffer()
        self._held_before: dict[str, int] = {}
        self.seq = seq
        self.attempt = attempt
        self.seed = seed_of(steps.seed, steps.recorder.member, seq)
        self.id = f"{steps.store.run}:{steps.recorder.member}:{seq}"
        self.state: State = "new"
        self.thread: threading.Thread | None = None
        self.participant = ""

    def __repr__(self) -> str:
        return f"<Step {self.seq} of {self._recorder.member}, attempt {self.attempt}, {self.state}>"

    def move(self, state: State) -> None:
        """Pass to another state; AssertionError for one that cannot follow."""
        assert state in TRANSITIONS[self.state], f"{self!r} cannot become {state}"
        self.state = state

    # --- what comes in ---

    def receive(self, mailbox: str, *, sender: str | None = None, timeout: timedelta | None = None) -> Item:
        """The next item of a mailbox; consumed by the commit, back in its place if the step is undone.

        Args:
            mailbox: its name.
            sender: only what this member sent; None: whatever is next.
            timeout: None waits for ever.

        Raises:
            TimeoutError: nothing came in time.
            StepWouldHang: it could only be a message that this step has not sent yet.
            ConfigError: no such mailbox, this member may not receive there, or `timeout` is no timedelta.
        """
        self._check_open()
        box = self._box(mailbox)
        timeout_s = limit_s(timeout)
        while True:
            item = self._next_item(box, sender, timeout_s)
            reached("step.received", self._recorder.member)
            if self._steps.drop is None or not self._steps.drop(item):
                self._buffer.received.append(item)
                return item
            self._buffer.dropped.append(item)

    def _next_item(self, box: Mailbox, sender: str | None, timeout_s: float | None) -> Item:
        if not self._could_only_be_mine(box, sender):
            return box.receive(timeout_s, sender=sender)
        try:
            return box.receive(0, sender=sender)
        except WaitTimeout:
            raise StepWouldHang(member=self._recorder.member, mailbox=box.name, seq=self.seq) from None

    def _could_only_be_mine(self, box: Mailbox, sender: str | None) -> bool:
        """Whether nobody but this step can supply an item: it is the only sender, and nobody else has one to put back."""
        me = self._recorder.member
        if not self._buffer.sent_to(box.name) or (sender is None and box.settings().senders != (me,)):
            return False
        if sender not in (None, me):
            return False
        others = {one.decode() for one in self._store.command("HKEYS", self._store.key("holding", box.name))}
        return not others - {me}

    def take(self, mailbox: str, n: int, *, timeout: timedelta | None = None) -> list[Item]:  # noqa: ARG002
        """For the steps of a trainer group alone, where all ranks get the same items. ConfigError here."""
        raise ConfigError(
            what=f"{self._steps.recorder.member} took {n} items of {mailbox}, but it is no rank of a trainer group",
            todo=f"use step.receive({mailbox!r}), {n} times",
        )

    def latest(
        self, name: str, *, max_lag: int | None = None, exact: int | None = None, timeout: timedelta | None = None
    ) -> Published:
        """Published weights; waits, visibly, until there are any that will do.

        Args:
            name: of the weights.
            max_lag: how many versions they may be behind this step: their n is at least `seq - max_lag`. None: any will do.
            exact: this very version.
            timeout: None waits for ever.

        Raises:
            TimeoutError: none came in time.
            WeightsGone: the exact version is not kept any more.
            ConfigError: both `max_lag` and `exact`, or one that is no whole number; `timeout` is no timedelta.
        """
        self._check_open()
        if max_lag is not None and exact is not None:
            raise ConfigError(what=f"latest({name!r}) with max_lag and exact", todo="give one of the two")
        least = None if max_lag is None else max(self.seq - whole(max_lag, name="max_lag", least=0), 0)
        wanted = None if exact is None else whole(exact, name="exact", least=0)
        return self._weights(name).latest(least, limit_s(timeout), exact=wanted)

    def read(self, key: str, default: Any = None) -> Any:
        """What this member wrote last under `key`, in this step or an earlier one; `default` if it never did. ConfigError: no key."""
        self._check_open()
        _check_key("read", key)
        body = self._buffer.writes.get(key)
        if body is None:
            body = self._store.command("HGET", self._store.key("state", self._recorder.member), key)
        return default if body is None else pickle.loads(body)

    def once(self, key: str, fn: Callable[..., T], *args: Any) -> T:
        """The result of `fn(*args)`, called once for this step: a later attempt, also after a crash, gets the kept result.

        A process that dies between the call and the keeping calls again: hand `step.id` to the outside system where that matters.

        Raises:
            ConfigError: the result does not pickle, or is too large, and the call has been made; or no key, no function: then not.
        """
        self._check_open()
        _check_key("once", key)
        _check_function("once", fn)
        kept = self._once(key)
        if kept is None:
            reached("step.once.before", self._recorder.member)
            result = fn(*args)
            reached("step.once.called", self._recorder.member)
            kept = self._once(key, self._packed(result, f"the result of once({key!r})"))
            reached("step.once.kept", self._recorder.member)
        assert kept is not None
        value: T = pickle.loads(kept)
        return value

    def _once(self, key: str, *result: bytes) -> bytes | None:
        me = (self._recorder.member, self._recorder.incarnation)
        answer = ask_as_member(self._store, "step_once", *me, self.seq, key, *result)
        return bytes(answer.rest[0]) if answer.word == "kept" else None

    # --- what goes out ---

    def send(self, mailbox: str, value: Any, *, to: str | None = None, meta: Any = None) -> None:
        """Put `value` into a mailbox when the step commits; the commit waits for room.

        A step that has received exactly one item passes that item's origin on.

        Args:
            mailbox: its name.
            value: anything that pickle takes.
            to: the only member that may receive it; None: whoever may receive there.
            meta: a small companion of the value.

        Raises:
            ConfigError: no such mailbox, this member may not send there, the value does not pickle or is too large, or the
                step sends more than the mailbox ever holds.
        """
        self._check_open()
        box = self._box(mailbox)
        box.check_send(to)
        capacity = box.settings().capacity
        if self._buffer.sent_to(mailbox) >= capacity:
            raise ConfigError(
                what=f"step {self.seq} of {self._recorder.member} sends more than the {capacity} items that mailbox {mailbox} "
                "holds: there would never be room for all",
                todo="send a list of values as one item, or raise capacity=",
            )
        self._buffer.sends.append(Send(mailbox, box.packed(value, meta), to or ""))

    def publish(self, name: str, state: Any) -> Version:
        """Publish weights as version `seq + 1` when the step commits.

        Raises:
            ConfigError: this member may not publish here (`run.weights`), they are too large, or do not pickle.
        """
        self._check_open()
        weights = self._weights(name)
        weights.check_publish()
        body, digest = weights.packed(state)
        self._buffer.publications[name] = Publication(name, self.seq + 1, digest, body)
        return Version(name=name, generation=0, n=self.seq + 1, digest=digest)

    def write(self, key: str, value: Any) -> None:
        """Keep `value` as this member's own state under `key` when the step commits. ConfigError as `send`."""
        self._check_open()
        _check_key("write", key)
        self._buffer.writes[key] = self._packed(value, f"state {key!r} of {self._recorder.member}")

    def defer(self, fn: Callable[..., object], *args: Any) -> None:
        """Call `fn(*args)` after the commit; not at all when the process dies before. ConfigError: no function."""
        self._check_open()
        _check_function("defer", fn)
        self._buffer.deferred.append(lambda: fn(*args))

    # --- the block ---

    def __enter__(self) -> Step:
        self._steps.begin(self)
        self.participant = self._recorder.participant()
        self.thread = threading.current_thread()
        self._held_before = self._steps.holds(self.participant)
        self.move("open")
        reached("step.begun", self._recorder.member)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            if error is None:
                return self._steps.commit(self, self._buffer)
            self._undo_after(error)
            # Swallowed: the loop gives the same step again.
            return isinstance(error, DeadlockInterrupted)
        finally:
            self._steps.ended(self, self._buffer)

    def _undo_after(self, error: BaseException) -> None:
        """Undo; where that fails too, the first error says more, unless it was to be swallowed."""
        try:
            self._steps.undo(self, self._buffer, reason=str(error))
        except (StoreUnavailable, FencedError) as second:
            if isinstance(error, DeadlockInterrupted):
                raise
            error.add_note(f"step {self.seq} could not be undone: {second}")

    def locks_taken(self) -> dict[str, int]:
        """The locks that this step's thread took in it and still holds: name -> token."""
        now = self._steps.holds(self.participant)
        return {name: token for name, token in now.items() if self._held_before.get(name) != token}

    # --- helpers ---

    def _check_open(self) -> None:
        if self.state != "open":
            raise ConfigError(what=f"{self!r} is not open", todo="use the step inside of its block: with step: ...")

    def _box(self, name: str) -> Mailbox:
        return self._steps.box(name)

    def _weights(self, name: str) -> Weights:
        return Weights(name, self._store, self._recorder, keep=self._steps.weights_kept)

    def _packed(self, value: Any, what: str) -> bytes:
        body = pickled(value, what=what)
        if len(body) > VALUE_LIMIT:
            raise ConfigError(
                what=f"{what} has {len(body)} bytes (limit {VALUE_LIMIT})", todo="keep a reference to it (a path) instead"
            )
        return body


def _check_key(call: str, key: Any) -> None:
    if not isinstance(key, str) or not key:
        raise ConfigError(what=f"step.{call}({key!r}) has no key", todo=f"give a text, such as step.{call}('answer', ...)")


def _check_function(call: str, fn: Any) -> None:
    if not callable(fn):
        raise ConfigError(
            what=f"step.{call} was given {fn!r} to call, which is no function",
            todo="give the function and its arguments apart: fn, *args",
        )
