"""One real Ray for the tests of runs, and a fresh run for each."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

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
def new_run(
    ray_cluster: None, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AbstractContextManager[unknot.Run]]:
    """`new_run(**config)` is a run of its own on the session's Redis and Ray."""
    monkeypatch.setenv("SUPERVISOR_RUN_DIR", str(tmp_path))

    def start(**config: Any) -> unknot.Run:
        return unknot.init(f"run-{os.getpid()}-{next(_runs)}", redis=redis_url, config=config)

    return start
