"""One function in a call tree: what it calls, and who calls it, each merged into a tree of its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from shadowgraph.analysis.tree import NODE_DTYPE

__all__ = ["callees_of", "callers_of"]

Nodes = np.ndarray[Any, Any]


def callees_of(nodes: Nodes, functions: Collection[int]) -> Nodes:
    """The subtrees below all outermost calls of some functions, merged; node 0 stands for the functions themselves.

    A call within another one of the same functions is part of that one's subtree: its time does not count twice.
    """
    place: dict[tuple[int, int], int] = {}
    merged_into: dict[int, int] = {}
    parents, sources = [0], [[]]  # type: tuple[list[int], list[list[int]]]
    wanted = set(functions)
    rows = zip(nodes["parent"].tolist(), nodes["function"].tolist(), strict=True)
    for number, (parent, function) in enumerate(rows):
        above = merged_into.get(parent) if parent != number else None
        if above is None:
            if function not in wanted:
                continue
            merged = 0
        else:
            merged = place.setdefault((above, function), len(parents))
            if merged == len(parents):
                parents.append(above)
                sources.append([])
        merged_into[number] = merged
        sources[merged].append(number)
    return _count_all(_sums(nodes, parents, sources), nodes, wanted)


def callers_of(nodes: Nodes, functions: Collection[int], depth: int) -> Nodes:
    """Who calls some functions, and who calls those, up to ``depth`` levels: a tree that grows towards the callers.

    Node 0 stands for the functions; the numbers of every other node are those of the calls of the functions that were
    reached along this way, not of the caller itself.
    """
    place: dict[tuple[int, int], int] = {}
    parents, sources = [0], [[]]  # type: tuple[list[int], list[list[int]]]
    callers: list[int] = [0]
    parent_of, function_of = nodes["parent"].tolist(), nodes["function"].tolist()
    wanted = set(functions)
    inside: dict[int, bool] = {}
    for number, function in enumerate(function_of):
        parent = parent_of[number]
        inside[number] = parent != number and (inside[parent] or function_of[parent] in wanted)
        if function not in wanted or parent == number:
            continue
        if not inside[number]:
            sources[0].append(number)
        merged, above = 0, parent
        for _ in range(depth):
            if parent_of[above] == above:
                break
            key = (merged, function_of[above])
            if key not in place:
                place[key] = len(parents)
                parents.append(merged)
                sources.append([])
                callers.append(function_of[above])
            merged = place[key]
            sources[merged].append(number)
            above = parent_of[above]
    result = _sums(nodes, parents, sources)
    result["function"] = callers
    return _count_all(result, nodes, wanted)


def _count_all(result: Nodes, nodes: Nodes, functions: Collection[int]) -> Nodes:
    """Make node 0 stand for all calls of the functions; its total is that of the outermost ones alone."""
    theirs = nodes[np.isin(nodes["function"], list(functions))]
    for name in ("calls", "self", "open", "unwound"):
        result[name][0] = theirs[name].sum()
    return result


def _sums(nodes: Nodes, parents: list[int], sources: list[list[int]]) -> Nodes:
    """Nodes whose numbers are the sums over their sources."""
    result = np.zeros(len(parents), NODE_DTYPE)
    result["parent"] = parents
    flat = np.array([number for group in sources for number in group], "<i8")
    owner = np.repeat(np.arange(len(sources)), [len(group) for group in sources])
    for name in ("calls", "total", "self", "open", "unwound"):
        np.add.at(result[name], owner, nodes[name][flat])
    result["function"][owner] = nodes["function"][flat]
    return result
