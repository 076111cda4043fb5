"""Checkpoints as lines of text and as JSON items. Pure: the same values give the same lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from unknot.graph.wording import age
from unknot.recovery.manifest import Damage, MailboxCursor, Manifest, RankRecord, WeightsCursor
from unknot.supervisor.alerts.payload import rfc3339
from unknot.supervisor.cli.text import Glyphs, Line, Span, line, span, table


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True):
    """A committed checkpoint, where its files lie, and what was found wrong with them.

    looked_at: nothing, the files' sizes, or their content.
    """

    manifest: Manifest
    folder: Path
    damage: tuple[Damage, ...] = ()
    looked_at: Literal["nothing", "sizes", "content"] = "nothing"


class CheckpointItem(msgspec.Struct, frozen=True, kw_only=True, tag_field="item", tag="checkpoint"):
    """One checkpoint. `whole` is null where nothing was looked at; the last four are there in `show` alone."""

    id: str
    run: str
    group: str
    generation: int
    seq: int
    size: int
    number: int
    created_at: str
    committed_at: str
    directory: str
    files: int
    bytes: int
    looked_at: str
    whole: bool | None
    damage: tuple[Damage, ...]
    ranks: tuple[RankRecord, ...] = ()
    agents: dict[str, int] = {}
    mailboxes: tuple[MailboxCursor, ...] = ()
    weights: tuple[WeightsCursor, ...] = ()


def item_of(view: CheckpointView, *, whole: bool) -> CheckpointItem:
    """As it is published; `whole`: with ranks, agents, mailboxes and weights."""
    manifest = view.manifest
    return CheckpointItem(
        id=manifest.id,
        run=manifest.run,
        group=manifest.group,
        generation=manifest.generation,
        seq=manifest.seq,
        size=manifest.size,
        number=manifest.number,
        created_at=rfc3339(manifest.created_at),
        committed_at=rfc3339(manifest.committed_at),
        directory=str(view.folder),
        files=len(manifest.files),
        bytes=manifest.bytes,
        looked_at=view.looked_at,
        whole=None if view.looked_at == "nothing" else not view.damage,
        damage=view.damage,
        ranks=manifest.ranks if whole else (),
        agents=manifest.agents if whole else {},
        mailboxes=manifest.mailboxes if whole else (),
        weights=manifest.weights if whole else (),
    )


def list_lines(views: Sequence[CheckpointView], glyphs: Glyphs, now: float) -> tuple[Line, ...]:
    """One line each."""
    if not views:
        return (line(span("no checkpoint is committed", "dim")),)
    return table([_row(view, glyphs, now) for view in views])


def verify_lines(views: Sequence[CheckpointView], glyphs: Glyphs, now: float) -> tuple[Line, ...]:
    """One line each, and one for each damaged file."""
    found: list[Line] = []
    for view in views:
        found += [*table([_row(view, glyphs, now)]), *_damage_lines(view, glyphs)]
    return tuple(found)


def show_lines(views: Sequence[CheckpointView], glyphs: Glyphs, now: float) -> tuple[Line, ...]:
    """One checkpoint in full."""
    return tuple(one for view in views for one in _whole(view, glyphs, now))


def _whole(view: CheckpointView, glyphs: Glyphs, now: float) -> Iterator[Line]:
    manifest = view.manifest
    yield from table([_row(view, glyphs, now)])
    yield line(f"  goes on at step {manifest.seq} of group {manifest.group}, run {manifest.run}, number {manifest.number}")
    yield line("  in ", span(str(view.folder)))
    yield from _damage_lines(view, glyphs)
    for title, rows in (
        ("RANKS", [_rank_row(record) for record in manifest.ranks]),
        ("AGENTS", [[span(name), span(f"{count} steps committed")] for name, count in sorted(manifest.agents.items())]),
        ("MAILBOXES", [_mailbox_row(one) for one in manifest.mailboxes]),
        ("WEIGHTS", [_weights_row(one) for one in manifest.weights]),
        ("FILES", [[span(f.path), span(_size(f.bytes)), span(f.sha256, "dim")] for f in manifest.files]),
    ):
        yield ()
        yield line(span(f"{title} ({len(rows)})", "head"))
        for row in table(rows):
            yield (Span("  "), *row)


def _row(view: CheckpointView, glyphs: Glyphs, now: float) -> list[Span]:
    manifest = view.manifest
    return [
        _verdict(view, glyphs),
        span(manifest.id, "head"),
        span(f"step {manifest.seq}"),
        span(f"generation {manifest.generation}"),
        span(f"{manifest.size} ranks"),
        span(f"{len(manifest.files)} files, {_size(manifest.bytes)}"),
        span(f"{age(max(0.0, now - manifest.committed_at))} ago", "dim"),
    ]


def _verdict(view: CheckpointView, glyphs: Glyphs) -> Span:
    if view.looked_at == "nothing":
        return span(f"{glyphs.waiting} not here", "warn")
    if view.damage:
        return span(f"{glyphs.dead} damaged", "bad")
    return span(f"{glyphs.good} {'verified' if view.looked_at == 'content' else 'complete'}", "good")


def _damage_lines(view: CheckpointView, glyphs: Glyphs) -> list[Line]:
    return [line("  ", span(f"{glyphs.dead} {view.folder / one.path} {one.why}", "bad")) for one in view.damage]


def _rank_row(record: RankRecord) -> list[Span]:
    written = sum(entry.bytes for entry in record.files)
    return [
        span(f"rank {record.rank}"),
        span(record.source),
        span(_size(written)),
        span(f"{len(record.items)} items"),
        span(f"state {record.state_sha256}" if record.state_sha256 else "", "dim"),
    ]


def _mailbox_row(one: MailboxCursor) -> list[Span]:
    return [span(one.name), span(f"{one.sent} sent"), span(f"{one.taken} taken"), span(f"{one.acked} acknowledged")]


def _weights_row(one: WeightsCursor) -> list[Span]:
    return [span(one.name), span(f"n {one.n}"), span(f"generation {one.generation}"), span(one.digest, "dim")]


def _size(count: int) -> str:
    number, unit = float(count), "B"
    for bigger in ("kB", "MB", "GB", "TB"):
        if number < 1000:
            break
        number, unit = number / 1000, bigger
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
