"""Each trace of examples/traces is answered as it says beside it, through the code of the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unknot.graph.trace import read
from unknot.supervisor.cli.command_replay import ReplayOptions, run
from unknot.supervisor.traces import opened

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "traces"
TRACES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))


def expected(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.expected.json").read_text())
    return found


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_answered_as_it_says_beside_it(name: str) -> None:
    report = run(FOLDER / f"{name}.jsonl", ReplayOptions()).report
    wanted = expected(name)
    texts = [one.text for one in report.incidents]
    said = [one.pop("says") for one in wanted["incidents"]]
    keys = [list(one) for one in wanted["incidents"]]
    found = [
        {key: _plain(getattr(one, key)) for key in names} for one, names in zip(report.incidents, keys, strict=False)
    ]
    assert (found, len(report.incidents)) == (wanted["incidents"], len(keys)), texts
    assert {"stuck": list(report.final.stuck), "core": list(report.final.core)} == wanted["final"]
    assert [list(one.locks) for one in report.hazards] == wanted["hazards"]
    assert [[one.resource, sorted(one.sites)] for one in report.mixings] == wanted["warnings"]
    assert sorted([one.cause, list(one.culprits)] for one in report.notes) == wanted["notes"]
    for text, phrases in zip(texts, said, strict=True):
        assert [phrase for phrase in phrases if phrase not in text] == [], text


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_there_are_at_least_thirty_and_ten_healthy_look_alikes() -> None:
    assert len(TRACES) >= 30
    assert sum(name.startswith("healthy_") for name in TRACES) >= 10


def test_each_says_in_the_readme_what_it_tells() -> None:
    readme = (FOLDER / "README.md").read_text()
    assert [name for name in TRACES if f"`{name}`" not in readme] == []


@pytest.mark.parametrize("name", TRACES)
def test_every_key_of_a_trace_means_something(name: str) -> None:
    """A misspelt key would be ignored, and the trace would test something else than it tells."""
    with opened(FOLDER / f"{name}.jsonl") as lines:
        told = list(lines)
    _, events = read(told)
    for line, event in zip(told[1:], events, strict=True):
        known = {"ev", "src", "n", "amount", *event.event.__struct_fields__}
        assert set(json.loads(line)) <= known
