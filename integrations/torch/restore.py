"""Going on from a manifest: verified first, then loaded into the trainer's present state, on any number of ranks.

All ranks call `restore` together, over a group that nothing else uses meanwhile. Rank 0 says which manifests there are; each rank
checks a share of the files, and what any of them finds, all know: so all ranks take the same manifest. One that is damaged is passed
over for the next older one, and told.

The trainer's own `state_dict` says what it needs and how it is sharded now; DCP reads the parts of each shard from wherever they
lie. A state of another shape is an error of the program, not of the checkpoint, so no older one is tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import structlog
import torch
import torch.distributed as dist
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from unknot.integrations.torch.checkpoint import why_of
from unknot.integrations.torch.digest import state_hash
from unknot.integrations.torch.rng import capture_rng, restore_rng, rng_from_bytes
from unknot.integrations.torch.staging import check_trainer, resolved
from unknot.recovery.checkpoint_errors import CheckpointUnreadable, NoWholeCheckpoint, StateMismatch
from unknot.recovery.checkpoint_files import Shelf, damage_of
from unknot.recovery.checkpoints import Checkpoints, Place
from unknot.recovery.manifest import MANIFEST_FILE, Choice, Damage, Manifest, ManifestId, choose
from unknot.recovery.points import reached

_log = structlog.get_logger("unknot.checkpoint")

# The steps of a restore at which a process may die, in order.
RESTORE_POINTS = ("restore.verify.before", "restore.load.before", "restore.load.after", "restore.rng.after")


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank has gone back to.

    Attributes:
        manifest: the one; `manifest.seq` is the step that comes next.
        passed_over: newer manifests that are damaged, newest first, and how; before them, those of which nothing can be read.
        rng: whether this rank's random generators were set; False for a rank that was not there when it was saved.
        state_sha256: digest of the trainer's state and the generators now.
        same: whether that is what was saved; None where the number of ranks differs, since then each rank has another shard.
        took_s: seconds.
    """

    manifest: Manifest
    passed_over: tuple[tuple[ManifestId, tuple[Damage, ...]], ...]
    rng: bool
    state_sha256: str
    same: bool | None
    took_s: float


def restore(
    checkpoints: Checkpoints,
    place: Place,
    trainer: Any,
    *,
    process_group: Any,
    candidates: Sequence[Manifest] | None = None,
) -> Restored | None:
    """Bring a trainer and this rank's random generators back to the newest whole manifest.

    Args:
        checkpoints: of the run.
        place: this rank's.
        trainer: has `state_dict` and `load_state_dict`, and its model is made and sharded.
        process_group: of all ranks.
        candidates: manifests to choose from; None: those of `checkpoints.shelf()`. Rank 0's count.

    Returns None where there is no manifest at all.

    Raises:
        ConfigError: the trainer has no `state_dict` or `load_state_dict`.
        NoWholeCheckpoint: there are manifests, and each is damaged.
        StateMismatch: the trainer's state has another shape than the one that was saved.
        CheckpointUnreadable: DCP could not load what was verified.
    """
    began = time.monotonic()
    check_trainer(trainer)
    shelf = _announced(checkpoints, place, process_group, candidates)
    if not shelf.manifests and not shelf.unreadable:
        return None
    reached("restore.verify.before", place.member)
    chosen = _chosen(shelf, lambda manifest: _examined(checkpoints, place, process_group, manifest))
    _tell(chosen)
    if chosen.manifest is None:
        damaged = tuple(f"{id_}: {', '.join(map(str, damage[:3]))}" for id_, damage in chosen.passed_over)
        raise NoWholeCheckpoint(directory=str(checkpoints.directory), damaged=damaged)
    reached("restore.load.before", place.member)
    _load(checkpoints, chosen.manifest, trainer, process_group)
    reached("restore.load.after", place.member)
    has_rng = _set_rng(checkpoints, chosen.manifest, place.rank)
    reached("restore.rng.after", place.member)
    return _restored(chosen, trainer, place, has_rng=has_rng, began=began)


def _announced(
    checkpoints: Checkpoints, place: Place, process_group: Any, candidates: Sequence[Manifest] | None
) -> Shelf:
    """What rank 0 sees, on every rank: reading one by one, ranks could see different ones."""
    mine = None
    if place.rank == 0:
        mine = msgspec.json.encode(checkpoints.shelf() if candidates is None else Shelf(manifests=tuple(candidates)))
    told: list[Any] = [None] * place.size
    dist.all_gather_object(told, mine, group=process_group)
    return msgspec.json.decode(told[0], type=Shelf)


def _chosen(shelf: Shelf, examine: Callable[[Manifest], tuple[Damage, ...]]) -> Choice:
    """The newest whole one. Those without a manifest that can be read are passed over too, and told: one may be the newest."""
    unread = tuple((id_, (Damage(path=MANIFEST_FILE, why=f"cannot be read ({why})"),)) for id_, why in shelf.unreadable)
    chosen = choose(shelf.manifests, examine)
    return Choice(manifest=chosen.manifest, passed_over=(*unread, *chosen.passed_over))


def _examined(checkpoints: Checkpoints, place: Place, process_group: Any, manifest: Manifest) -> tuple[Damage, ...]:
    """The damage that any rank finds in its share of the files."""
    mine = damage_of(checkpoints.folder(manifest.id), manifest.files[place.rank :: place.size])
    found: list[Any] = [None] * place.size
    dist.all_gather_object(found, mine, group=process_group)
    return tuple(damage for one in found for damage in one)


def _tell(chosen: Choice) -> None:
    for id_, damage in chosen.passed_over:
        _log.warning("checkpoint.passed_over", id=id_, damage=[str(one) for one in damage])


def _load(checkpoints: Checkpoints, manifest: Manifest, trainer: Any, process_group: Any) -> None:
    state = trainer.state_dict()
    folder = checkpoints.folder(manifest.id)
    _check_shape(manifest, FileSystemReader(folder), resolved(state), process_group)
    try:
        load(state, storage_reader=FileSystemReader(folder), process_group=process_group)
    except CheckpointException as error:
        # Not an Exception, so it would pass by every handler of the caller.
        raise CheckpointUnreadable(manifest=manifest.id, why=why_of(error)) from error
    trainer.load_state_dict(state)


def _check_shape(
    manifest: Manifest, reader: FileSystemReader, state: dict[str, Any], process_group: Any
) -> None:
    """Raise StateMismatch on all ranks if the state of any is not of the checkpoint's shape."""
    saved = reader.read_metadata().state_dict_metadata
    present, _ = flatten_state_dict(state)
    mine = (sorted(present), [line for name in sorted(present) if (line := _difference(name, present[name], saved))])
    told: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(told, mine, group=process_group)
    wanted = {name for names, _ in told for name in names}
    differences = sorted({line for _, lines in told for line in lines})
    differences += [f"{name} is in the checkpoint and not in the state" for name in sorted(set(saved) - wanted)]
    if differences:
        raise StateMismatch(manifest=manifest.id, differences=tuple(differences))


def _difference(name: str, value: Any, saved: Any) -> str:
    if name not in saved:
        return f"{name} is not in it"
    there = saved[name]
    if isinstance(value, torch.Tensor) != isinstance(there, TensorStorageMetadata):
        return f"{name} is a tensor on one side only"
    if isinstance(value, torch.Tensor) and tuple(there.size) != tuple(value.shape):
        return f"{name} has the shape {tuple(there.size)} there and {tuple(value.shape)} here"
    if isinstance(value, torch.Tensor) and there.properties.dtype != value.dtype:
        return f"{name} is of {there.properties.dtype} there and of {value.dtype} here"  # loading would round without a word
    return ""


def _set_rng(checkpoints: Checkpoints, manifest: Manifest, rank: int) -> bool:
    record = manifest.of_rank(rank)
    if record is None:
        _log.warning("checkpoint.no_rng", id=manifest.id, rank=rank, saved_by=manifest.size)
        return False
    restore_rng(rng_from_bytes((checkpoints.folder(manifest.id) / record.rng).read_bytes()))
    return True


def _restored(chosen: Choice, trainer: Any, place: Place, *, has_rng: bool, began: float) -> Restored:
    manifest = chosen.manifest
    assert manifest is not None
    digest = state_hash(resolved(trainer.state_dict()), capture_rng())
    record = manifest.of_rank(place.rank)
    same = None if manifest.size != place.size or record is None else digest == record.state_sha256
    if same is False:
        _log.warning("checkpoint.differs", id=manifest.id, rank=place.rank)
    took_s = time.monotonic() - began
    _log.info("checkpoint.restored", id=manifest.id, seq=manifest.seq, took_s=round(took_s, 3))
    return Restored(
        manifest=manifest, passed_over=chosen.passed_over, rng=has_rng, state_sha256=digest, same=same, took_s=took_s
    )
