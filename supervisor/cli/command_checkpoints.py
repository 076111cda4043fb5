"""`supervisor checkpoints`: what there is to go on from, of a live run or in a directory.

The store says which checkpoints are committed, the files whether they are whole. A directory needs no Redis: what has a manifest in it is
committed. A run that has ended is found by the directory that it left behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from unknot.recovery.checkpoint_files import damage_of, read_shelf
from unknot.recovery.checkpoints import all_attempts, committed_manifests
from unknot.recovery.errors import ConfigError, StoreUnavailable
from unknot.recovery.manifest import Manifest
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.checkpoint_views import CheckpointView, item_of, list_lines, show_lines, verify_lines
from unknot.supervisor.cli.command_status import ask
from unknot.supervisor.cli.connect import RUN_ENV, Target, connect, no_such_run
from unknot.supervisor.cli.ended import RunHasEnded
from unknot.supervisor.cli.json_output import document
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note, warn
from unknot.supervisor.cli.text import Glyphs, Line
from unknot.supervisor.cli.wanted import Wanted
from unknot.supervisor.store.location import checkpoints_directory

LATEST = "latest"
ALL = "all"
_IDS_SHOWN = 5


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints of one run, newest first; `where` names the run or the directory."""

    where: str
    views: tuple[CheckpointView, ...]
    problems: tuple[str, ...] = ()


def list_them(wanted: Wanted, directory: Path | None, shown: Look, *, as_json: bool) -> int:
    """Show all, newest first. Raises ConfigError, StoreUnavailable."""
    found = _found(wanted, directory)
    views = [_checked(view, deep=False) for view in found.views]
    return _tell(found, views, shown, as_json=as_json, thing="checkpoints_list", lines=list_lines)


def show(name: str, wanted: Wanted, directory: Path | None, shown: Look, *, as_json: bool) -> int:
    """Show the checkpoint `name`: an id, the beginning of one, or `latest`. Raises ConfigError, StoreUnavailable."""
    found = _found(wanted, directory)
    views = [_checked(choose(name, found), deep=False)]
    return _tell(found, views, shown, as_json=as_json, thing="checkpoints_show", lines=show_lines)


def verify(name: str, wanted: Wanted, directory: Path | None, shown: Look, *, as_json: bool) -> int:
    """Read every file of the checkpoint `name`, or of all. Raises ConfigError, StoreUnavailable."""
    found = _found(wanted, directory)
    chosen = found.views if name == ALL and found.views else (choose(LATEST if name == ALL else name, found),)
    views = [_checked(view, deep=True) for view in chosen]
    code = _tell(found, views, shown, as_json=as_json, thing="checkpoints_verify", lines=verify_lines)
    return exit_codes.FOUND if any(view.damage for view in views) else code


def _tell(
    found: Found,
    views: Sequence[CheckpointView],
    shown: Look,
    *,
    as_json: bool,
    thing: str,
    lines: Callable[[Sequence[CheckpointView], Glyphs, float], Sequence[Line]],
) -> int:
    now = time.time()
    if as_json:
        items = [item_of(view, whole=thing == "checkpoints_show") for view in views]
        emit_json(document(thing, items, at=now, problems=found.problems))
    else:
        emit_lines(lines(views, shown.glyphs, now), shown=shown)
    warn([f"incomplete: {problem}" for problem in found.problems])
    return exit_codes.INCOMPLETE if found.problems else exit_codes.OK


def choose(name: str, found: Found) -> CheckpointView:
    """The one checkpoint that `name` means. Raises ConfigError."""
    if not found.views:
        raise ConfigError(what=f"{found.where} has no committed checkpoint", todo="see `supervisor checkpoints list`")
    if name == LATEST:
        return found.views[0]
    matching = [view for view in found.views if view.manifest.id.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    ids = ", ".join(view.manifest.id for view in (matching or found.views)[:_IDS_SHOWN])
    if matching:
        raise ConfigError(what=f"{name!r} is the beginning of {len(matching)} checkpoints: {ids}", todo="write more of it")
    raise ConfigError(
        what=f"{found.where} has no checkpoint {name!r}; newest: {ids}", todo="give one of these, or latest"
    )


def _found(wanted: Wanted, directory: Path | None) -> Found:
    if directory is None:
        return _of_run(wanted)
    if wanted.redis is not None or wanted.run is not None:
        raise ConfigError(what="--dir is read without Redis", todo="give either --dir, or --redis and --run")
    return _in_directory(directory)


def _in_directory(directory: Path) -> Found:
    shelf = read_shelf(directory)
    return Found(
        where=str(directory),
        views=tuple(CheckpointView(manifest=one, folder=directory / one.id) for one in shelf.manifests),
        problems=tuple(f"the manifest of {id_} cannot be read: {why}" for id_, why in shelf.unreadable),
    )


def _of_run(wanted: Wanted) -> Found:
    try:
        run, views = ask(wanted, lambda target: _committed(target, limit_s=wanted.limit_s))
    except StoreUnavailable as error:
        left = _left_behind(wanted, error.kept.run if isinstance(error, RunHasEnded) else None)
        if left is None:
            raise
        note(f"no live run is reached; this is what lies in {left}")
        return _in_directory(left)
    elsewhere = sorted({str(view.folder.parent) for view in views if not view.folder.parent.is_dir()})
    problems = tuple(f"{place} is not on this host, its files were not looked at" for place in elsewhere)
    return Found(where=f"run {run}", views=views, problems=problems)


def _committed(target: Target, *, limit_s: float) -> tuple[str, tuple[CheckpointView, ...]]:
    """The run's name, and its checkpoints as the store knows them."""
    with connect(target, limit_s=limit_s) as store:
        if not store.command("EXISTS", store.key("run")):
            raise no_such_run(target, limit_s=limit_s)
        manifests = committed_manifests(store)
        places = {attempt.id: attempt.directory for attempt in all_attempts(store)}
    return target.run, tuple(_view(manifest, places.get(manifest.id, "")) for manifest in manifests)


def _view(manifest: Manifest, directory: str) -> CheckpointView:
    return CheckpointView(manifest=manifest, folder=Path(directory) / manifest.id)


def _left_behind(wanted: Wanted, ended: str | None) -> Path | None:
    run = ended or wanted.run or os.environ.get(RUN_ENV) or None
    if wanted.redis is not None or run is None:
        return None
    directory = checkpoints_directory(run)
    return directory if directory.is_dir() else None


def _checked(view: CheckpointView, *, deep: bool) -> CheckpointView:
    if not view.folder.parent.is_dir():
        return view
    damage = damage_of(view.folder, view.manifest.files, deep=deep)
    return msgspec.structs.replace(view, damage=damage, looked_at="content" if deep else "sizes")
