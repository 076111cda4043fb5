"""Saving a rank's part of a whole-run checkpoint beside training.

`start` copies the state and returns; a thread of this rank then prepares the manifest, agrees with the other ranks, writes the
shards with torch.distributed.checkpoint (DCP) over a process group of its own, writes the random generators, and answers. The last
answer commits (`unknot.recovery.checkpoints`).

An own process group, because collectives of two threads on one group meet each other's: a save on the training group beside
training hung each time it was tried. It must have been made with an explicit time-out, since `new_group` does not take over the main
group's. `dcp.save` in our own thread rather than `dcp.async_save`: the latter is the same call in a thread of torch's after a second
copy (see staging.py), and what comes before and after it, the agreement and the answer, belongs into the same thread.

The agreement comes first: a rank that cannot prepare (Redis away, another seq) and stayed away would leave the others in DCP's
collectives until the time-out, and the group unusable for the rest of the generation. So all ranks say what they have, and
either all save or none does. It also finds what DCP would lose without a word: of a plain value it keeps one
rank's, so ranks that differ in it would all restore that one.

What fails is counted and told, and training goes on: the manifest before stays the newest.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import structlog
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save

from unknot.integrations.torch import staging
from unknot.integrations.torch.digest import leaf_hashes, state_hash
from unknot.recovery.checkpoint_errors import CheckpointFailed
from unknot.recovery.checkpoint_files import entry_of, sync_directory, write_whole
from unknot.recovery.checkpoint_wishes import note_failed_save
from unknot.recovery.checkpoints import Answered, Checkpoints, Place
from unknot.recovery.errors import FencedError, StoreUnavailable
from unknot.recovery.manifest import FileEntry, Manifest, ManifestId, RankRecord
from unknot.recovery.points import reached

_log = structlog.get_logger("unknot.checkpoint")
_DROP_LIMIT_S = 10.0
_RESULTS_KEPT = 64
_LOOK = "see the cause in the log of this rank"

SaveOutcome = Literal["committed", "waiting", "failed", "dropped"]


class SaveResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one save on this rank.

    outcome: `committed` (by this rank's answer), `waiting` (written; ranks that are slower will commit), `failed`, or `dropped`.
    stall_s: how long `start` held the training up. took_s: until the answer, in the background.
    """

    seq: int
    outcome: SaveOutcome
    stall_s: float
    took_s: float
    manifest: ManifestId = ""
    error: CheckpointFailed | None = None


class SaverStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one rank in one generation. `unkept`: housekeeping after a commit that failed."""

    written: int = 0
    failed: int = 0
    dropped: int = 0
    unkept: int = 0
    last_error: str = ""


class _Vote(msgspec.Struct, frozen=True):
    id: ManifestId
    problem: str
    plain: dict[str, str]


class _Final(msgspec.Struct, frozen=True):
    """What the commit makes final."""

    items: tuple[str, ...]
    covers: dict[str, int]


class _Job:
    """One save under way."""

    def __init__(self, seq: int, staged: staging.Staged, final: _Final) -> None:
        self.seq = seq
        self.staged = staged
        self.final = final
        self.id: ManifestId = ""
        self.began = time.monotonic()
        self.stall_s = 0.0
        self.dropped = False
        self.thread: threading.Thread | None = None


class Saver:
    """Saves one rank's state in one generation of its group.

    Args:
        checkpoints: of the run.
        place: this rank's, in this generation.
        process_group: a Gloo group of all ranks that nothing else uses, made with an explicit time-out.
        limit_s: seconds that one save may take: that time-out and the time to write; `start` waits so long for the save before.
        shut: frees whoever stands in a collective of that group, for `drop`: such as shutting its sockets down.
        told: is given every result, on the saving thread.
        lost: whether another rank is gone: then its death is the news, and not the save that failed by it.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        place: Place,
        *,
        process_group: Any,
        limit_s: float = 300.0,
        shut: Callable[[], object] = lambda: None,
        told: Callable[[SaveResult], object] = lambda _: None,
        lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self.checkpoints = checkpoints
        self.place = place
        self.statistics = SaverStatistics()
        self._group = process_group
        self._limit_s = limit_s
        self._shut = shut
        self._told = told
        self._lost = lost
        self._job: _Job | None = None
        self._results: deque[SaveResult] = deque(maxlen=_RESULTS_KEPT)
        self._lock = threading.Lock()

    def start(
        self, seq: int, state: Any, *, items: Sequence[str] = (), covers: Mapping[str, int] = MappingProxyType({})
    ) -> bool:
        """Save `state` as what comes before step `seq`; whether it was begun. All ranks must call it for the same steps.

        One save is under way at most: an earlier one is waited for, on every rank alike.

        Args:
            seq: the step that comes next when a run goes on from here.
            state: what the trainer's `state_dict` gave; copied before this returns.
            items: ids of the mailbox items whose effect is in this state and that are not acknowledged: the commit does it.
            covers: name of weights -> the newest number published up to this state: once committed, provisional no more.

        Raises:
            StateNotSaveable: something in the state cannot be part of a checkpoint; the error names it.
        """
        began = time.monotonic()
        if not self.drain(self._limit_s):
            self._count_failed(seq, f"the save before it has not ended within {self._limit_s:g} s", "write to a faster disk")
            return False
        job = _Job(seq, staging.stage(state), _Final(tuple(items), dict(covers)))
        job.stall_s = time.monotonic() - began
        job.thread = threading.Thread(target=self._run, args=(job,), name="unknot-checkpoint", daemon=True)
        self._job = job
        job.thread.start()
        return True

    @property
    def saving(self) -> bool:
        """Whether a save is under way."""
        job = self._job
        return job is not None and job.thread is not None and job.thread.is_alive()

    def poll(self) -> tuple[SaveResult, ...]:
        """What has ended since the last call, oldest first; the newest of them where nobody asks for long."""
        with self._lock:
            results = tuple(self._results)
            self._results.clear()
        return results

    def drain(self, timeout_s: float) -> bool:
        """Wait for the save under way; whether none is any more."""
        job = self._job
        if job is not None and job.thread is not None:
            job.thread.join(timeout_s)
        return not self.saving

    def drop(self, timeout_s: float = _DROP_LIMIT_S) -> bool:
        """Give up the save under way, before the group is left; whether its thread has ended.

        The attempt ends with its generation, so nothing needs to be said about it.
        """
        job = self._job
        if job is not None and self.saving:
            job.dropped = True
            self._shut()
        return self.drain(timeout_s)

    def __repr__(self) -> str:
        return f"<Saver {self.place.group} generation {self.place.generation} rank {self.place.rank}>"

    def _run(self, job: _Job) -> None:
        try:
            answered = self._save(job)
        except BaseException as error:  # noqa: BLE001 - DCP's errors are no Exceptions; told and counted
            self._ended_by(job, error)
            return
        if answered.outcome == "over":
            self._ended_by(job, _failed(self.place.group, job.seq, answered.why))
            return
        self._count(written=1)
        if answered.manifest is not None:
            self._committed(answered.manifest, answered.why)
        self._end(job, "committed" if answered.manifest is not None else "waiting", None)

    def _save(self, job: _Job) -> Answered:
        me = self.place.member
        vote = self._prepare(job)
        self._agree(job, vote)
        folder = self.checkpoints.folder(job.id)
        reached("manifest.shards.before", me)
        save(job.staged.state, storage_writer=FileSystemWriter(folder), process_group=self._group)
        reached("manifest.shards.after", me)
        rng_file = f"rng-{self.place.rank}.msgpack"
        write_whole(folder / rng_file, job.staged.rng.to_bytes())
        reached("manifest.rng.after", me)
        record = RankRecord(
            rank=self.place.rank, source=self.place.source, files=self._entries(folder, rng_file), rng=rng_file,
            state_sha256=state_hash(job.staged.state, job.staged.rng), items=job.final.items,
            covers=job.final.covers,
        )  # fmt: skip
        sync_directory(folder.parent)
        reached("manifest.digest.after", me)
        reached("manifest.answer.before", me)
        return self.checkpoints.answer(job.id, self.place, record)

    def _prepare(self, job: _Job) -> _Vote:
        reached("manifest.prepare.before", self.place.member)
        problem, plain = "", {}
        try:
            plain = leaf_hashes(job.staged.state)
            prepared = self.checkpoints.prepare(self.place, job.seq)
            job.id, problem = prepared.id, prepared.why
        except Exception as error:  # noqa: BLE001 - the others must hear of it before this rank gives up
            problem = f"{type(error).__name__}: {error}"
        reached("manifest.prepare.after", self.place.member)
        return _Vote(job.id, problem, plain)

    def _agree(self, job: _Job, vote: _Vote) -> None:
        votes: list[Any] = [None] * self.place.size
        dist.all_gather_object(votes, vote, group=self._group)
        problems = [f"rank {rank}: {one.problem}" for rank, one in enumerate(votes) if one.problem]
        if not problems and len({one.id for one in votes}) > 1:
            problems = [f"the ranks began {', '.join(sorted({one.id for one in votes}))}"]
        problems += [] if problems else _differing(votes)
        if problems:
            raise _failed(self.place.group, job.seq, "; ".join(problems[:4]))

    def _entries(self, folder: Path, rng_file: str) -> tuple[FileEntry, ...]:
        """The files that this rank has written: DCP names a rank's shards `__RANK_NUMBER.distcp`, rank 0 writes `.metadata`."""
        names = sorted(path.name for path in folder.glob(f"__{self.place.rank}_*.distcp"))
        names += [".metadata"] if self.place.rank == 0 else []
        entries = tuple(entry_of(folder, name) for name in (*names, rng_file))
        sync_directory(folder)
        return entries

    def _committed(self, manifest: Manifest, unpublished: str) -> None:
        _log.info(
            "checkpoint.committed", id=manifest.id, seq=manifest.seq, bytes=manifest.bytes, number=manifest.number
        )
        try:
            if unpublished:
                raise OSError(unpublished)
            self.checkpoints.settle(self.place.member)
        except Exception as error:  # noqa: BLE001 - it is committed; the next commit tidies up again
            self._count(unkept=1)
            _log.warning("checkpoint.untidied", id=manifest.id, error=str(error))

    def _ended_by(self, job: _Job, error: BaseException) -> None:
        if job.dropped:
            self._count(dropped=1)
            self._end(job, "dropped", None)
            return
        failure = error if isinstance(error, CheckpointFailed) else _explained(self.place.group, job.seq, error)
        if job.id:
            self._abandon(job.id, failure.why)
        self._tell_failed(failure)
        self._end(job, "failed", failure)

    def _tell_failed(self, failure: CheckpointFailed) -> None:
        """Counted, logged, and where everybody sees it: an incident stands until the next commit."""
        self._count(failed=1, error=str(failure))
        _log.warning("checkpoint.failed", group=failure.group, seq=failure.seq, why=failure.why)
        if self._lost():
            return
        try:
            note_failed_save(self.checkpoints.store, self.place, failure)
        except (StoreUnavailable, FencedError) as error:
            _log.warning("checkpoint.failure.not_told", group=failure.group, seq=failure.seq, error=str(error))

    def _abandon(self, attempt: ManifestId, why: str) -> None:
        try:
            self.checkpoints.abandon(attempt, self.place, why)
        except (StoreUnavailable, FencedError) as error:
            # It ends with the generation in any case.
            _log.warning("checkpoint.not_abandoned", id=attempt, error=str(error))

    def _count_failed(self, seq: int, why: str, todo: str) -> None:
        error = CheckpointFailed(group=self.place.group, seq=seq, why=why, todo=todo)
        self._tell_failed(error)
        self._put(SaveResult(seq=seq, outcome="failed", stall_s=self._limit_s, took_s=0.0, error=error))

    def _count(self, *, error: str = "", **more: int) -> None:
        with self._lock:
            old = self.statistics
            counts = {name: getattr(old, name) + count for name, count in more.items()}
            self.statistics = msgspec.structs.replace(old, last_error=error or old.last_error, **counts)

    def _end(self, job: _Job, outcome: SaveOutcome, error: CheckpointFailed | None) -> None:
        self._put(
            SaveResult(
                seq=job.seq, outcome=outcome, stall_s=job.stall_s, took_s=time.monotonic() - job.began, manifest=job.id,
                error=error,
            )
        )  # fmt: skip

    def _put(self, result: SaveResult) -> None:
        with self._lock:
            self._results.append(result)
        self._told(result)


def _differing(votes: Sequence[_Vote]) -> list[str]:
    """The plain values that have the same name on two ranks and not the same content."""
    seen: dict[str, tuple[int, str]] = {}
    found = []
    for rank, vote in enumerate(votes):
        for path, digest in vote.plain.items():
            first, content = seen.setdefault(path, (rank, digest))
            if content != digest:
                found.append(
                    f"{path} differs between rank {first} and rank {rank}, and one value is saved for all: make it a DTensor, "
                    f"or give each rank a key of its own"
                )
    return found


def _failed(group: str, seq: int, why: str) -> CheckpointFailed:
    return CheckpointFailed(group=group, seq=seq, why=why, todo=_LOOK)


def _explained(group: str, seq: int, error: BaseException) -> CheckpointFailed:
    """What an error of DCP, the disk or the store means for the checkpoint."""
    why = why_of(error)
    full = any(mark in why for mark in ("No space left", "File too large", "Disk quota", "unexpected pos"))
    return CheckpointFailed(
        group=group, seq=seq, why=why, todo="free disk space, or keep fewer checkpoints (checkpoints_keep)" if full else _LOOK
    )


def why_of(error: BaseException) -> str:
    """An error in a line; of one that DCP gathered from ranks, what each of them had."""
    if isinstance(error, CheckpointException):
        causes = {f"rank {rank}: {_short(cause[0])}" for rank, cause in error.failures.items()}
        return "; ".join(sorted(causes)[:4])
    return _short(error)


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
