"""No named point of a protocol is without a test that kills a real process at it.

The tests that kill go through lists, or are parametrized by them; here the lists are held against what the code passes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recovery.test_kill_points import STEP_POINTS
from tests.runs.test_ranks_lost import DEATHS
from tests.torch.test_reform_kills import OF_A_REFORM, OF_THE_END
from unknot.integrations.torch.restore import RESTORE_POINTS
from unknot.recovery.manifest import COMMIT_POINTS, SAVE_POINTS, SWEEP_POINTS

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
# Where the beginning of a name is added by the caller: the function that passes the point -> what is added.
ADDED = {"write_whole": "manifest.json.", "remove_folder": "manifest.sweep."}
# These only hand a name on.
HAND_ON = {"write_manifest", "_publish", "_reached_in_sweep", "_reached"}


def test_every_point_that_the_code_passes_is_one_at_which_a_real_process_is_killed() -> None:
    of_steps = {at.partition("#")[0] for at in STEP_POINTS} | {"take.granted"}
    of_training = {fault.partition("#")[0] for fault in DEATHS}
    of_manifests = {*SAVE_POINTS, *COMMIT_POINTS, *SWEEP_POINTS, *RESTORE_POINTS}
    passed = set(points_passed())
    assert passed == of_steps | of_training | of_manifests | {*OF_A_REFORM, *OF_THE_END}
    page = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    assert [name for name in sorted(passed) if f"`{name}`" not in page] == []


def points_passed() -> Iterator[str]:
    for folder in ("graph", "recovery", "supervisor", "integrations"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef):
                    yield from passed_in(node)


def passed_in(function: ast.FunctionDef) -> Iterator[str]:
    calls = [(node, ast.unparse(node.func)) for node in ast.walk(function) if isinstance(node, ast.Call)]
    for call, called in calls:
        if called not in ("reached", "self._reached"):
            continue
        name = call.args[0]
        if not isinstance(name, ast.Constant):
            assert function.name in HAND_ON, f"{function.name} passes a point whose name no test can know"
            continue
        assert isinstance(name.value, str)
        yield ("group." if called == "self._reached" else ADDED.get(function.name, "")) + name.value
