"""The limits this code keeps: small files, small functions, and a few habits no linter checks.

The numbers are those of code that has stayed easy to change; the 90th percentile is watched beside the maximum because it
moves first when a code base begins to rot.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("graph", "recovery", "supervisor", "integrations")
LINES_OF_A_FILE = 600
LINES_OF_A_FUNCTION = 60
P90_OF_FUNCTIONS = 25
POSITIONAL = 4
LOG_CALLS = {"debug", "info", "warning", "error", "exception", "critical"}
# A command's options are the parameters of its function: typer has no other way.
LONG_SIGNATURES = {"supervisor/cli/app.py"}


class Function(NamedTuple):
    """One function and how long it is, its docstring not counted."""

    where: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    lines: int


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def all_sources() -> list[Path]:
    return [ROOT / "unknot" / "__init__.py", *sources(*FOLDERS, "examples", "benchmarks", "tests")]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(paths: list[Path]) -> Iterator[Function]:
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Function(f"{shown(path)}:{node.lineno} {node.name}", node, length(node))


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return whole
    docstring = node.body[0]
    return whole - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def test_no_file_is_longer_than_600_lines() -> None:
    lengths = {shown(path): path.read_text().count("\n") for path in all_sources()}
    assert {path: lines for path, lines in lengths.items() if lines > LINES_OF_A_FILE} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    assert [f"{f.where}: {f.lines}" for f in functions(all_sources()) if f.lines > LINES_OF_A_FUNCTION] == []


def test_nine_functions_in_ten_are_shorter_than_25_lines() -> None:
    lengths = sorted(f.lines for f in functions(sources(*FOLDERS)))
    assert lengths[int(len(lengths) * 0.9)] < P90_OF_FUNCTIONS


def test_no_function_takes_more_than_four_positional_parameters() -> None:
    paths = [path for path in sources(*FOLDERS, "benchmarks") if shown(path) not in LONG_SIGNATURES]
    too_many = []
    for function in functions(paths):
        arguments = function.node.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args) if a.arg not in {"self", "cls"}]
        if len(names) > POSITIONAL:
            too_many.append(f"{function.where}: {', '.join(names)}")
    assert too_many == []


def test_nothing_is_left_to_do_in_comments() -> None:
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
    found = [
        f"{shown(path)}:{number}"
        for path in all_sources()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert found == []


def test_no_broad_except_is_silent() -> None:
    silent = [
        f"{shown(path)}:{node.lineno}"
        for path in sources(*FOLDERS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and is_broad(node) and all(is_nothing(one) for one in node.body)
    ]
    assert silent == []


def is_broad(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or (
        isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"}
    )


def is_nothing(statement: ast.stmt) -> bool:
    constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return constant or isinstance(statement, ast.Pass | ast.Continue)


def test_log_calls_take_fields_and_not_formatted_text() -> None:
    formatted = [
        f"{shown(path)}:{node.lineno}"
        for path in sources(*FOLDERS)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and is_log_call(node) and any(isinstance(a, ast.JoinedStr) for a in node.args)
    ]
    assert formatted == []


def is_log_call(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in LOG_CALLS:
        return False
    return isinstance(function.value, ast.Name) and function.value.id.strip("_") in {"log", "logger", "logging"}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_refuses_to_be_imported_under_its_own_name(folder: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {folder}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: import unknot.{folder}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_of_code_has_an_init_that_says_what_it_holds(folder: str) -> None:
    packages = {path.parent for path in sources(folder)}
    untold = [
        shown(package)
        for package in sorted(packages)
        if not (package / "__init__.py").is_file()
        or ast.get_docstring(ast.parse((package / "__init__.py").read_text())) is None
    ]
    assert untold == []
