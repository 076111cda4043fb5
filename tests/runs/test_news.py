"""What a user sees of incidents while the run goes on, and what is left when it has ended."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.alerts.incidents import incident
from unknot.graph.hazards import Hazard
from unknot.integrations.ray.news import IncidentNews, NewsTeller
from unknot.recovery.errors import StoreUnavailable
from unknot.supervisor.incidents import Incident
from unknot.supervisor.store.kept_incidents import keep_incidents, kept_incidents


def test_an_incident_is_told_once_when_it_opens_and_once_when_it_is_over() -> None:
    out = io.StringIO()
    news = IncidentNews(out)
    one = msgspec.structs.replace(incident(), state="confirmed")
    news.tell([one])
    news.tell([one])
    over = msgspec.structs.replace(one, state="resolved", resolution="freed by a test")
    news.tell([over])
    news.tell([over])
    lines = out.getvalue().splitlines()
    assert lines == [
        f"unknot: {one.headline} (supervisor explain {one.id})",
        f"unknot: {one.id} is over: freed by a test",
    ]


def test_a_hazard_is_told_once() -> None:
    out = io.StringIO()
    news = IncidentNews(out)
    hazard = Hazard(locks=("lock:a", "lock:b"), sites=(("x.py:1", "x.py:2"), ("y.py:1", "y.py:2")), text="a and b can deadlock")
    news.tell([hazard])
    news.tell([hazard])
    assert out.getvalue() == "unknot: hazard, nothing stands yet: a and b can deadlock\n"


def test_the_teller_goes_on_after_a_look_that_failed_and_ends_when_stopped(eventually: Callable[..., None]) -> None:
    out = io.StringIO()
    looks: list[int] = []

    def look() -> list[Incident]:
        looks.append(1)
        if len(looks) == 1:
            raise StoreUnavailable(where="here", why="it is away", todo="wait")
        return [incident()]

    teller = NewsTeller(IncidentNews(out), look)
    teller.start()
    eventually(lambda: len(looks) >= 3)
    teller.stop()
    teller.stop()
    assert not teller.is_alive()
    assert len(out.getvalue().splitlines()) == 1


def test_the_teller_ends_when_nobody_can_be_told(eventually: Callable[..., None]) -> None:
    out = io.StringIO()
    out.close()
    teller = NewsTeller(IncidentNews(out), lambda: [incident()])
    teller.start()
    eventually(lambda: not teller.is_alive())


def test_a_teller_that_was_never_started_can_be_stopped() -> None:
    NewsTeller(IncidentNews(io.StringIO()), list).stop()


def test_what_an_ended_run_left_is_explained_whole_and_is_for_this_user_alone(tmp_path: Path) -> None:
    directory = tmp_path / "r1"
    directory.mkdir()
    path = keep_incidents(directory, run="r1", incidents=[incident()], at=5.0)
    assert path.stat().st_mode & 0o077 == 0
    environ = {"SUPERVISOR_RUN_DIR": str(tmp_path)}
    kept = kept_incidents("r1", environ)
    assert kept is not None
    assert kept.items == (incident(),)
    assert kept_incidents(None, environ) == kept
    assert kept_incidents("r2", environ) is None


@pytest.mark.parametrize("run", [("--run", "r1"), ()])
def test_the_command_explains_an_incident_of_a_run_that_has_ended(tmp_path: Path, run: tuple[str, ...]) -> None:
    (tmp_path / "r1").mkdir()
    keep_incidents(tmp_path / "r1", run="r1", incidents=[incident()], at=5.0)
    done = subprocess.run(
        [sys.executable, "-m", "unknot.supervisor.cli.main", "explain", "latest", *run],
        env={**os.environ, "SUPERVISOR_RUN_DIR": str(tmp_path)}, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert incident().headline in done.stdout
    assert done.stderr == "run r1 has ended; this is what it left behind\n"
