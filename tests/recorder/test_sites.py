"""Where in the user's code a call came from."""

from __future__ import annotations

import sys
import sysconfig
from types import FrameType
from typing import Any

import pytest

from unknot.supervisor.recorder.sites import calling_site, is_users, short_site, stack_of


def frame_in(filename: str, module: str) -> FrameType:
    """A frame whose function was compiled from `filename` as part of `module`."""
    space: dict[str, Any] = {"__name__": module, "sys": sys}
    exec(compile("def f():\n    return sys._getframe()\nframe = f()", filename, "exec"), space)
    frame: FrameType = space["frame"]
    return frame


STDLIB = sysconfig.get_paths()["stdlib"]


@pytest.mark.parametrize(
    ("filename", "module", "users"),
    [
        ("/home/me/agents.py", "agents", True),
        ("/home/me/torch/train.py", "train", True),
        ("/home/me/ray/main.py", "__main__", True),
        ("/home/me/unknot/mine.py", "unknotted", True),
        ("/opt/unknot/recovery/lock.py", "unknot.recovery.lock", False),
        (f"{STDLIB}/threading.py", "threading", False),
        (f"{STDLIB}/site-packages/trl/trainer.py", "trl.trainer", True),
        (f"{STDLIB}/site-packages/torch/distributed/c10d.py", "torch.distributed.c10d", False),
        (f"{STDLIB}/site-packages/ray/worker.py", "ray._private.worker", False),
        ("<frozen importlib>", "importlib", False),
    ],
)
def test_a_frame_is_the_users_unless_it_is_ours_torchs_rays_or_the_standard_librarys(
    filename: str, module: str, users: bool
) -> None:
    assert is_users(frame_in(filename, module)) is users


def test_a_site_is_the_innermost_frame_of_the_user() -> None:
    site = calling_site()
    assert site is not None
    assert site.startswith("recorder/test_sites.py:")
    behind = calling_site(frame_in(f"{STDLIB}/threading.py", "threading"))
    assert behind is not None
    assert behind.startswith("recorder/test_sites.py:"), "the frame behind it"
    assert behind != site


def test_a_site_is_short_and_a_stack_has_no_values() -> None:
    assert short_site("/a/b/c/d.py", 7) == "c/d.py:7"
    assert short_site("d.py", 7) == "d.py:7"
    secret = "hunter2"
    stack = stack_of(sys._getframe(), limit=3)
    assert len(stack) == 3
    assert stack[0].startswith("recorder/test_sites.py:")
    assert stack[0].endswith(" test_a_site_is_short_and_a_stack_has_no_values")
    assert secret not in "".join(stack)
    assert stack_of(None) == ()
