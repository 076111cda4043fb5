"""One real Ray for the tests of runs, and a fresh run for each."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import unknot

_runs = itertools.count(1)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray that ends with the session."""
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def nothing_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]) -> Iterator[None]:
    """No child process, no thread of ours, no Ray and no directory of a run is left by a refused start."""
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", str(tmp_path))
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    had_ray = ray.is_initialized()

    def threads() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith("unknot-") and t.name != "unknot-redis"]

    yield
    left = [p for p in psutil.Process().children(recursive=True) if p.pid not in before]
    assert not [p.cmdline() for p in left if p.is_running()]
    eventually(lambda: not threads())  # a listener ends within its slice, and nobody waits for it
    assert ray.is_initialized() == had_ray
    assert not list(tmp_path.iterdir())


@pytest.fixture
def new_run(
    ray_cluster: None, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AbstractContextManager[unknot.Run]]:
    """`new_run(**config)` is a run of its own on the session's Redis and Ray."""
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", str(tmp_path))

    def start(**config: Any) -> unknot.Run:
        return unknot.init(f"run-{os.getpid()}-{next(_runs)}", redis=redis_url, config=config)

    return start
