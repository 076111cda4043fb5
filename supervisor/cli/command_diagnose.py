"""`supervisor diagnose`: flight-recorder dumps of a run that hung, offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from unknot.graph.wording import listed
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.json_output import document
from unknot.supervisor.cli.output import Look, emit_json, emit_lines, note
from unknot.supervisor.cli.text import Line, line, span
from unknot.supervisor.dumps.diagnosis import Diagnosed, Diagnosis, diagnose
from unknot.supervisor.dumps.folder import Folder, read_folder


class FindingItem(Diagnosed, frozen=True, kw_only=True, tag_field="item", tag="finding"):
    """One finding as it is published."""


class WarningItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="item", tag="warning"):
    """Equal-sized operations that may be mixed, with both places."""

    group: str
    seq: int
    sites: tuple[str, str]
    text: str


class DiagnoseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`alike`: call sites that belong together, with commas between; `world_size`: 0 where it is not told."""

    as_json: bool = False
    alike: tuple[str, ...] = ()
    world_size: int = 0


def show(path: Path, shown: Look, options: DiagnoseOptions) -> int:
    """Show what the dumps in `path` say; the exit code. Raises ConfigError."""
    folder = read_folder(path)
    marked = tuple(tuple(sites.split(",")) for sites in options.alike)
    found = diagnose(
        folder.dumps, at=folder.at, run=path.resolve().name, world_size=options.world_size, alike=marked
    )
    problems = _problems(folder, found)
    if options.as_json:
        emit_json(document("diagnose", _items(found), at=folder.at, problems=problems))
    else:
        emit_lines(_lines(found, shown), shown=shown)
    for problem in problems:
        note(f"warning: incomplete: {problem}")
    if found.findings:
        return exit_codes.FOUND
    return exit_codes.INCOMPLETE if problems else exit_codes.OK


def _problems(folder: Folder, found: Diagnosis) -> list[str]:
    problems = list(folder.problems)
    if found.missing:
        problems.append(f"no dump of {listed([f'rank {rank}' for rank in found.missing])}: it may be the one that failed")
    if not found.has_frames:
        problems.append("these dumps have no frames, so no call site is known; pickled dumps have them")
    return problems


def _items(found: Diagnosis) -> list[Any]:
    items: list[Any] = [FindingItem(**msgspec.structs.asdict(one)) for one in found.findings]
    for one in found.mixings:
        group = one.resource.removeprefix("coll:")
        items.append(WarningItem(group=group, seq=one.seq, sites=one.sites, text=one.text))
    return items


def _lines(found: Diagnosis, shown: Look) -> list[Line]:
    lines = [line(f"{len(found.ranks)} ranks, {len(found.findings)} findings")]
    for one in found.findings:
        head, *rest = one.text.splitlines()
        lines += [line(), line(span(f"{shown.glyphs.knot} {head}", "bad")), *(line(f"  {told}") for told in rest)]
    for mixing in found.mixings:
        lines += [line(), line(span(f"{shown.glyphs.waiting} warning: {mixing.text}", "warn"))]
    return lines
