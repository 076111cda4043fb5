"""A thread that stands in `work.wait()` is told from one that stands elsewhere in the user's code."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from unknot.integrations.torch.blocked_call import waits_for_work

pytestmark = pytest.mark.torch


class Blocking(dist.Work):  # type: ignore[misc, name-defined, unused-ignore]
    """A Work whose wait lasts until the test lets it go, in C as the real one's."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Lock()
        self.gate.acquire()

    @property
    def wait(self) -> Callable[[], bool]:  # type: ignore[override]
        """A method of C, so that no frame of Python lies below the caller's."""
        return self.gate.acquire


def plain(work: Any, _: Any) -> None:
    work.wait()


def attribute(work: Any, _: Any) -> None:
    holder = SimpleNamespace(work=work)
    holder.work.wait()


def sleeping(work: Any, other: Any) -> None:
    other.acquire()
    work.wait()


def other_wait(_: Any, other: Any) -> None:
    gate = SimpleNamespace(wait=other.acquire)
    gate.wait()


@pytest.fixture
def work() -> Blocking:
    """A Work that is not done."""
    return Blocking()


@pytest.mark.parametrize(
    ("body", "expected"), [(plain, True), (attribute, True), (sleeping, False), (other_wait, False)]
)
def test_only_a_call_of_wait_on_a_work_counts(
    work: Blocking, body: Callable[[Any, Any], None], expected: bool, eventually: Any
) -> None:
    other = threading.Lock()
    other.acquire()
    thread = threading.Thread(target=body, args=(work, other))
    thread.start()

    def stands() -> bool:
        frame = sys._current_frames().get(thread.ident or 0)
        return frame is not None and frame.f_code is body.__code__ and waits_for_work(frame) is expected

    try:
        eventually(stands)
    finally:
        other.release()
        work.gate.release()
        thread.join()


def test_a_real_work_of_gloo_is_a_work(tmp_path: Any) -> None:
    dist.init_process_group("gloo", store=FileStore(str(tmp_path / "s"), 1), rank=0, world_size=1)
    try:
        handle = dist.all_reduce(torch.ones(1), async_op=True)
        assert isinstance(handle, dist.Work)
        handle.wait()
    finally:
        dist.destroy_process_group()
