"""The command, in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from unknot.supervisor.cli.main import main

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """`supervisor("replay", path)`: its exit code, stdout and stderr."""

    def run(*args: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["supervisor", *map(str, args)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess([str(arg) for arg in args], ended.value.code, out, err)

    return run
