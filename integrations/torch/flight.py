"""Collectives as events: what PyTorch's flight recorder knows, read only once something stands.

`pg_status` costs microseconds and is read at every look of the publisher. Only when an operation has been issued and not
completed, and the issuing thread has neither moved its Python frame nor used CPU time since the look before, the entries
are dumped (milliseconds), once for each standing operation. From then on the group's *queue* is reported as the participant
that waits for the absent ranks, and the issuing thread waits for its queue.

A host thread that stands elsewhere (it sleeps, or waits for a lock while an asynchronous operation is under way) must not be
told as waiting in the collective: so its innermost frame has to be inside torch or in `work.wait()`, and a wait of our own table
goes first.

On Gloo, `state` stays "scheduled" and `retired` tells completion; `pg_config` is empty; the group's number in the recorder
grows with each process group made, so it is learnt from the first entry after the group was formed.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import msgspec
import torch

import unknot
from unknot.graph.events import Arrive, Atom, Clause, Event, Resource, Wait
from unknot.integrations.torch.blocked_call import waits_for_work
from unknot.integrations.torch.issuers import Issuers
from unknot.supervisor.recorder.bystanders import user_threads
from unknot.supervisor.recorder.frames import current_frames
from unknot.supervisor.recorder.sites import short_site
from unknot.supervisor.recorder.slots import Waiting
from unknot.supervisor.recorder.table import WaitTable

_MATCH = ("op", "shape", "dtype", "root")
_CALLS = "distributed_c10d.py"
_TORCH = os.path.dirname(torch.__file__) + os.sep
_OURS = os.path.dirname(os.path.abspath(unknot.__file__))
_HIDDEN = (
    _TORCH,
    _OURS + os.sep,
    *(os.path.realpath(os.path.join(_OURS, folder)) + os.sep for folder in ("integrations", "recovery", "supervisor")),
)


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """A formed group: its resource, its number in the flight recorder, its ranks, and the thread that formed it here."""

    name: str
    generation: int
    recorder_id: int
    members: tuple[str, ...]
    issuer_ident: int

    @property
    def resource(self) -> str:
        """`coll:name@ggeneration`."""
        return f"coll:{self.name}@g{self.generation}"


class _Sample(msgspec.Struct, frozen=True):
    seq: int
    frame: int
    instruction: int
    cpu_s: float


_Issuer = tuple[str, int]


class _Standing(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    host_ticket: int
    queue_ticket: int
    entry: dict[str, Any]
    since: float

    @property
    def site(self) -> str | None:
        """Where it was issued."""
        return entry_site(self.entry)

    @property
    def op(self) -> str:
        """What it is called."""
        return entry_op(self.entry)


def dump(*, entries: bool) -> dict[str, Any]:
    """The flight recorder's state; `entries` with stacks, else the status only."""
    from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]

    loaded: dict[str, Any] = pickle.loads(
        _dump_fr_trace(includeCollectives=entries, includeStackTraces=entries, onlyActive=False)
    )
    return loaded


def newest_recorder_id() -> int | None:
    """The recorder's number of the group that issued last, None where the recorder is switched off."""
    entries = dump(entries=True)["entries"]
    return int(entries[-1]["pg_id"]) if entries else None


class CollectiveSource:
    """Adds the standing collectives of this process to its snapshots."""

    def __init__(self, table: WaitTable, *, cpu_time: Callable[[int], float] | None = None) -> None:
        self.errors = 0
        self.dumps = 0
        self._table = table
        self._groups: dict[str, Watched] = {}
        self._issuers: dict[str, Issuers] = {}
        self._samples: dict[_Issuer, _Sample] = {}
        self._standing: dict[_Issuer, _Standing] = {}
        self._cpu_time = cpu_time if cpu_time is not None else thread_cpu_s

    def watch(self, group: Watched) -> None:
        """A group was formed; replaces its older generation."""
        self.forget(group.name)
        self._issuers[group.name] = Issuers(
            group.recorder_id, group.issuer_ident, dump=lambda: list(dump(entries=True)["entries"])
        )
        self._groups[group.name] = group

    def forget(self, name: str) -> None:
        """The group's generation is over."""
        self._groups.pop(name, None)
        self._issuers.pop(name, None)
        for kept in (self._samples, self._standing):
            for issuer in [one for one in kept if one[0] == name]:
                del kept[issuer]

    def collect(self, standing: dict[str, Waiting]) -> Sequence[Event]:
        """Arrivals of every group, and the waits of those that stand."""
        groups = list(self._groups.values())
        if not groups:
            return ()
        try:
            status = dump(entries=False)["pg_status"]
            return [event for g in groups for event in self._of_group(g, status, standing)]
        except Exception:  # noqa: BLE001 - torch is shutting down; counted
            self.errors += 1
            return ()

    def _of_group(
        self, group: Watched, status: dict[str, Any], waits: dict[str, Waiting]
    ) -> list[Event]:
        of_group = status.get(str(group.recorder_id), {})
        enqueued = int(of_group.get("last_enqueued_collective", -1))
        completed = int(of_group.get("last_completed_collective", -1))
        resource = Resource(r=group.resource, type="collective", members=group.members, match=_MATCH)
        events: list[Event] = [resource]
        standing: dict[str, _Standing] = {}
        for ident, participant in self._issuing(group, enqueued, waits):
            events += [self._table.start_of(participant), Arrive(p=participant, r=group.resource, seq=max(enqueued, 0))]
            stands = self._look(group, ident, enqueued, completed)
            if stands is not None:
                standing[participant] = stands
        return events + self._waits(group, standing, waits)

    def _issuing(self, group: Watched, enqueued: int, waits: dict[str, Waiting]) -> list[tuple[int, str]]:
        others = [thread.ident for thread in user_threads() if thread.ident is not None]
        issuers = self._issuers.get(group.name)
        idents = issuers.look(enqueued, others, may_dump=bool(waits)) if issuers is not None else []
        slots = [(ident, self._table.slot_of(ident)) for ident in idents]
        return [(ident, slot.participant) for ident, slot in slots if slot is not None]

    def _look(self, group: Watched, ident: int, enqueued: int, completed: int) -> _Standing | None:
        issuer = (group.name, ident)
        frame = current_frames().get(ident)
        if enqueued <= completed or frame is None:
            self._samples.pop(issuer, None)
            self._standing.pop(issuer, None)
            return None
        sample = _Sample(enqueued, id(frame), frame.f_lasti, self._cpu_time(ident))
        before = self._samples.get(issuer)
        self._samples[issuer] = sample
        if before is None or not _same_place(before, sample):
            self._standing.pop(issuer, None)
            return None
        known = self._standing.get(issuer)
        if known is None:
            known = self._stand(group, ident, frame)
            if known is not None:
                self._standing[issuer] = known
        return known

    def _stand(self, group: Watched, ident: int, frame: FrameType) -> _Standing | None:
        in_torch, in_wait = _in_torch(frame), waits_for_work(frame)
        if not (in_torch or in_wait):
            return None
        self.dumps += 1
        open_ones = [e for e in dump(entries=True)["entries"] if not e["retired"]]
        open_ones = [e for e in open_ones if int(e["thread_id"]) == ident]
        entries = [e for e in open_ones if e["pg_id"] == group.recorder_id and not e["is_p2p"]]
        if not entries or not _stands_in_one_of(entries, open_ones, None if in_wait else frame):
            return None
        entry = min(entries, key=lambda e: int(e["collective_seq_id"]))
        return _Standing(
            seq=int(entry["collective_seq_id"]),
            host_ticket=self._table.next_ticket(),
            queue_ticket=self._table.next_ticket(),
            entry=entry,
            since=int(entry["time_created_ns"]) / 1e9,
        )

    def _waits(self, group: Watched, standing: dict[str, _Standing], waits: dict[str, Waiting]) -> list[Event]:
        """The queue waits for the first operation that stands, and each thread that stands in one waits for the queue."""
        if not standing:
            return []
        queue = f"{self._table.source}/queue:{group.name}"
        first = min(standing.values(), key=lambda one: one.seq)
        need = Clause(k=1, of=(Atom(r=group.resource, seq=first.seq),))
        events: list[Event] = [_arrival(group, issuer, stands) for issuer, stands in standing.items()]
        events.append(
            Wait(p=queue, t=first.since, ticket=first.queue_ticket, needs=(need,), site=first.site, label=first.op)
        )
        host = Clause(k=1, of=(Atom(p=queue),))
        for issuer, one in standing.items():
            if issuer not in waits:
                events.append(Wait(p=issuer, t=one.since, ticket=one.host_ticket, needs=(host,), site=one.site, label=one.op))
        return events


def _arrival(group: Watched, issuer: str, stands: _Standing) -> Arrive:
    entry = stands.entry
    return Arrive(
        p=issuer, r=group.resource, seq=stands.seq, op=stands.op, shape=str(entry["input_sizes"]),
        dtype=str(entry["input_dtypes"]), site=stands.site,
    )  # fmt: skip


def _same_place(before: _Sample, now: _Sample) -> bool:
    same = (before.seq, before.frame, before.instruction) == (now.seq, now.frame, now.instruction)
    return same and now.cpu_s - before.cpu_s < 0.001


def _stands_in_one_of(
    entries: list[dict[str, Any]], open_ones: list[dict[str, Any]], frame: FrameType | None
) -> bool:
    """Whether the thread stands in an operation of this group, not in another one while these are under way beside it.

    With `frame`, inside of torch: its place in the user's code is where one of them was issued. Without, in `work.wait()`: there is
    nothing open but them.
    """
    if frame is None:
        return len(open_ones) == len(entries)
    here = _site(_places(frame))
    return any(entry_site(entry) == here for entry in entries)


def _places(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def _site(places: Iterable[tuple[str, int]]) -> str | None:
    return next((short_site(file, line) for file, line in places if not file.startswith(_HIDDEN)), None)


def _in_torch(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_TORCH)


def thread_cpu_s(ident: int) -> float:
    """CPU seconds that a thread of this process has used."""
    return time.clock_gettime(time.pthread_getcpuclockid(ident))


def entry_op(entry: dict[str, Any]) -> str:
    """The operation as it was called: `reduce_scatter`, also where Gloo makes it of an `all_reduce`."""
    called = next((f["name"] for f in entry.get("frames", ()) if f["filename"].endswith(_CALLS)), None)
    name = called if called is not None else str(entry["profiling_name"]).split(":")[-1]
    return str(name).removesuffix("_single").removesuffix("_into_tensor")


def entry_site(entry: dict[str, Any]) -> str | None:
    """Where the user's code issued the operation: the innermost frame outside torch and Unknot."""
    return _site((frame["filename"], int(frame["line"])) for frame in entry.get("frames", ()))
