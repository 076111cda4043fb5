"""What an id says: `role/name#incarnation/thread` for participants, `kind:name@ggeneration` for resources."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from sys import intern

_KINDS = {
    "lock": "lock",
    "rwlock": "lock",
    "mbox": "mailbox",
    "coll": "group",
    "sem": "semaphore",
    "cond": "condition",
    "ext": "external",
}

_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Identity:
    """The parts of a participant id. An id without `#` is a member of its own with incarnation 1."""

    member: str
    role: str
    incarnation: int
    source: str
    thread: str

    @property
    def is_queue(self) -> bool:
        """Whether this is the queue of a collective group, not a thread."""
        return self.thread.startswith("queue:")


@lru_cache(maxsize=4096)
def parse(participant: str) -> Identity:
    """The parts of a participant id or of a source id (which is the id of its main thread)."""
    member, mark, tail = participant.partition("#")
    number, _, thread = tail.partition("/")
    if not mark or not _is_number(number):
        return Identity(participant, _role(participant), 1, participant, "")
    source = f"{member}#{number}" if thread else participant
    return Identity(member, _role(member), int(number), source, thread)


def _is_number(text: str) -> bool:
    """Whether `text` is a plain number that any reader of ids can take."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS


def _role(member: str) -> str:
    role, slash, _ = member.partition("/")
    return intern(role) if slash else ""


def is_pattern(name: str) -> bool:
    """Whether a name of a rights list may match members that nobody has heard of yet."""
    return any(mark in name for mark in "*?[")


def matches(member: str, pattern: str) -> bool:
    """Whether a pattern of a rights list matches `member`."""
    return fnmatchcase(member, pattern)


def may_name(name: str, source: str) -> bool:
    """Whether a name of a rights list may mean a participant of `source`."""
    member = parse(source).member
    return name in (source, member) or name.startswith(f"{source}/") or fnmatchcase(member, name)


def generation_of(resource: str) -> int:
    """The generation in a group's resource id, 1 where it names none."""
    _, mark, number = resource.rpartition("@g")
    return int(number) if mark and _is_number(number) else 1


WEIGHTS = "event:weights:"


def shown(resource: str) -> str:
    """A resource for people: `lock search`, `mailbox raw`, `group policy (generation 2)`, `weights policy, version 1`."""
    kind, colon, name = resource.partition(":")
    if not colon:
        return resource
    weights, _, version = resource.removeprefix(WEIGHTS).rpartition(":")
    if resource.startswith(WEIGHTS) and weights:
        return f"weights {weights}, version {version}"
    bare, mark, number = name.rpartition("@g")
    if mark and _is_number(number):
        name = bare if int(number) <= 1 else f"{bare} (generation {number})"
    return f"{_KINDS.get(kind, kind)} {name}"


def short(resource: str) -> str:
    """A resource for the one-line headline: its id, without the first generation; weights are no event to anybody."""
    return resource.removesuffix("@g1").removeprefix("event:" if resource.startswith(WEIGHTS) else "")
