"""The graph for other tools."""

from __future__ import annotations

import subprocess
import sys

from tests.graph.scenes import DEMO_CORE, demo
from unknot.graph.export import to_networkx


def test_the_ring_of_the_demo_is_a_component_of_the_exported_graph() -> None:
    import networkx

    drawn = to_networkx(demo().graph)
    parts = [part for part in networkx.strongly_connected_components(drawn) if len(part) > 1]
    assert parts == [{*DEMO_CORE, "lock:weights", "mbox:raw", "coll:policy@g1"}]
    assert drawn.nodes["driver/main#1"]["stuck"]


def test_networkx_is_loaded_only_when_asked_for() -> None:
    code = "import sys, unknot.graph.export, unknot.graph.explain; assert 'networkx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
