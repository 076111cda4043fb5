"""Equal-sized operations that are mixed without a sign, told by where they were issued; and places that differ by right."""

from __future__ import annotations

import pytest

from unknot.graph import call_sites
from unknot.graph import events as ev
from unknot.graph.call_sites import CallSites, Mixing
from unknot.graph.collectives import comparable, may_differ_in_size
from unknot.graph.live import LiveGraph

G = "coll:g@g1"


def issued(*ranks: list[str], alike: tuple[tuple[str, ...], ...] | None = None, op: str = "all_reduce") -> tuple[Mixing, ...]:
    """What is told if rank i issues its operations at the sites of list i."""
    graph, sites = LiveGraph(), CallSites()
    names = tuple(f"r{i}" for i in range(len(ranks)))
    graph.apply(ev.Resource(r=G, type="collective", members=names, alike=alike))
    for seq in range(max(map(len, ranks))):
        for name, places in zip(names, ranks, strict=True):
            if seq < len(places):
                event = ev.Arrive(p=name, r=G, seq=seq + 1, op=op, shape="[[4]]", site=places[seq])
                graph.apply(event)
                sites.observe(graph, event)
    return sites.warnings()


def test_a_swap_on_one_rank_is_told_with_both_places() -> None:
    (one,) = issued(["a", "b"], ["b", "a"])
    assert (set(one.sites), one.participants, one.seq) == ({"a", "b"}, ("r0", "r1"), 2)
    assert "issued by r0 at b and by r1 at a" in one.text


def test_one_operation_left_out_shifts_the_rest_and_is_told() -> None:
    assert {frozenset(one.sites) for one in issued(["a", "b", "c", "d"], ["b", "c", "d", "e"])} >= {frozenset("bc")}


@pytest.mark.parametrize(
    "ranks",
    [
        [["a"] * 6, ["b"] * 6, ["b"] * 6],
        [["a", "c"] * 3, ["b", "c"] * 3],
        [["a", "b", "c"] * 3, ["x", "b", "c"] * 3, ["y", "b", "c"] * 3],
        [["a", "h", "h", "a"], ["h", "h", "h", "h"]],
        [["a", "b", "c"]] * 3,
    ],
    ids=["branch of rank 0", "branch, then together", "three roles", "a helper that one branch calls too", "all alike"],
)
def test_places_that_differ_by_role_are_no_warning(ranks: list[list[str]]) -> None:
    assert issued(*ranks) == ()


def test_roles_that_rotate_are_told_until_they_are_marked() -> None:
    rotating = (["a", "b", "a", "b"], ["b", "a", "b", "a"])
    assert len(issued(*rotating)) == 1
    assert issued(*rotating, alike=(("a", "b"),)) == ()


def test_operations_that_differ_openly_are_a_mismatch_and_no_mixing() -> None:
    graph, sites = LiveGraph(), CallSites()
    graph.apply(ev.Resource(r=G, type="collective", members=("x", "y")))
    for seq, (here, there) in enumerate((("a", "b"), ("b", "a")), 1):
        for who, site in (("x", here), ("y", there)):
            event = ev.Arrive(p=who, r=G, seq=seq, op=f"op at {site}", site=site)
            graph.apply(event)
            sites.observe(graph, event)
    assert sites.warnings() == ()


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_sites, "SLOTS", 8)
    monkeypatch.setattr(call_sites, "SITES", 8)
    monkeypatch.setattr(call_sites, "WARNINGS", 8)
    graph, sites = LiveGraph(), CallSites()
    graph.apply(ev.Resource(r=G, type="collective", members=("x", "y")))
    for seq in range(1, 200):
        for who, site in (("x", f"s{seq}"), ("y", f"s{seq + 1}")):
            event = ev.Arrive(p=who, r=G, seq=seq, op="o", site=site)
            graph.apply(event)
            sites.observe(graph, event)
    group = sites._groups[G]
    assert len(group.slots) <= 8
    assert all(len(known) <= 8 for known in group.out_of_line.values())
    assert len(sites.warnings()) <= 8


@pytest.mark.parametrize(
    ("op", "differs"),
    [("all_to_all", True), ("gather", True), ("scatter", True), ("barrier", True), ("all_gather_object", True),
     ("all_reduce", False), ("all_gather", False), ("reduce_scatter", False), ("broadcast", False), ("", False)],
)  # fmt: skip
def test_some_operations_may_have_another_size_on_each_rank(op: str, differs: bool) -> None:
    assert may_differ_in_size(op) is differs


def test_only_what_an_operation_has_is_compared() -> None:
    fields = ("op", "shape", "dtype", "root", "reduce_op")
    assert comparable(fields, ("all_reduce", "4", "f", 0, "sum")) == ("all_reduce", "4", "f", None, "sum")
    assert comparable(fields, ("broadcast", "4", "f", 1, "sum")) == ("broadcast", "4", "f", 1, None)
    assert comparable(fields, ("all_to_all", "4", "f", None, None)) == ("all_to_all", None, "f", None, None)
    assert comparable(fields, (None, "4", "f", 0, "sum")) == (None, "4", "f", 0, "sum")
