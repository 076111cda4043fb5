"""`Run.checkpoint`: the driver asks a trainer group for a manifest, and waits until it is committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from unknot.graph.events import Atom, Clause
from unknot.integrations.ray.calls import GroupCalls, class_of
from unknot.recovery import checkpoint_wishes as wishes
from unknot.recovery.checkpoints import committed_manifests
from unknot.recovery.errors import ConfigError, WaitTimeout
from unknot.recovery.manifest import ManifestId
from unknot.recovery.ports import Recorder, Store
from unknot.supervisor.incidents import Incident
from unknot.supervisor.monitor.telling import checkpoint_failed

_LOOK_EVERY_S = 0.05
_TOLD_WITHIN_S = 3.0


class Saving(NamedTuple):
    """A group that can be asked for a manifest.

    calling: where the driver makes its steps. is_over: whether all of its ranks have ended.
    """

    group: str
    calling: GroupCalls | None
    is_over: Callable[[], bool]


class Around(NamedTuple):
    """What the driver waits with. failed: how the run has failed. pause: waits so many seconds."""

    store: Store
    recorder: Recorder
    failed: Callable[[], Exception | None]
    pause: Callable[[float], object]


def has_state(cls: Any) -> bool:
    """Whether a trainer's Ray actor class has a state to save."""
    return hasattr(class_of(cls), "state_dict")


def chosen(groups: dict[str, Saving], name: str | None) -> Saving:
    """The group that is meant. ConfigError: there is none with a state, or several."""
    if name is None and len(groups) == 1:
        return next(iter(groups.values()))
    if name is not None and name in groups:
        return groups[name]
    known = ", ".join(sorted(groups))
    if not known:
        raise ConfigError(
            what="run.checkpoint found no trainer group with a state",
            todo="start one with run.group, of a class with state_dict and load_state_dict",
        )
    what = "run.checkpoint of several groups" if name is None else f"run.checkpoint of group {name!r}, which has no state here"
    raise ConfigError(what=what, todo=f"say which one: group= one of {known}")


def checkpoint(around: Around, saving: Saving, timeout: timedelta | None) -> ManifestId:
    """As Run.checkpoint, of one group."""
    end = None if timeout is None else time.monotonic() + timeout.total_seconds()
    wanted = _Wanted(around.store, saving)
    try:
        if saving.calling is not None:
            saving.calling.empty_step(timeout)
        need = Clause(k=1, of=(Atom(external=f"a manifest of group {saving.group}"),))
        recorder = around.recorder
        with recorder.wait(recorder.next_ticket(), [need], interruptible=False, deadline_s=_left(end)):
            while (found := wanted.found()) is None:
                if error := around.failed():
                    raise error
                if end is not None and time.monotonic() >= end:
                    raise WaitTimeout(
                        participant=recorder.participant(), resource=f"a manifest of group {saving.group}",
                        timeout_s=0.0 if timeout is None else timeout.total_seconds(),
                    )  # fmt: skip
                around.pause(_LOOK_EVERY_S)
        return found
    finally:
        wishes.forget_wish(around.store, saving.group, wanted.token)


def unsaved(store: Store, run: str, incidents: Callable[[], Iterable[Incident]] | None) -> dict[str, str]:
    """By group, in a sentence: the saves that failed and that no manifest came after.

    A run's last save may fail as it ends: then the monitor is given some seconds to tell of it too.

    Args:
        store: of the run.
        run: its name.
        incidents: reads those that are told; None where nobody tells any.
    """
    failed = wishes.failed_saves(store)
    headlines = {checkpoint_failed(one, run=run, now=0.0).headline for one in failed.values()}
    end = time.monotonic() + _TOLD_WITHIN_S
    while headlines and incidents is not None and time.monotonic() < end:
        if headlines <= {one.headline for one in incidents()}:
            break
        time.sleep(_LOOK_EVERY_S)
    return {group: one.told() for group, one in failed.items()}


def _left(end: float | None) -> float | None:
    return None if end is None else max(end - time.monotonic(), 0.0)


class _Wanted:
    """One wish, and what became of it."""

    def __init__(self, store: Store, saving: Saving) -> None:
        self._store = store
        self._saving = saving
        self._before = max((one.number for one in committed_manifests(store)), default=0)
        self.token = wishes.wish(store, saving.group)

    def found(self) -> ManifestId | None:
        """The manifest that was asked for, None while there is hope.

        Raises:
            CheckpointFailed: it could not be made.
            ConfigError: the group has ended, and left none.
        """
        store, group = self._store, self._saving.group
        over = self._saving.is_over()
        begun = wishes.begun(store, group, self.token)
        failed = wishes.failed_saves(store).get(group)
        if failed is not None and (over or begun == (failed.generation, failed.seq)):
            raise failed.error()
        manifests = [one for one in committed_manifests(store) if one.group == group]
        for one in manifests:
            if over or (begun is not None and one.number > self._before and one.seq >= begun.seq):
                return one.id
        if over:
            raise ConfigError(what=f"group {group} has ended without a manifest", todo="see its members' outcomes: run.wait()")
        return None
