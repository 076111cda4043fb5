"""Strongly connected components and reach, on small graphs given as neighbour maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def components(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan 1972, explicit stack). Neighbours outside `graph` are ignored."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []

    def enter(node: str, path: list[tuple[str, Iterator[str]]]) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        path.append((node, iter([n for n in graph[node] if n in graph])))

    for root in graph:
        path: list[tuple[str, Iterator[str]]] = []
        if root not in index:
            enter(root, path)
        while path:
            node, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    found.append(_take(stack, on_stack, node))
            elif following not in index:
                enter(following, path)
            elif following in on_stack:
                low[node] = min(low[node], index[following])
    return found


def _take(stack: list[str], on_stack: set[str], node: str) -> list[str]:
    part = []
    while True:
        part.append(stack.pop())
        on_stack.discard(part[-1])
        if part[-1] == node:
            return part


def reach(graph: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """Everything that can be reached from `start` inside `graph`, `start` included."""
    seen = {node for node in start if node in graph}
    todo = list(seen)
    while todo:
        for following in graph[todo.pop()]:
            if following in graph and following not in seen:
                seen.add(following)
                todo.append(following)
    return seen


def reverse(graph: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """The same nodes with every edge turned round."""
    turned: dict[str, list[str]] = {node: [] for node in graph}
    for node, following in graph.items():
        for other in following:
            if other in turned:
                turned[other].append(node)
    return turned
