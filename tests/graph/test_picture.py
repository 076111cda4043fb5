"""The picture shows the stuck part and its neighbours, in shapes that mean something, whatever the names are."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from tests.graph.scenes import Scene, any_of, atom, demo
from unknot.graph.draw import dot, mermaid, plain
from unknot.graph.draw_svg import svg
from unknot.graph.layout import layers
from unknot.graph.picture import Picture, picture

SVG = "{http://www.w3.org/2000/svg}"
NASTY = 'agent/<b>"\\x\n\u202e`$(x)`]}--><script>#1'


def drawn(scene: Scene, **more: int | bool) -> Picture:
    return picture(scene.graph, 100.0, **more)  # type: ignore[arg-type]


def test_the_ring_is_marked_through_what_stands_between_its_members_and_nothing_else_is() -> None:
    found = drawn(demo())
    assert {node.id for node in found.nodes if node.core} == {
        "agent/b#1", "trainer/0#1", "trainer/0#1/queue:policy", "trainer/1#1",
    }  # fmt: skip
    outside = {(e.origin, e.target) for e in found.edges if not e.core}
    assert all("driver/main#1" in origin for origin, _ in outside)
    assert len([e for e in found.edges if e.core]) == 7


def test_shapes_say_what_a_node_is() -> None:
    kinds = {node.id: node.kind for node in drawn(demo()).nodes}
    assert kinds["lock:weights"] == "resource"
    assert kinds["coll:policy@g1 #41"] == "collective"
    assert kinds["driver/main#1|all"] == "all"
    told = dot(drawn(demo()))
    assert all(f"shape={shape}" in told for shape in ("ellipse", "box", "hexagon", "circle"))
    assert "{{" in mermaid(drawn(demo()))


def test_a_choice_is_an_open_gate_and_what_has_ended_carries_a_cross() -> None:
    scene = Scene().start("a", "b", "c").end("b", "crash")
    scene.wait("a", *any_of(atom("p=b"), atom("p=c")), site="a.py:1").wait("c", atom("p=a"))
    found = drawn(scene)
    assert {node.kind for node in found.nodes if node.id == "a|0"} == {"any"}
    assert "✗ b" in plain(found)
    assert "a.py:1" in plain(found)


def test_only_the_core_and_its_neighbours_are_shown_unless_all_are_asked_for() -> None:
    scene = demo().start("far/a#1", "far/b#1").wait("far/a#1", atom("p=driver/main#1")).wait("far/b#1", atom("p=far/a#1"))
    near = {node.id for node in drawn(scene).nodes}
    assert "driver/main#1" in near
    assert "far/a#1" not in near
    assert "far/b#1" in {node.id for node in drawn(scene, everybody=True).nodes}


def test_what_is_beyond_the_limit_is_counted() -> None:
    scene = Scene().start(*(f"m{i}" for i in range(90)))
    for i in range(90):
        scene.wait(f"m{i}", atom(f"p=m{(i + 1) % 90}"))
    found = drawn(scene, limit=10)
    assert (sum(node.kind == "participant" for node in found.nodes), found.left_out) == (10, 80)
    assert "and 80 more" in plain(found)
    assert "80 more are not shown" in svg(found)


def test_where_nothing_is_stuck_whoever_waits_is_shown() -> None:
    scene = Scene().start("a", "b").wait("a", atom("p=b"))
    assert plain(drawn(scene)) == "  a —99 s→ b\n  b (running)\n"
    assert plain(drawn(Scene().start("a"))) == "nobody waits\n"


@pytest.mark.parametrize("render", [plain, dot, mermaid, svg])
def test_a_name_can_break_no_renderer(render: object) -> None:
    scene = Scene().resource(f"lock:{NASTY}", "lock").start(NASTY, "b#1").hold("b#1", f"lock:{NASTY}")
    scene.wait(NASTY, atom(f"lock:{NASTY}"), site=NASTY).wait("b#1", atom(f"p={NASTY}"))
    told = render(drawn(scene))  # type: ignore[operator]
    assert "\u202e" not in told
    if render is svg:
        root = ET.fromstring(told)
        assert root.find(f".//{SVG}script") is None
    if render is dot:
        for line in told.splitlines()[3:-1]:
            assert line.replace("\\\\", "").replace('\\"', "").count('"') == 2
    if render is mermaid:
        assert '"' not in "".join(part for part in told.split('"')[1::2])
        assert "<script>" not in told


def test_the_svg_is_one_file_with_a_title_its_sentences_and_every_node() -> None:
    found = drawn(demo())
    root = ET.fromstring(svg(found, ["agent/b waits <5 s & more"]))
    assert root.findtext(f"{SVG}title") == "Who waits for whom"
    assert root.findtext(f"{SVG}desc") == "agent/b waits <5 s & more"
    assert {n.id for n in found.nodes} <= {t.split(", ")[0] for one in root.iter(f"{SVG}title") if (t := one.text)}
    assert "href" not in svg(found)


def test_layers_go_from_who_waits_to_who_could_end_it() -> None:
    scene = Scene().start("a", "b", "c").wait("a", atom("p=b")).wait("b", atom("p=c"))
    assert layers(drawn(scene)) == [["a"], ["b"], ["c"]]


def test_the_same_graph_is_drawn_the_same_way_whatever_the_hash_of_strings_is() -> None:
    code = (
        "from tests.graph.scenes import demo\nfrom unknot.graph.picture import picture\n"
        "from unknot.graph.draw_svg import svg\nimport hashlib\n"
        "print(hashlib.sha256(svg(picture(demo().graph, 9.0)).encode()).hexdigest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True, timeout=120, cwd=".",
        ).stdout
        for seed in (1, 2, 3)
    }  # fmt: skip
    assert len(told) == 1
