"""Making manifests: an attempt is prepared, each rank answers with its files, the last answer commits.

The one decision, committed or not, is one script in Redis. All before it is preparation that nobody sees; all after it,
`manifest.json` in the folder, the removal of what is no longer kept, is housekeeping that anybody may do again after a crash
(`settle`). Rejected: letting the rename of `manifest.json` decide. Whoever writes it must know first what agents and mailboxes are
at that moment, which only Redis can say and acknowledge in one step; and a rank of an old generation could still rename.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec

from unknot.recovery import checkpoint_files as files
from unknot.recovery.answers import Answer, ask, refuse_fenced, rows
from unknot.recovery.errors import ConfigError, StoreCorrupt
from unknot.recovery.group import GroupSlot
from unknot.recovery.manifest import (
    DEFAULT_KEEP,
    MANIFEST_FILE,
    Attempt,
    Damage,
    MailboxCursor,
    Manifest,
    ManifestId,
    RankRecord,
    WeightsCursor,
    new_id,
    newest_first,
    to_drop,
    to_sweep,
)
from unknot.recovery.points import reached
from unknot.recovery.ports import Store
from unknot.recovery.take import settle
from unknot.recovery.weights import settle_weights

T = TypeVar("T")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Who saves: one rank of one generation of a group, and the incarnation of its process."""

    group: str
    generation: int
    rank: int
    size: int
    member: str
    incarnation: int

    @classmethod
    def of(cls, slot: GroupSlot) -> Place:
        """The place that a rank has joined."""
        return cls(
            group=slot.name, generation=slot.generation, rank=slot.rank, size=slot.size, member=slot.member,
            incarnation=slot.incarnation,
        )  # fmt: skip

    @property
    def source(self) -> str:
        """`role/name#incarnation`."""
        return f"{self.member}#{self.incarnation}"


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to preparing. `id` is '' and `why` says why there is no attempt: the generation or the attempt is over."""

    id: ManifestId = ""
    why: str = ""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer led to. `manifest` is there once it is committed.

    `why`: why it never will be; or, of a committed one, why `manifest.json` could not be written (`settle` will write it).
    """

    outcome: Literal["waiting", "committed", "over"]
    manifest: Manifest | None = None
    why: str = ""


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What housekeeping did: manifests written again, dropped, and folders removed."""

    written: tuple[ManifestId, ...] = ()
    dropped: tuple[ManifestId, ...] = ()
    swept: tuple[str, ...] = ()


class Checkpoints:
    """The manifests of a run, and the directory that holds their files.

    Args:
        store: of the run.
        directory: of this run alone; every rank must see the same files in it.
        keep: how many whole ones are kept, at least 1.

    Raises:
        ConfigError: the directory holds another run's checkpoints, or cannot be written; `keep` is below 1.
    """

    def __init__(self, store: Store, directory: Path, *, keep: int = DEFAULT_KEEP) -> None:
        if keep < 1:
            raise ConfigError(what=f"keeping {keep} checkpoints leaves nothing to go on from", todo="keep at least 1")
        self.store = store
        self.directory = directory.absolute()
        self.keep = keep
        files.claim_directory(self.directory, store.run)

    def folder(self, manifest: ManifestId) -> Path:
        """Where the files of a manifest lie."""
        return self.directory / manifest

    def prepare(self, place: Place, seq: int) -> Prepared:
        """Begin the manifest before step `seq`, or join the attempt that another rank has begun.

        Raises:
            ConfigError: it was begun with another number of ranks.
            FencedError: a newer incarnation of this member has registered.
        """
        proposed = new_id(place.group, generation=place.generation, seq=seq, nonce=secrets.token_hex(4))
        who = (place.group, place.generation, seq, place.size, place.member, place.incarnation)
        answer = ask(self.store, "manifest_prepare", *who, proposed, str(self.directory), self._free_number())
        refuse_fenced(answer, place.member, place.incarnation)
        if answer.word == "differs":
            raise ConfigError(
                what=f"checkpoint {answer.text()} was begun with {answer.text(1)} ranks, not {place.size}",
                todo="give every rank the same size",
            )
        if answer.word == "over":
            return Prepared(why=f"generation {place.generation} is over ({answer.text()} is {answer.text(1) or 'absent'})")
        if answer.word == "abandoned":
            return Prepared(why=answer.text(1))
        return Prepared(id=answer.text())

    def _free_number(self) -> int:
        """The smallest number that no manifest in the directory has: Redis may have begun anew, its files have not."""
        return max((manifest.number for manifest in files.read_shelf(self.directory).manifests), default=0) + 1

    def answer(self, attempt: ManifestId, place: Place, record: RankRecord) -> Answered:
        """Say that this rank has written everything. The last one commits, and then writes `manifest.json`.

        Raises:
            FencedError: a newer incarnation of this member has registered.
        """
        body = msgspec.json.encode(record)
        answer = ask(self.store, "manifest_answer", attempt, place.rank, place.member, place.incarnation, body)
        refuse_fenced(answer, place.member, place.incarnation)
        reached("manifest.answer.after", place.member)
        if answer.word == "waiting":
            return Answered(outcome="waiting")
        if answer.word == "committed":
            manifest = _manifest(_Record(self.store.run, attempt, live=False, fields=_fields(answer.rest[1])))
            return Answered(outcome="committed", manifest=manifest, why=self._publish(manifest, place.member))
        return Answered(outcome="over", why=_why_over(answer))

    def _publish(self, manifest: Manifest, member: str) -> str:
        """Write `manifest.json`; why it could not be written, '' if it was."""
        reached("manifest.json.before", member)
        try:
            files.write_manifest(self.directory, manifest, reached=lambda at: reached(f"manifest.json.{at}", member))
        except OSError as error:
            return f"{MANIFEST_FILE} could not be written ({error})"
        reached("manifest.json.after", member)
        return ""

    def abandon(self, attempt: ManifestId, place: Place, why: str) -> bool:
        """Say that this rank could not write its part: whether the attempt is over now. FencedError."""
        answer = ask(self.store, "manifest_abandon", attempt, place.member, place.incarnation, why)
        return refuse_fenced(answer, place.member, place.incarnation).word == "abandoned"

    def manifests(self) -> tuple[Manifest, ...]:
        """The committed ones, newest first."""
        return committed_manifests(self.store)

    def candidates(self) -> tuple[Manifest, ...]:
        """What a run may go on from, newest first: the committed ones, or, of a Redis that was lost, those in the directory."""
        return self.shelf().manifests

    def shelf(self) -> files.Shelf:
        """The candidates; and of a Redis that was lost also what is in the directory and cannot be read: it may be what the run had last.

        A Redis that has ever committed one of this run knows better than the directory: a run that begins anew has none.
        """
        known = self.manifests()
        if known or self.store.command("EXISTS", self.store.key("manifest_n")):
            return files.Shelf(manifests=known)
        return files.read_shelf(self.directory)

    def newest(self) -> Manifest | None:
        """The newest committed one, None when there is none."""
        return next(iter(self.manifests()), None)

    def attempts(self) -> tuple[Attempt, ...]:
        """All attempts the store knows of, at one instant, oldest id first."""
        return all_attempts(self.store)

    def examine(self, manifest: Manifest, *, deep: bool = True) -> tuple[Damage, ...]:
        """Which of its files are not what it says; not `deep`: by size only."""
        return files.damage_of(self.folder(manifest.id), manifest.files, deep=deep)

    def settle(self, member: str = "") -> Settled:
        """Housekeeping: write missing `manifest.json` files, drop what is older than the newest kept, remove what is nobody's.

        And what the newest manifest makes final: items that the group took in steps before it are consumed, versions of weights
        that it covers are provisional no more.

        Safe to run at any time, by anybody, and again after any crash. `member` names whose named points are passed.

        Raises:
            OSError: a file cannot be written or removed.
        """
        manifests = self.manifests()
        self._make_final(manifests[:1])
        missing = [one for one in manifests if not self._is_published(one) and self.folder(one.id).is_dir()]
        for manifest in missing:
            files.write_manifest_again(self.directory, manifest)
        dropped = self._drop(manifests, member)
        return Settled(
            written=tuple(one.id for one in missing), dropped=dropped, swept=tuple(self._sweep(member))
        )

    def _make_final(self, newest: Sequence[Manifest]) -> None:
        for manifest in newest:
            settle(self.store, manifest.group, manifest.seq, ack="manifest")
            for name, n in manifest.covers.items():
                settle_weights(self.store, name, n, generation=manifest.generation)

    def _is_published(self, manifest: Manifest) -> bool:
        return (self.folder(manifest.id) / MANIFEST_FILE).is_file()

    def _drop(self, manifests: Sequence[Manifest], member: str) -> tuple[ManifestId, ...]:
        old = to_drop(manifests, keep=self.keep, examine=lambda one: self.examine(one, deep=False))
        if old:
            reached("manifest.drop.before", member)
            ask(self.store, "manifest_drop", f"older than the newest {self.keep}", *(one.id for one in old))
            reached("manifest.drop.after", member)
        return tuple(one.id for one in old)

    def _sweep(self, member: str) -> list[str]:
        found = files.list_folders(self.directory)
        known = {attempt.id: attempt for attempt in self.attempts()}
        told = functools.partial(_reached_in_sweep, member)
        gone = [name for name in to_sweep(found, known) if files.remove_folder(self.folder(name), reached=told)]
        over = [one.id for one in known.values() if one.state != "committed" and not one.live]
        if over:
            ask(self.store, "manifest_forget", *over)
        reached("manifest.sweep.forgotten", member)
        return gone

    def __repr__(self) -> str:
        return f"<Checkpoints of run {self.store.run} in {self.directory}>"


def _reached_in_sweep(member: str, at: str) -> None:
    reached(f"manifest.sweep.{at}", member)


def committed_manifests(store: Store) -> tuple[Manifest, ...]:
    """The committed manifests of a run, newest first. StoreCorrupt when a record cannot be read."""
    return newest_first([one for one in _read(store, _if_committed) if one is not None])


def all_attempts(store: Store) -> tuple[Attempt, ...]:
    """All attempts of a run, at one instant, oldest id first. StoreCorrupt when a record cannot be read."""
    return tuple(sorted(_read(store, _attempt), key=lambda attempt: attempt.id))


class _Record(NamedTuple):
    """What Redis has of one attempt; `live`: it may yet be committed."""

    run: str
    id: ManifestId
    live: bool
    fields: dict[str, str]


def _read(store: Store, decode: Callable[[_Record], T]) -> list[T]:
    """Every record, decoded. One that was changed or removed by somebody else is an error: to pass over it would lose a checkpoint."""
    return [_decoded(store, decode, row) for row in rows(store, "manifests")]


def _decoded(store: Store, decode: Callable[[_Record], T], row: tuple[bytes, int, Sequence[bytes]]) -> T:
    id_, live, flat = row
    name = id_.decode(errors="replace")
    try:
        return decode(_Record(store.run, name, bool(live), _fields(flat)))
    except (KeyError, ValueError, msgspec.DecodeError) as error:
        why = f"cannot be read ({error})" if flat else "is gone"
        todo = (
            f"bring it back, or take {name} out of {store.key('manifest_ids')}; what lies in a directory is read without Redis: "
            "supervisor checkpoints list --dir DIR"
        )
        raise StoreCorrupt(key=store.key("manifest", name), why=why, todo=todo) from error


def _if_committed(record: _Record) -> Manifest | None:
    return _manifest(record) if record.fields["state"] == "committed" else None


def _fields(flat: Sequence[bytes]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in zip(flat[::2], flat[1::2], strict=True)}


def _attempt(record: _Record) -> Attempt:
    fields = record.fields
    return Attempt(
        id=record.id,
        group=fields["group"],
        generation=int(fields["generation"]),
        seq=int(fields["seq"]),
        size=int(fields["size"]),
        state=fields["state"],  # type: ignore[arg-type]  # validate() judges it
        directory=fields["directory"],
        live=record.live,
        answered=tuple(sorted(int(name) for name, _ in _named(fields, "rank"))),
        number=int(fields.get("number", 0)),
        why=fields.get("why", ""),
    )


def _manifest(record: _Record) -> Manifest:
    fields = record.fields
    records = [msgspec.json.decode(text, type=RankRecord) for _, text in _named(fields, "rank")]
    return Manifest(
        id=record.id,
        run=record.run,
        group=fields["group"],
        generation=int(fields["generation"]),
        seq=int(fields["seq"]),
        size=int(fields["size"]),
        number=int(fields["number"]),
        created_at=float(fields["created_at"]),
        committed_at=float(fields["committed_at"]),
        ranks=tuple(sorted(records, key=lambda one: one.rank)),
        agents={name: int(count) for name, count in _named(fields, "agent")},
        mailboxes=tuple(_cursor(name, text) for name, text in _named(fields, "mbox")),
        weights=tuple(_version(name, text) for name, text in _named(fields, "weights")),
    )


def _named(fields: dict[str, str], kind: str) -> list[tuple[str, str]]:
    """The fields `kind:NAME`, sorted by name."""
    head = f"{kind}:"
    return sorted((name.removeprefix(head), text) for name, text in fields.items() if name.startswith(head))


def _cursor(name: str, text: str) -> MailboxCursor:
    sent, taken, acked = (int(count) for count in text.split())
    return MailboxCursor(name=name, sent=sent, taken=taken, acked=acked)


def _version(name: str, text: str) -> WeightsCursor:
    generation, n, digest = text.split()
    return WeightsCursor(name=name, generation=int(generation), n=int(n), digest=digest)


def _why_over(answer: Answer) -> str:
    if answer.word == "unknown":
        return "the attempt is not known any more"
    if answer.word == "differs":
        return f"it has {answer.text()} ranks"
    return answer.text(1) or f"it is {answer.text()}"
