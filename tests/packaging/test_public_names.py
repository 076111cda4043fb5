"""`import unknot` is the whole public API: what is named there loads, is documented, and costs nothing until used."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import unknot

ROOT = Path(__file__).parents[2]
THIRD_PARTY = {
    "ray", "torch", "numpy", "networkx", "redis", "structlog", "rich", "textual", "msgspec", "psutil", "tenacity",
    "typer", "click", "httpx2", "standardwebhooks",
}  # fmt: skip


def modules_after(code: str) -> set[str]:
    """The top-level names in sys.modules of a new interpreter that ran `code`."""
    show = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_unknot_loads_the_standard_library_alone() -> None:
    assert modules_after("import unknot") & THIRD_PARTY == set()


def test_a_worker_that_uses_a_lock_loads_neither_the_command_nor_ray_nor_torch() -> None:
    loaded = modules_after("from unknot.integrations.primitives import Lock")
    assert loaded & THIRD_PARTY <= {"msgspec", "redis", "tenacity", "structlog", "psutil"}


def test_the_command_and_the_alerts_stay_out_of_a_worker() -> None:
    code = (
        "import sys; from unknot.integrations.primitives import Lock\n"
        "loaded = [n for n in sys.modules if n.startswith(('unknot.supervisor.cli', 'unknot.supervisor.alerts',"
        " 'unknot.supervisor.monitor', 'unknot.graph.reduce'))]\n"
        "assert not loaded, loaded"
    )
    modules_after(code)


def test_dir_and_all_agree_and_name_nothing_twice() -> None:
    assert len(unknot.__all__) == len(set(unknot.__all__))
    assert set(unknot.__all__) <= set(dir(unknot))


def test_what_a_type_checker_sees_is_what_is_there() -> None:
    assert names_for_type_checkers() == set(unknot.__all__)


def names_for_type_checkers() -> set[str]:
    """The names in the TYPE_CHECKING block of unknot/__init__.py."""
    lines = (ROOT / "unknot" / "__init__.py").read_text().splitlines()
    return {line.rpartition(" as ")[2] for line in lines if line.startswith("    from unknot.")}


@pytest.mark.parametrize("name", unknot.__all__)
def test_every_public_name_loads(name: str) -> None:
    value = getattr(unknot, name)
    assert value.__module__.startswith("unknot.")


def test_a_name_that_is_not_there_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Locks'"):
        _ = unknot.Locks


@pytest.mark.parametrize("name", unknot.__all__)
def test_every_public_name_and_method_is_documented(name: str) -> None:
    value = getattr(unknot, name)
    undocumented = [where for where, thing in documented_parts(name, value) if not inspect.getdoc(thing)]
    assert undocumented == []


def documented_parts(name: str, value: Any) -> list[tuple[str, Any]]:
    """The thing itself, and for a class of ours its public methods, own and inherited."""
    parts = [(name, value)]
    if inspect.isclass(value):
        parts += [
            (f"{name}.{attribute}", member)
            for attribute, member in inspect.getmembers(value)
            if not attribute.startswith("_")
            and callable(member)
            and str(getattr(member, "__module__", "")).startswith("unknot")
        ]
    return parts


def test_the_version_is_told_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == unknot.__version__
