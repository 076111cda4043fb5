"""Manifests: what one committed checkpoint of the whole run consists of, and the states of the attempt to make one.

A checkpoint is many files written by many processes, and a position in every agent and mailbox. It is one thing only because one value
names all of it: the manifest. What is not named by a committed manifest is not a checkpoint, however complete it looks. So the
questions that decide about data, which manifest to restore and which files may go, are functions of values here, and nothing in
this file reads a disk, a clock or Redis.

Times are Redis' time in seconds since the epoch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol

import msgspec

SCHEMA = "unknot.manifest/1"
MANIFEST_FILE = "manifest.json"
DEFAULT_KEEP = 3

ManifestId = str
AttemptState = Literal["preparing", "committed", "abandoned", "dropped"]

# What may follow what; a record that is forgotten is deleted with its key.
LEGAL: Mapping[AttemptState | None, frozenset[AttemptState | None]] = MappingProxyType(
    {
        None: frozenset({"preparing"}),
        "preparing": frozenset({"committed", "abandoned"}),
        "committed": frozenset({"dropped"}),
        "abandoned": frozenset({None}),
        "dropped": frozenset({None}),
    }
)

# Every step of making a manifest at which a process may die, in order; `unknot.recovery.points` acts at them by name.
SAVE_POINTS = (
    "manifest.prepare.before",
    "manifest.prepare.after",
    "manifest.shards.before",
    "manifest.shards.after",
    "manifest.rng.after",
    "manifest.digest.after",
    "manifest.answer.before",
    "manifest.answer.after",
)
# Passed only by the rank whose answer was the last one.
COMMIT_POINTS = (
    "manifest.json.before",
    "manifest.json.written",
    "manifest.json.renamed",
    "manifest.json.after",
)
SWEEP_POINTS = (
    "manifest.drop.before",
    "manifest.drop.after",
    "manifest.sweep.unmarked",
    "manifest.sweep.removed",
    "manifest.sweep.forgotten",
)

_ID = re.compile(r"(?P<group>[^\s|/]+)-g(?P<generation>\d+)-s(?P<seq>\d+)-[0-9a-f]{8}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint: path relative to the checkpoint's directory, size, and SHA-256 in hex."""

    path: str
    bytes: int
    sha256: str


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has written: its files, which of them holds its random generators, and the digest of its state.

    `source` is `member#incarnation`. `state_sha256` is the digest of the state and the generators as they were in memory
    (`unknot.integrations.torch.digest`), '' where it was not taken. `items` are the mailbox items whose effect is in this state:
    the commit acknowledges them. `covers`: name of weights -> the newest number that was published from this state or before it;
    later ones are provisional.
    """

    rank: int
    source: str
    files: tuple[FileEntry, ...]
    rng: str
    state_sha256: str = ""
    items: tuple[str, ...] = ()
    covers: dict[str, int] = {}


class MailboxCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far a mailbox was at the moment of the commit: items ever sent, taken and acknowledged."""

    name: str
    sent: int
    taken: int
    acked: int


class WeightsCursor(msgspec.Struct, frozen=True, kw_only=True):
    """The newest published version of weights at the moment of the commit."""

    name: str
    generation: int
    n: int
    digest: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One committed checkpoint of the whole run.

    Attributes:
        id: names it, and its directory.
        run, group, generation, size: whose trainers wrote it, in which generation, and how many ranks there were.
        seq: the step that comes next when the run goes on from here.
        number: grows by one with each commit of the run: the newest is the one with the largest.
        created_at, committed_at: when the first rank began, and when the last had answered.
        ranks: what each rank wrote, by rank.
        agents: member -> how many steps it has committed, which is the seq of its next one.
        mailboxes, weights: their counters and versions at the commit.
    """

    id: ManifestId
    run: str
    group: str
    generation: int
    seq: int
    size: int
    number: int
    created_at: float
    committed_at: float
    ranks: tuple[RankRecord, ...]
    agents: dict[str, int] = {}
    mailboxes: tuple[MailboxCursor, ...] = ()
    weights: tuple[WeightsCursor, ...] = ()
    schema: str = SCHEMA

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """The files of all ranks."""
        return tuple(entry for record in self.ranks for entry in record.files)

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(entry.bytes for entry in self.files)

    @property
    def covers(self) -> dict[str, int]:
        """Name of weights -> the newest number that belongs to this checkpoint, as any rank says."""
        found: dict[str, int] = {}
        for record in self.ranks:
            for name, number in record.covers.items():
                found[name] = max(number, found.get(name, number))
        return found

    def of_rank(self, rank: int) -> RankRecord | None:
        """What `rank` wrote; None where there was no such rank."""
        return self.ranks[rank] if 0 <= rank < len(self.ranks) else None

    def validate(self) -> tuple[str, ...]:
        """What cannot be true of a manifest; empty when all can."""
        return tuple(_impossible(self))


def _impossible(manifest: Manifest) -> Iterable[str]:
    if manifest.schema != SCHEMA:
        yield f"schema {manifest.schema!r} instead of {SCHEMA!r}"
    if not is_manifest_id(manifest.id):
        yield f"{manifest.id!r} is no id of a manifest"
    if [record.rank for record in manifest.ranks] != list(range(manifest.size)):
        yield f"records of ranks {[record.rank for record in manifest.ranks]} instead of 0 to {manifest.size - 1}"
    paths = [entry.path for entry in manifest.files]
    for path in sorted({path for path in paths if paths.count(path) > 1}):
        yield f"file {path} is named twice"
    for entry in manifest.files:
        if not is_plain_path(entry.path):
            yield f"file {entry.path!r} lies outside of the checkpoint"
        if entry.bytes < 0 or not _SHA256.fullmatch(entry.sha256):
            yield f"file {entry.path} has no size and SHA-256"
    for record in manifest.ranks:
        if record.rng not in {entry.path for entry in record.files}:
            yield f"rank {record.rank} names no file with its random generators"


def is_plain_path(path: str) -> bool:
    """Whether a relative path stays below the directory that it starts from."""
    parts = path.split("/")
    return bool(path) and not path.startswith("/") and all(part not in ("", ".", "..") for part in parts)


def new_id(group: str, *, generation: int, seq: int, nonce: str) -> ManifestId:
    """An id whose text sorts by generation and seq. `nonce`: eight hex digits, so that no two attempts ever share files."""
    return f"{group}-g{generation:04d}-s{seq:08d}-{nonce}"


def is_manifest_id(text: str) -> bool:
    """Whether `text` could be an id: what else lies in a directory of checkpoints is none of ours."""
    return _ID.fullmatch(text) is not None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to make a manifest, as the store has it.

    `live`: it is being prepared and its generation still stands, so it may yet be committed. `answered`: the ranks that have
    written everything. `why`: it was abandoned or dropped.
    """

    id: ManifestId
    group: str
    generation: int
    seq: int
    size: int
    state: AttemptState
    directory: str
    live: bool
    answered: tuple[int, ...] = ()
    number: int = 0
    why: str = ""

    def validate(self) -> tuple[str, ...]:
        """What cannot be true of an attempt; empty when all can."""
        wrong = []
        if self.state not in LEGAL:
            wrong.append(f"{self.id} is in the unknown state {self.state!r}")
        if not set(self.answered) <= set(range(self.size)):
            wrong.append(f"{self.id} has answers of ranks {list(self.answered)}, and {self.size} ranks")
        if self.state in ("committed", "dropped") and (len(self.answered) != self.size or self.number < 1):
            wrong.append(f"{self.id} is {self.state} with {len(self.answered)} of {self.size} answers, number {self.number}")
        if self.state == "preparing" and len(self.answered) == self.size:
            wrong.append(f"{self.id} has all answers and is not committed")
        if self.live and self.state != "preparing":
            wrong.append(f"{self.id} is live and {self.state}")
        return tuple(wrong)


def may_follow(before: AttemptState | None, after: AttemptState | None) -> bool:
    """Whether an attempt may go from one state to another; None is not there (yet, or any more)."""
    return after in LEGAL.get(before, frozenset())


def newest_first(manifests: Iterable[Manifest]) -> tuple[Manifest, ...]:
    """In the order in which they would be restored."""
    return tuple(sorted(manifests, key=lambda manifest: manifest.number, reverse=True))


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint that is not what the manifest says, and why."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


Examine = Callable[[Manifest], Sequence[Damage]]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest to restore (None: there is no whole one), and the newer ones that are damaged, newest first."""

    manifest: Manifest | None
    passed_over: tuple[tuple[ManifestId, tuple[Damage, ...]], ...] = ()


def choose(manifests: Iterable[Manifest], examine: Examine) -> Choice:
    """The newest whole manifest. `examine` says what is wrong with one; it is asked no further than needed."""
    passed_over: list[tuple[ManifestId, tuple[Damage, ...]]] = []
    for manifest in newest_first(manifests):
        damage = tuple(examine(manifest))
        if not damage:
            return Choice(manifest=manifest, passed_over=tuple(passed_over))
        passed_over.append((manifest.id, damage))
    return Choice(manifest=None, passed_over=tuple(passed_over))


def to_drop(manifests: Iterable[Manifest], *, keep: int, examine: Examine) -> tuple[Manifest, ...]:
    """The manifests that are no longer kept: all that are older than the newest `keep` whole ones.

    A damaged one does not count, so a whole one never goes because of it.
    """
    whole = 0
    old = []
    for manifest in newest_first(manifests):
        if whole >= keep:
            old.append(manifest)
        elif not examine(manifest):
            whole += 1
    return tuple(old)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that lies where checkpoints lie: its name, and whether there is a manifest in it."""

    name: str
    has_manifest: bool


class HasState(Protocol):
    """What the store knows of an attempt."""

    @property
    def state(self) -> AttemptState:
        """Its state."""

    @property
    def live(self) -> bool:
        """Whether it may yet be committed."""


def to_sweep(found: Collection[Found], known: Mapping[ManifestId, HasState]) -> tuple[str, ...]:
    """The names of the directories whose files belong to nobody.

    `found` must have been read before `known`: an attempt is known before it has files. What is committed stays, and what may yet
    be committed. A directory with a manifest that the store does not know stays too: it is whole, and somebody else's.
    """
    return tuple(entry.name for entry in found if is_manifest_id(entry.name) and _belongs_to_nobody(entry, known))


def _belongs_to_nobody(entry: Found, known: Mapping[ManifestId, HasState]) -> bool:
    attempt = known.get(entry.name)
    if attempt is None:
        return not entry.has_manifest
    return attempt.state != "committed" and not attempt.live
