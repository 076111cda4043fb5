"""Traces as lists of lines, and what a replay makes of them."""

from __future__ import annotations

import json
from typing import Any

from unknot.graph.replay import Replay, Report
from unknot.graph.trace import read

TOTAL = {"schema": "unknot.trace/1", "run": "r", "order": "total"}
ARRIVAL = {**TOTAL, "order": "arrival"}


def one(ev: str, p: str = "", **more: Any) -> dict[str, Any]:
    """An event as it stands in a trace."""
    return {"ev": ev, **({"p": p} if p else {}), **more}


def wait(p: str, ticket: int, *atoms: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A wait for all of `atoms`."""
    return one("wait", p, ticket=ticket, needs=[{"k": 1, "of": [atom]} for atom in atoms], **more)


def lock(r: str) -> dict[str, Any]:
    return one("resource", r=r, type="lock")


def encoded(*events: dict[str, Any], head: dict[str, Any] = TOTAL) -> list[bytes]:
    return [json.dumps(line).encode() + b"\n" for line in (head, *events)]


def from_sources(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """The same events with `src` and `n`, as their processes would number them."""
    count: dict[str, int] = {}
    found = []
    for event in events:
        src = event.get("src") or event.get("p", "store").split("/queue:")[0]
        count[src] = count.get(src, 0) + 1
        amount = {"amount": event["n"]} if "n" in event and event["ev"] != "beat" else {}
        found.append({**event, "src": src, "n": count[src], **amount})
    return found


def replayed(lines: list[bytes]) -> Report:
    header, events = read(lines)
    play = Replay(header)
    for event in events:
        play.feed(event)
        play.graph.validate()
    return play.report()


def crossed() -> list[dict[str, Any]]:
    """a holds lock:1 and wants lock:2, b the other way round; the wait that closes the ring is on line 10."""
    return [
        lock("lock:1"), lock("lock:2"), one("start", "a#1"), one("start", "b#1"), one("start", "c#1"),
        one("hold", "a#1", r="lock:1"), one("hold", "b#1", r="lock:2"), wait("a#1", 1, {"r": "lock:2"}, t=1),
        wait("b#1", 1, {"r": "lock:1"}, t=2),
    ]  # fmt: skip
