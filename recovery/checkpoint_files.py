"""The files of checkpoints: written so that they are there after a crash, checked before they are believed.

A directory holds one folder for each checkpoint, named by its manifest's id: shards, the random generators of each rank, and, once the
manifest is committed, `manifest.json`. That file comes last and by a rename, so a folder without it is no checkpoint and needs no
further mark; and it goes first when a checkpoint is removed. The directory belongs to one run, which `run.json` names: otherwise one
run would sweep what another is about to write.

Every file is synced before its digest goes to the store, and the folder after it, since a name is lost with a power cut
as well as content.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.recovery.manifest import (
    MANIFEST_FILE,
    Damage,
    FileEntry,
    Found,
    Manifest,
    ManifestId,
    is_manifest_id,
    is_plain_path,
    newest_first,
)

RUN_FILE = "run.json"
_BLOCK = 1024 * 1024
_HALF = ".tmp"

Reached = Callable[[str], None]


def _nothing(_point: str) -> None:
    """No point of interest."""


class _Owner(msgspec.Struct, frozen=True):
    run: str
    schema: str = "unknot.checkpoints/1"


def claim_directory(directory: Path, run: str) -> None:
    """Make `directory` the place of `run`'s checkpoints.

    Raises:
        ConfigError: it holds those of another run, or cannot be written.
    """
    path = directory / RUN_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_whole(path, msgspec.json.encode(_Owner(run)))
        owner = msgspec.json.decode(path.read_bytes(), type=_Owner).run
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            what=f"{directory} cannot hold checkpoints ({error})", todo="give a directory that can be written"
        ) from error
    if owner != run:
        raise ConfigError(
            what=f"{directory} holds the checkpoints of run {owner}, not of {run}", todo="give each run a directory of its own"
        )


def sync_directory(directory: Path) -> None:
    """Make the names in it durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, body: bytes, *, reached: Reached = _nothing) -> None:
    """Write a file so that after any crash it is there with this content, or as it was before. OSError.

    `reached` is told `written` before the rename, and `renamed` before that is durable.
    """
    half = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_HALF}")
    try:
        with open(half, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        reached("written")
        half.replace(path)
    except OSError:
        half.unlink(missing_ok=True)
        raise
    reached("renamed")
    sync_directory(path.parent)


def entry_of(folder: Path, path: str) -> FileEntry:
    """Size and digest of a file that was written, once it is durable. OSError."""
    with open(folder / path, "rb") as file:
        os.fsync(file.fileno())
        return FileEntry(path=path, bytes=os.fstat(file.fileno()).st_size, sha256=_sha256(file))


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()


def damage_of(folder: Path, entries: Iterable[FileEntry], *, deep: bool = True) -> tuple[Damage, ...]:
    """Which files are not what a manifest says. Not `deep`: sizes only, no content is read."""
    found = ((entry, _why_bad(folder, entry, deep=deep)) for entry in entries)
    return tuple(Damage(path=entry.path, why=why) for entry, why in found if why)


def _why_bad(folder: Path, entry: FileEntry, *, deep: bool) -> str:
    if not is_plain_path(entry.path):
        return "lies outside of the checkpoint"
    path = folder / entry.path
    try:
        size = path.stat().st_size
        if not path.is_file():
            return "is no file"
        if size != entry.bytes:
            return f"has {size} bytes instead of {entry.bytes}"
        if deep:
            with open(path, "rb") as file:
                digest = _sha256(file)
            if digest != entry.sha256:
                return f"has SHA-256 {digest[:12]}… instead of {entry.sha256[:12]}…"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or type(error).__name__})"
    return ""


def write_manifest(directory: Path, manifest: Manifest, *, reached: Reached = _nothing) -> Path:
    """Put the committed manifest beside its files; the path. OSError."""
    path = directory / manifest.id / MANIFEST_FILE
    write_whole(path, msgspec.json.format(msgspec.json.encode(manifest)), reached=reached)
    return path


def write_manifest_again(directory: Path, manifest: Manifest) -> None:
    """Put it there after a crash of whoever should have, and remove what that one left. OSError."""
    path = write_manifest(directory, manifest)
    for half in path.parent.glob(f"{MANIFEST_FILE}.*{_HALF}"):
        half.unlink(missing_ok=True)


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory of checkpoints holds: manifests newest first, and those that cannot be read, with the reason."""

    manifests: tuple[Manifest, ...] = ()
    unreadable: tuple[tuple[ManifestId, str], ...] = ()


def read_shelf(directory: Path) -> Shelf:
    """The committed checkpoints in `directory`, without Redis. ConfigError when it cannot be listed."""
    manifests, unreadable = [], []
    for entry in list_folders(directory):
        if not entry.has_manifest:
            continue
        try:
            manifest = msgspec.json.decode((directory / entry.name / MANIFEST_FILE).read_bytes(), type=Manifest)
        except (OSError, msgspec.DecodeError) as error:
            unreadable.append((entry.name, str(error)))
            continue
        wrong = [*manifest.validate(), *(["it has the id of another"] if manifest.id != entry.name else [])]
        if wrong:
            unreadable.append((entry.name, "; ".join(wrong)))
        else:
            manifests.append(manifest)
    return Shelf(manifests=newest_first(manifests), unreadable=tuple(unreadable))


def list_folders(directory: Path) -> tuple[Found, ...]:
    """The folders that are named like checkpoints. ConfigError when `directory` cannot be listed."""
    try:
        names = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        raise ConfigError(
            what=f"{directory} cannot be listed ({error.strerror or error})", todo="give the directory of a run's checkpoints"
        ) from error
    return tuple(
        Found(name=name, has_manifest=(directory / name / MANIFEST_FILE).is_file()) for name in names if is_manifest_id(name)
    )


def remove_folder(folder: Path, *, reached: Reached = _nothing) -> bool:
    """Remove a checkpoint's folder, its manifest first; whether it is gone. OSError.

    Another process may do the same at the same time. One that still writes there keeps the folder, without a manifest, until it is
    swept again. `reached` is told `unmarked` once the manifest is gone, and `removed` once all is.
    """
    mark = folder / MANIFEST_FILE
    if mark.exists():
        mark.unlink(missing_ok=True)
        sync_directory(folder)
    reached("unmarked")
    for inner, _, names in os.walk(folder, topdown=False):
        for name in names:
            (Path(inner) / name).unlink(missing_ok=True)
        _remove_empty(Path(inner))
    sync_directory(folder.parent)
    reached("removed")
    return not folder.exists()


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            raise
