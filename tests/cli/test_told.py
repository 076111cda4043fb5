"""What the documents say of the command is what it does."""

from __future__ import annotations

import json
import re
from typing import get_args

from tests.cli.running import ROOT, Run
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.incidents import Cause

README = " ".join((ROOT / "README.md").read_text().split())
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def test_every_exit_code_stands_in_the_table() -> None:
    table = re.findall(r"^\| (\d+) \| (.+) \|$", OPERATIONS.partition("### Exit codes")[2].partition("###")[0], re.MULTILINE)
    assert [int(code) for code, _ in table] == list(exit_codes.SENTENCES)
    assert dict(table)["5"] == exit_codes.SENTENCES[exit_codes.FAILED]


def test_every_cause_is_explained() -> None:
    causes = README[README.index("Causes: ") :]
    assert [cause for cause in get_args(Cause) if f"`{cause}` (" not in causes and f"`{cause}`," not in causes] == []


def test_the_queue_of_a_group_among_the_culprits_is_explained(quick: Run) -> None:
    done = quick("replay", "--json", str(ROOT / "examples" / "traces" / "three_layers_with_a_group_queue.jsonl"))
    (incident,) = json.loads(done.stdout)["incidents"]
    assert "trainer/0#1/queue:policy" in incident["core"]
    assert "`trainer/0#1/queue:policy` is no thread and no mailbox" in README
