"""The ranks' side of `GroupHandle.call`: a trainer without `run` carries out the driver's calls, each as one step of its group.

So a call is all or nothing: it counts once all ranks have ended it; a group that lost a rank, or was broken to free a deadlock, goes
back and repeats it, with the arguments that it had; and calls since the newest manifest are carried out again, whose replies nobody waits
for any more. A method that raises ends the generation: all ranks go back to before the call, and its caller gets the error.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any, NoReturn

from ray import cloudpickle

from unknot.integrations.primitives import progress
from unknot.integrations.ray.calls import packed
from unknot.integrations.torch.group import Former, Group
from unknot.integrations.torch.steps import Ledger, Step, steps
from unknot.recovery import calls
from unknot.recovery.errors import FencedError, RunClosed, StaleGeneration, StepAborted, WaitTimeout
from unknot.recovery.items import VALUE_LIMIT
from unknot.recovery.mailbox import Mailbox

# So many calls at most are carried out again after a rank was lost.
_MANIFEST_EVERY = 20
# A call that was broken off so often has failed.
_ATTEMPTS = 3
_LOOK_EVERY = timedelta(seconds=1)


def serve(trainer: Any, former: Former, ledger: Ledger) -> NoReturn:
    """Carry out calls for as long as this generation stands.

    Raises:
        RunClosed: the run ends.
        StaleGeneration: a call has failed on this rank; others as whatever the group is broken by.
        StepAborted: the step of one call was broken off too often, also when nothing was carried out in it any more.
    """
    group = former.group
    assert group is not None
    if not ledger.has_state and ledger.seq == 0:
        ledger.go_on_at(_agreed_start(ledger, group))
    server = _Server(trainer, former, group, ledger)
    manifest_every = _MANIFEST_EVERY if ledger.has_state else None
    for step in steps(manifest_every=manifest_every, attempts=2 * _ATTEMPTS):
        with step:
            server.serve(step)
        progress("call")
    raise AssertionError("steps without an end have ended")


def _agreed_start(ledger: Ledger, group: Group) -> int:
    """One rank looks for all."""
    assert group.rendezvous is not None
    if group.rank == 0:
        group.rendezvous.set("answered", str(calls.answered_by_all(ledger.process.store, group.slot)))
    return int(group.rendezvous.get("answered"))


class _Server:
    """Serves calls in one generation."""

    def __init__(self, trainer: Any, former: Former, group: Group, ledger: Ledger) -> None:
        process = ledger.process
        self._trainer = trainer
        self._former = former
        self._group = group
        self._ledger = ledger
        self._store = process.store
        self._is_deaf = process.listener is None  # with observation off nobody tells it that a rank was lost
        self._replies = Mailbox(calls.replies_name(group.name), process.store, process.recorder)

    def serve(self, step: Step) -> None:
        """The body of a step: the next call."""
        call = self._next(step)
        failure = calls.failure_of(self._store, call.id)
        if failure is None and step.attempt >= _ATTEMPTS:
            raise self._failed(call, self._aborted(step))
        body = b"" if failure is not None or not call.method else self._carried_out(call)
        reply = calls.Reply(call=call.id, generation=self._group.generation, body=body, failure=failure)
        step.when_counted(lambda: self._answer(reply, step.seq))

    def _next(self, step: Step) -> calls.Call:
        call: calls.Call
        while self._is_deaf:
            with contextlib.suppress(WaitTimeout):
                call = step.take(calls.calls_name(self._group.name), 1, timeout=_LOOK_EVERY)[0].value
                return call
            self._former.over(TimeoutError())
            self._group.check()
        call = step.take(calls.calls_name(self._group.name), 1)[0].value
        return call

    def _answer(self, reply: calls.Reply, seq: int) -> None:
        self._replies.send(reply)
        calls.note_answered(self._store, self._group.slot, seq)

    def _aborted(self, step: Step) -> StepAborted:
        """What breaks the group each time, such as a ring of waits that the call itself closes, ends the call and not the run."""
        reason = self._ledger.last_reason or "unknown"
        return StepAborted(group=self._group.name, seq=step.seq, attempts=step.attempt, reason=reason)

    def _carried_out(self, call: calls.Call) -> bytes:
        try:
            args, kwargs = cloudpickle.loads(call.body)
            body = packed(getattr(self._trainer, call.method)(*args, **kwargs))
            if len(body) > VALUE_LIMIT // 2:
                raise ValueError(f"its result has {len(body)} bytes; return a reference to it (a path, an ObjectRef)")
        except (RunClosed, FencedError):
            raise
        except Exception as error:
            if self._former.over(error) is not None:
                raise
            raise self._failed(call, error) from error
        return body

    def _failed(self, call: calls.Call, error: Exception) -> StaleGeneration:
        """Say so to all, first to the store: whoever comes after the break must see it."""
        slot, text = self._group.slot, calls.text_of(error)
        failure = calls.Failure(source=f"{slot.member}#{slot.incarnation}", error=text, cause=_pickled(error))
        calls.note_failure(self._store, slot, call.id, failure)
        reason = f"call {call.method} failed on rank {slot.rank}: {text[:200]}"
        self._former.end(self._group, reason)
        return StaleGeneration(group=slot.name, generation=slot.generation, reason=reason)


def _pickled(error: Exception) -> bytes:
    """The error's bytes, empty where they could not be read again."""
    try:
        body = packed(error)
        cloudpickle.loads(body)
    except Exception:  # noqa: BLE001 - what users' errors do when pickled is theirs; the text is told in any case
        return b""
    return body if len(body) < VALUE_LIMIT // 4 else b""
