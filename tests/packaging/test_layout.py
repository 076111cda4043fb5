"""The four folders at the top are imported under `unknot`: with links, without them, and never across the layers."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("graph", "recovery", "supervisor", "integrations")


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PYTHONPATH": str(cwd), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The code in a folder of its own, links kept as links."""
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in (*FOLDERS, "unknot"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_a_download_that_lost_its_links_works_too(copied: Path) -> None:
    for folder in FOLDERS:
        (copied / "unknot" / folder).unlink()
    code = "import unknot, unknot.graph.ids, unknot.recovery.errors as e; print(unknot.RunBusy is e.RunBusy, e.__file__)"
    done = python("-c", code, cwd=copied)
    assert done.stdout.split() == ["True", str(copied / "recovery" / "errors.py")], done.stderr


def test_links_checked_out_as_text_files_work_too(copied: Path) -> None:
    for folder in FOLDERS:
        (copied / "unknot" / folder).unlink()
        (copied / "unknot" / folder).write_text(f"../{folder}")
    done = python("-c", "import unknot.graph.ids; print(unknot.graph.__name__)", cwd=copied)
    assert done.stdout.strip() == "unknot.graph", done.stderr


def test_every_part_of_the_code_is_named_to_the_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(FOLDERS) <= set(wheel["only-include"])
    assert wheel["sources"] == {folder: f"unknot/{folder}" for folder in FOLDERS}


@pytest.mark.parametrize(
    ("where", "line", "told"),
    [
        ("graph/ids.py", "import unknot.supervisor.config", "unknot.graph.ids -> unknot.supervisor.config"),
        ("recovery/lock.py", "import unknot.integrations.threads", "unknot.recovery.lock -> unknot.integrations.threads"),
        ("graph/needs.py", "import threading", "unknot.graph.needs -> threading"),
    ],
)
def test_an_import_against_the_layers_is_caught(copied: Path, where: str, line: str, told: str) -> None:
    path = copied / where
    path.write_text(path.read_text() + f"\n{line}\n")
    done = lint_imports(copied)
    assert done.returncode == 1
    assert told in done.stdout.replace("\n", " ")


def test_the_layers_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def lint_imports(cwd: Path) -> subprocess.CompletedProcess[str]:
    code = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    return python("-c", code, "--no-cache", cwd=cwd)
