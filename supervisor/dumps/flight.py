"""One dump of a flight recorder as values: what a rank issued, in which groups, and what of it has not completed.

Pickles (`_dump_fr_trace`, `_dump_nccl_trace`, the files that a watchdog writes) and their JSON twins. From either only
what is needed is taken, piece by piece and bounded: a text is cut, sizes and frames are counted, whatever has another type is left
out. So a file can claim what it likes and costs no more than its length.

NCCL tells `state` (`scheduled`, `started`, `completed`); on Gloo it stays `scheduled` and `retired` tells completion. A JSON dump
has no frames: where an operation was issued is not known then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from unknot.supervisor.dumps.errors import DumpError
from unknot.supervisor.dumps.plain_pickle import load

ENTRIES = 200_000
_FRAMES = 128
_TEXT = 300
_LISTED = 64
_NUMBERS = 64
_RANKS = 1_000_000
_CALLS = "distributed_c10d.py"
_LIBRARY = re.compile(r"[/\\](torch|ray|unknot[/\\]\w+)[/\\]|[/\\]lib[/\\]python3\.\d+[/\\](?!site-packages|dist-packages)|^<")
_PEER = re.compile(r"(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of one rank. `seq` counts within its group; `peer`: (sender, receiver) by rank in the group."""

    group: str
    seq: int
    op: str
    shape: str
    dtype: str
    done: bool
    at: float
    site: str | None = None
    is_p2p: bool = False
    peer: tuple[int, int] | None = None


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank's flight recorder knew. `ranks`: the members of each group, where they are told."""

    rank: int
    version: str
    entries: tuple[Entry, ...]
    ranks: dict[str, tuple[int, ...]]
    has_frames: bool


def parse(data: bytes, rank: int) -> Dump:
    """The dump in `data`, a pickle or JSON. Raises DumpError."""
    found = _decoded(data)
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise DumpError(what="no list of entries", expected="a dump of PyTorch's flight recorder (2.6 or newer)")
    entries = found["entries"]
    if len(entries) > ENTRIES:
        raise DumpError(what=f"{len(entries)} entries", expected=f"at most {ENTRIES}")
    known = [entry for entry in entries if isinstance(entry, dict)]
    return Dump(
        rank=rank,
        version=_text(found.get("version")),
        entries=tuple(one for entry in known if (one := _entry(entry)) is not None),
        ranks=dict(_groups(found.get("pg_config"))),
        has_frames=any(isinstance(entry.get("frames"), list) for entry in known),
    )


def _decoded(data: bytes) -> Any:
    if data[:1] != b"{":
        return load(data)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DumpError(what=f"no JSON: {str(error)[:_TEXT] or type(error).__name__}", expected="a JSON dump") from error


def _entry(entry: dict[Any, Any]) -> Entry | None:
    named = entry.get("process_group")
    name = [_text(part) for part in named[:2]] if isinstance(named, list | tuple) else []
    is_p2p = entry.get("is_p2p") is True
    seq = _whole(entry.get("p2p_seq_id" if is_p2p else "collective_seq_id"))
    if not name or seq is None:
        return None
    told = _text(entry.get("profiling_name")).rpartition(":")[2]
    peer = _PEER.search(told)
    frames = list(_frames(entry.get("frames")))
    created = _whole(entry.get("time_created_ns"))
    return Entry(
        group=group_name(name), seq=seq, op=_op(told, frames), shape=_sizes(entry.get("input_sizes")),
        dtype=_listed(entry.get("input_dtypes")), at=created / 1e9 if created is not None else 0.0,
        done=entry.get("retired") is True or entry.get("state") == "completed", site=_site(frames), is_p2p=is_p2p,
        peer=None if peer is None else _ends(peer),
    )  # fmt: skip


def _ends(peer: re.Match[str]) -> tuple[int, int]:
    mine, other = int(peer[2][:9]), int(peer[3][:9])
    return (mine, other) if peer[1] == "send" else (other, mine)


def group_name(name: list[str]) -> str:
    """`default_pg` where a group has a description of its own, else its name."""
    described = name[1] if len(name) > 1 else ""
    return described if described not in ("", "undefined") else name[0]


def _groups(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    for key, one in list(config.items())[:_RANKS] if isinstance(config, dict) else ():
        if not isinstance(one, dict):
            continue
        name = group_name([_text(one.get("name")) or _text(key), _text(one.get("desc"))])
        ranks = one.get("ranks")
        if isinstance(ranks, str):
            numbers = re.findall(r"\d{1,7}", ranks[: 8 * _RANKS])
        else:
            numbers = [str(rank) for rank in ranks[:_RANKS] if type(rank) is int] if isinstance(ranks, list) else []
        if numbers:
            yield name, tuple(sorted({int(number) for number in numbers if number.isdigit()}))


# --- the pieces, each bounded ---


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:_TEXT]
    return str(value) if type(value) is int and abs(value) < 1 << 64 else ""


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.lstrip("-").isascii() and value.lstrip("-").isdigit() and len(value) < 20:
        value = int(value)
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _sizes(value: Any) -> str:
    if not isinstance(value, list | tuple):
        return ""
    each = [
        "[" + ", ".join(str(n) for n in size[:_NUMBERS] if type(n) is int and abs(n) < 1 << 63) + "]"
        for size in value[:_LISTED]
        if isinstance(size, list | tuple)
    ]
    return "[" + ", ".join(each) + "]" if each else ""


def _listed(value: Any) -> str:
    return ", ".join(_text(one) for one in value[:_LISTED]) if isinstance(value, list | tuple) else ""


def _frames(value: Any) -> Iterator[tuple[str, str, int]]:
    for frame in value[:_FRAMES] if isinstance(value, list) else ():
        if isinstance(frame, dict):
            yield _text(frame.get("name")), _text(frame.get("filename")), _whole(frame.get("line")) or 0


def _op(told: str, frames: list[tuple[str, str, int]]) -> str:
    """As it was called, where frames tell it: Gloo makes a reduce_scatter of some all_reduce calls."""
    called = next((name for name, file, _ in frames if file.endswith(_CALLS)), None)
    name = called if called is not None else told.partition(" ")[0]
    return name.lstrip("_").removesuffix("_single").removesuffix("_into_tensor").removesuffix("_base")


def _site(frames: list[tuple[str, str, int]]) -> str | None:
    """The innermost frame that is the user's."""
    place = next(((file, line) for _, file, line in frames if not _LIBRARY.search(file)), None)
    return None if place is None else "/".join(re.split(r"[/\\]", place[0])[-2:]) + f":{place[1]}"
