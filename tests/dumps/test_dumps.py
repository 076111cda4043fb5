"""Dumps of any kind are read without executing them, told together, and refused one by one when they are broken."""

from __future__ import annotations

import json
import os
import pickle
import pickletools
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unknot.supervisor.dumps.diagnosis import Diagnosis, diagnose
from unknot.supervisor.dumps.errors import DumpError
from unknot.supervisor.dumps.flight import parse
from unknot.supervisor.dumps.plain_pickle import load

Supervisor = Callable[..., subprocess.CompletedProcess[str]]
TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def entry(seq: int, op: str, *, group: str = "default_pg", site: int = 0, **more: Any) -> dict[str, Any]:
    """An operation as NCCL's recorder tells it, issued at `site` of train.py; completed unless told otherwise."""
    frames = [
        {"name": op, "filename": TORCH, "line": 99}, {"name": "step", "filename": "/home/me/run/train.py", "line": site},
    ]  # fmt: skip
    return {
        "record_id": seq, "pg_id": 0, "process_group": ("0" if group == "default_pg" else group, group),
        "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "profiling_name": f"nccl:{op}", "frames": frames,
        "time_created_ns": seq * 10**9, "input_sizes": ((64,),), "input_dtypes": ["Float"], "output_sizes": ((64,),),
        "output_dtypes": ["Float"], "state": "completed", "retired": True, "is_p2p": False, **more,
    }  # fmt: skip


OPEN: dict[str, Any] = {"state": "started", "retired": False}


def dumped(*entries: dict[str, Any], ranks: str = "[0, 1]", **groups: str) -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    config |= {name: {"name": name, "desc": name, "ranks": told} for name, told in groups.items()}
    return {"version": "2.9", "nccl_version": "2.27", "pg_config": config, "pg_status": {}, "entries": list(entries)}


def told(*dumps: dict[str, Any], **more: Any) -> Diagnosis:
    return diagnose([parse(pickle.dumps(one), rank) for rank, one in enumerate(dumps)], at=100.0, run="r", **more)


def test_the_first_operation_on_which_ranks_disagree_is_named_with_both_places() -> None:
    found = told(
        dumped(entry(4, "all_reduce", site=10), entry(5, "all_reduce", site=11, **OPEN), entry(6, "all_reduce", site=12, **OPEN)),
        dumped(entry(4, "all_reduce", site=10), entry(5, "broadcast", site=20, **OPEN), entry(6, "barrier", site=21, **OPEN)),
    )
    (one,) = found.findings
    assert (one.cause, one.group, one.seq, one.waiting) == ("mismatch", "default_pg", 5, (0, 1))
    assert "run/train.py:11" in one.text
    assert "run/train.py:20" in one.text


def test_equal_operations_in_another_order_are_a_warning_that_can_be_marked() -> None:
    swapped = [
        dumped(entry(1, "all_reduce", site=10), entry(2, "all_reduce", site=11)),
        dumped(entry(1, "all_reduce", site=11), entry(2, "all_reduce", site=10)),
    ]
    (one,) = told(*swapped).mixings
    assert set(one.sites) == {"run/train.py:10", "run/train.py:11"}
    assert told(*swapped, alike=(("run/train.py:10", "run/train.py:11"),)).mixings == ()


def test_a_branch_of_rank_0_with_the_same_operation_is_no_warning() -> None:
    ranks = [dumped(*(entry(seq, "broadcast", site=site) for seq in range(1, 9))) for site in (10, 12, 12)]
    assert told(*ranks).mixings == ()


def test_a_rank_without_a_dump_is_missed_and_not_accused() -> None:
    ranks = "[0, 1, 2]"
    found = told(
        dumped(entry(1, "all_reduce", site=3, **OPEN), ranks=ranks), dumped(entry(1, "all_reduce", site=3, **OPEN), ranks=ranks)
    )
    (one,) = found.findings
    assert (found.missing, one.cause, one.culprits, one.waiting) == ((2,), "absent", (2,), (0, 1))
    assert "rank 2 is missing: it left no dump" in one.text


def test_rings_through_groups_are_one_finding() -> None:
    found = told(
        dumped(entry(7, "all_reduce", site=1, **OPEN), tp="[0, 1]"), dumped(entry(3, "all_gather", group="tp", site=2, **OPEN), tp="[0, 1]")
    )
    (one,) = found.findings
    assert (one.cause, one.kind, one.culprits) == ("deadlock", "cycle", (0, 1))


def test_two_ranks_that_both_send_first_are_a_ring() -> None:
    def sends(to: str) -> dict[str, Any]:
        return dumped(entry(0, "send", p2p_seq_id=1, is_p2p=True, profiling_name=f"nccl:send {to}", site=5, **OPEN))

    (one,) = told(sends("0->1"), sends("1->0")).findings
    assert (one.kind, one.culprits) == ("cycle", (0, 1))
    assert told(
        sends("0->1"), dumped(entry(0, "recv", p2p_seq_id=1, is_p2p=True, profiling_name="nccl:recv 1<-0", **OPEN))
    ).findings == ()  # fmt: skip


def test_coalesced_operations_under_one_number_are_one_operation() -> None:
    both = [entry(1, "all_reduce"), entry(1, "broadcast", **OPEN)]
    (one,) = told(dumped(*both), dumped()).findings
    assert "all_reduce+broadcast #1" in one.text


def test_a_run_in_which_everything_completed_has_no_finding() -> None:
    ranks = [dumped(entry(1, "all_reduce"), entry(2, "barrier")) for _ in range(2)]
    assert told(*ranks).findings == ()


# --- reading ---


class Evil:
    """Runs a command when an ordinary unpickler reads it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._path}",)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_in_a_pickle_is_executed(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "executed"
    data = pickle.dumps({"entries": [Evil(mark)]}, protocol=protocol)
    with pytest.raises(DumpError, match="expected a pickle of plain data"):
        load(data)
    assert not mark.exists()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**90), 2**90) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(PLAIN, st.integers(3, 5))
def test_plain_data_is_read_as_pickle_reads_it(value: Any, protocol: int) -> None:
    assert load(pickle.dumps(value, protocol=protocol)) == value


@settings(max_examples=100, deadline=None)
@given(PLAIN)
def test_the_oldest_protocols_are_read_where_they_hold_no_text(value: Any) -> None:
    data = pickle.dumps(value, protocol=1)
    names = {code.name for code, _, _ in pickletools.genops(data)}
    if not names & {"GLOBAL", "REDUCE"}:
        assert load(data) == value


def bomb(depth: int) -> bytes:
    """Lists of twice the list before: small as a file, huge as a text."""
    value: list[Any] = [1]
    for _ in range(depth):
        value = [value, value]
    return pickle.dumps({"version": value, "entries": [entry(1, "x", input_sizes=value, process_group=(value, value))], "pg_config": value})


@pytest.mark.parametrize(
    "data",
    [
        bomb(60), b"", b"\x80\x04", b"\x80\x02]r\xff\xff\xff\x7f.", b"\x80\x02X\xff\xff\xff\xffx.", b"\x80\x02\x8b\xff\xff\xff\x7f.",
        b"{" * 10_000, b'{"entries":' + b"[" * 10_000, b'{"entries": [1, null, {}, {"process_group": 4}]}', b"(((((.", b"N.", b"0.",
        b"(l(d" * 100 + b".", b"I" + b"9" * 100_000 + b"\n.", b"]q\x00h\x00a.", b"}](Ku.", b'{"entries": {}}',
    ],
)  # fmt: skip
def test_odd_files_are_refused_or_harmless(data: bytes) -> None:
    try:
        found = parse(data, 0)
    except DumpError as error:
        assert "expected" in str(error)  # noqa: PT017
    else:
        diagnose([found], at=0.0)


WHOLE = [pickle.dumps(dumped(entry(1, "all_reduce"), entry(2, "broadcast", **OPEN)), protocol=p) for p in (2, 4)]
WHOLE.append(json.dumps(dumped(entry(1, "all_reduce"), entry(2, "broadcast", **OPEN))).encode())


@settings(max_examples=1500, deadline=None)
@given(seed=st.integers(0, 2**48), which=st.sampled_from((0, 1, 2)))
def test_a_damaged_dump_is_refused_or_told_like_any_other(seed: int, which: int) -> None:
    draw, data = random.Random(seed), bytearray(WHOLE[which])
    for _ in range(draw.randint(1, 8)):
        at = draw.randrange(len(data))
        data[at : at + draw.randint(0, 3)] = bytes(draw.choices(range(256), k=draw.randint(0, 4)))
    try:
        found = parse(bytes(data), 0)
    except DumpError:
        return
    diagnose([found, parse(WHOLE[which], 1)], at=0.0)


# --- the command ---


def test_a_dump_that_cannot_be_read_is_named_and_the_others_are_told(tmp_path: Path, supervisor: Supervisor) -> None:
    for rank in range(2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dumped(entry(1, "barrier"))))
    (tmp_path / "nccl_trace_rank_2.pkl").write_bytes(b"garbage")
    (tmp_path / "notes.txt").write_text("x")
    done = supervisor("diagnose", tmp_path, "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["schema"], document["partial"]) == (4, "supervisor.diagnose/1", True)
    assert [problem.partition(": ")[0] for problem in document["problems"]] == ["nccl_trace_rank_2.pkl", "notes.txt"]


@pytest.mark.parametrize("name", ["", "missing"])
def test_a_folder_without_dumps_is_an_error_that_says_where_they_would_be(tmp_path: Path, supervisor: Supervisor, name: str) -> None:
    done = supervisor("diagnose", tmp_path / name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
