"""What a driver holds of what it started, and the single-controller style: `group.call("update", batch)`.

A group is called through the run's mailboxes (recovery/calls.py), since a call of Ray would be lost with a rank that is killed, and would
stand behind `run` for ever in one that has it. Another member is called through Ray, which is how its methods are called anyway. Either
way the wait of the driver is one that the detector knows. What could never be answered is refused before anything is sent.
"""

from __future__ import annotations

import difflib
import inspect
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import ray
from ray import cloudpickle

from unknot.integrations.ray.decorators import MAIN
from unknot.integrations.ray.start import whole_message
from unknot.recovery import calls
from unknot.recovery.errors import CallFailed, ConfigError, WaitTimeout
from unknot.recovery.values import limit_s
from unknot.supervisor.process import Process

# Entered by Unknot itself, in an order of its own.
_ENTERED = frozenset({"setup", "run", "state_dict", "load_state_dict", MAIN})
Failed = Callable[[], Exception | None]


class MemberHandle:
    """One member. `actor` is the Ray handle, for the member's own methods."""

    def __init__(self, member: str, actor: Any, calling: MemberCalls | None = None) -> None:
        self.member = member
        self.actor = actor
        self._calling = calling

    def call(self, method: str, *args: Any, timeout: timedelta | None = None, **kwargs: Any) -> Any:
        """Run a method of the member, and wait for its result.

        Args:
            method: its name; further arguments go to it.
            timeout: None waits for ever. After it the method may still come to its end.

        Raises:
            ConfigError: no such method, a rank of a group (call the group), or a member that is in `run`. Nothing was sent.
            TypeError: the method does not take these arguments. Nothing was sent.
            CallFailed: the method raised (its error is the cause), or the member's process was lost meanwhile.
            WaitTimeout: (a TimeoutError) it did not end in time.
            DeadlockInterrupted: the wait was ended to free a deadlock.
        """
        limit_s(timeout, name=f"call of {self.member}: timeout")
        if self._calling is None:
            raise ConfigError(
                what=f"{self.member} cannot be called alone: it is a rank",
                todo="call its group: all ranks take part in a step",
            )
        return self._calling.call(self, method, _Arguments(args, kwargs), timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        return MemberHandle, (self.member, self.actor, self._calling)

    def __repr__(self) -> str:
        return f"<MemberHandle {self.member}>"


class GroupHandle:
    """The ranks of one collective group, in order."""

    def __init__(self, name: str, members: Sequence[MemberHandle], calling: GroupCalls | None = None) -> None:
        self.name = name
        self.members = tuple(members)
        self._calling = calling

    def call(self, method: str, *args: Any, timeout: timedelta | None = None, **kwargs: Any) -> list[Any]:
        """Run a method on every rank as one step of the group; the results in the order of the ranks.

        It counts once all ranks have ended it, and it counts once: when a rank is lost meanwhile, the group re-forms and repeats
        it, with the same arguments, from the state before.

        Args:
            method: its name; further arguments go to it, and are pickled.
            timeout: None waits for ever. After it the call may still come to count.

        Raises:
            ConfigError: no such method, or the trainer has a `run` of its own. Nothing was sent.
            TypeError: the method does not take these arguments, or they do not pickle. Nothing was sent.
            CallFailed: it raised on a rank, or was broken off three times. All ranks are back where they stood before it.
            RunFailed: a member has failed for good: the first one, and its error.
            WaitTimeout: (a TimeoutError) not all ranks answered in time.
            DeadlockInterrupted: the wait was ended to free a deadlock; the call may still come to count.
        """
        limit_s(timeout, name=f"call of group {self.name}: timeout")
        if self._calling is None:
            raise ConfigError(
                what=f"the trainers of group {self.name} have a run() of their own, which is entered by Unknot",
                todo="leave run() out of the class to call its methods, or send it a message through a mailbox",
            )
        return self._calling.call(method, _Arguments(args, kwargs), timeout)

    def __repr__(self) -> str:
        return f"<GroupHandle {self.name} of {len(self.members)}>"


class _Arguments(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class GroupCalls:
    """The calls of one group, made by the driver, one at a time. Declares the group's mailboxes: make it before the ranks start."""

    def __init__(self, process: Process, cls: Any, *, group: str, ranks: Sequence[str], failed: Failed) -> None:
        self._cls = class_of(cls)
        self._group = group
        self._ranks = tuple(ranks)
        self._failed = failed
        self._turn = threading.Lock()
        ack: Any = "manifest" if hasattr(self._cls, "state_dict") else "step"
        self._calls, self._replies = calls.declare_calls(process.store, process.recorder, group, self._ranks, ack=ack)

    def call(self, method: str, given: _Arguments, timeout: timedelta | None) -> list[Any]:
        """As GroupHandle.call."""
        check_method(self._cls, method, given)
        replies = self._asked(method, packed(tuple(given)), timeout)
        failure = next((reply.failure for reply in replies if reply.failure is not None), None)
        if failure is not None:
            error = calls.error_of(failure, target=f"group {self._group}", method=method)
            raise error from (cloudpickle.loads(failure.cause) if failure.cause else None)
        return [cloudpickle.loads(reply.body) for reply in replies]

    def empty_step(self, timeout: timedelta | None) -> None:
        """One step of the group in which nothing is done."""
        self._asked("", b"", timeout)

    def _asked(self, method: str, body: bytes, timeout: timedelta | None) -> list[calls.Reply]:
        with self._turn:
            end = None if timeout is None else time.monotonic() + timeout.total_seconds()
            call = calls.Call(id=secrets.token_hex(8), method=method, body=body)
            self._calls.send(call)
            return self._answers(call.id, end)

    def _answers(self, call: str, end: float | None) -> list[calls.Reply]:
        """The ranks' replies, all of the same generation: the newest in which the call counted."""
        found: dict[str, calls.Reply] = {}
        while True:
            newest = max((reply.generation for reply in found.values()), default=0)
            due = [rank for rank in self._ranks if rank not in found or found[rank].generation < newest]
            if not due:
                return [found[rank] for rank in self._ranks]
            left = None if end is None else max(end - time.monotonic(), 0.0)
            item = self._replies.receive(left, sender=due[0], give_up=self._failed)
            self._replies.ack(item)
            if item.value.call == call:  # else of a call that was given up, or is carried out again
                found[due[0]] = item.value


class MemberCalls:
    """The calls of one member that is in no group. `concurrent`: it takes calls while it is in `run`."""

    def __init__(self, cls: Any, options: Mapping[str, Any] | None) -> None:
        self._cls = class_of(cls)
        self._concurrent = is_concurrent(cls, options)

    def call(self, handle: MemberHandle, method: str, given: _Arguments, timeout: timedelta | None) -> Any:
        """As MemberHandle.call."""
        check_method(self._cls, method, given)
        if hasattr(self._cls, "run") and not self._concurrent:
            raise ConfigError(
                what=f"{handle.member} is in its run(), and takes calls one after the other: this one would wait for the end of that",
                todo="give it room (ray={'max_concurrency': 2}), leave run() out of the class, or send it a message through a mailbox",
            )
        timeout_s = None if timeout is None else timeout.total_seconds()
        try:
            return ray.get(getattr(handle.actor, method).remote(*given.args, **given.kwargs), timeout=timeout_s)
        except ray.exceptions.GetTimeoutError as late:
            resource = f"{method} of {handle.member}"
            raise WaitTimeout(participant="the driver", resource=resource, timeout_s=timeout_s or 0.0) from late
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or error
            raise CallFailed(
                target=handle.member, method=method, member=handle.member, error=whole_message(error)
            ) from cause


def packed(value: Any) -> bytes:
    """A value as bytes, classes and functions of the user's main script included."""
    body: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return body


def class_of(cls: Any) -> Any:
    """The user's class inside of a Ray actor class."""
    return cls.__ray_metadata__.modified_class


def has_run(cls: Any) -> bool:
    """Whether a Ray actor class has a `run` for Unknot to enter."""
    return hasattr(class_of(cls), "run")


def is_concurrent(cls: Any, options: Mapping[str, Any] | None) -> bool:
    """Whether its actors run several calls at a time, by options given now or at its decorator."""
    declared: Mapping[str, Any] = getattr(cls, "_default_options", None) or {}
    allowed = {**declared, **(options or {})}
    return int(allowed.get("max_concurrency") or 1) > 1


def check_method(cls: Any, method: str, given: _Arguments) -> None:
    """That the class has such a method, which takes these arguments.

    Raises:
        ConfigError: it has none of that name, or one that is not called like this; proposes the near one.
        TypeError: it does not take these arguments.
    """
    found = {name for name, _ in inspect.getmembers(cls, callable) if not name.startswith("_") and name not in _ENTERED}
    if method not in found:
        near = difflib.get_close_matches(method, found, n=1)
        known = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(found)) or 'none that can be called'}"
        entered = " that can be called: Unknot enters it itself" if method in _ENTERED else ""
        raise ConfigError(what=f"{cls.__name__} has no method {method!r}{entered}", todo=known)
    inspect.signature(getattr(cls, method)).bind(None, *given.args, **given.kwargs)
