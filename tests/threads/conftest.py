"""A wait table for locks."""

from __future__ import annotations

import pytest

from tests.recorder.puppets import make_table
from unknot.supervisor.recorder.table import WaitTable


@pytest.fixture
def table() -> WaitTable:
    return make_table()
