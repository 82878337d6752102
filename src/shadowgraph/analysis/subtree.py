"""One function in a call tree: what it calls, and who calls it, each merged into a tree of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
    reached along this way, not of the caller itself. A call within another one that was reached along the same way
    (recursion) is counted, and its time is not: it is part of that one's.
    """
    place: dict[tuple[int, int], int] = {}
    parents, callers, in_flight = [0], [0], [0]
    sources, outermost = [[]], [[]]  # type: tuple[list[list[int]], list[list[int]]]
    parent_of, function_of = nodes["parent"].tolist(), nodes["function"].tolist()
    wanted = set(functions)
    ways: list[list[int]] = []
    for number, entered in _walk(nodes):
        if function_of[number] not in wanted or parent_of[number] == number:
            continue
        if not entered:
            for merged in ways.pop():
                in_flight[merged] -= 1
            continue
        way, above = [0], parent_of[number]
        for _ in range(depth):
            if parent_of[above] == above:
                break
            key = (way[-1], function_of[above])
            if key not in place:
                place[key] = len(parents)
                parents.append(way[-1])
                callers.append(function_of[above])
                in_flight.append(0)
                sources.append([])
                outermost.append([])
            way.append(place[key])
            above = parent_of[above]
        ways.append(way)
        for merged in way:
            sources[merged].append(number)
            if not in_flight[merged]:
                outermost[merged].append(number)
            in_flight[merged] += 1
    result = _sums(nodes, parents, sources, outermost)
    result["function"] = callers
    return result


def _walk(nodes: Nodes) -> Iterator[tuple[int, bool]]:
    """Each node when it is entered (True) and when it is left (False), what is below it in between."""
    numbers = np.arange(len(nodes))
    below = numbers[nodes["parent"] != numbers]
    below = below[np.argsort(nodes["parent"][below], kind="stable")]
    parents = nodes["parent"][below]
    first = np.searchsorted(parents, numbers, "left").tolist()
    last = np.searchsorted(parents, numbers, "right").tolist()
    children = below.tolist()
    stack = [(root, True) for root in numbers[nodes["parent"] == numbers].tolist()]
    while stack:
        number, entered = stack.pop()
        yield number, entered
        if entered:
            stack.append((number, False))
            stack += [(child, True) for child in reversed(children[first[number] : last[number]])]


def _count_all(result: Nodes, nodes: Nodes, functions: Collection[int]) -> Nodes:
    """Make node 0 stand for all calls of the functions; its total is that of the outermost ones alone."""
    theirs = nodes[np.isin(nodes["function"], list(functions))]
    for name in ("calls", "self", "open", "unwound"):
        result[name][0] = theirs[name].sum()
    return result


def _sums(nodes: Nodes, parents: list[int], sources: list[list[int]], timed: list[list[int]] | None = None) -> Nodes:
    """Nodes whose numbers are the sums over their sources, their times those over ``timed`` (if it is another choice).

    No total is more than that of node 0. It could only be where calls overlap, as those of coroutines do: then the sum
    of what several paths took is more than the time there was.
    """
    result = np.zeros(len(parents), NODE_DTYPE)
    result["parent"] = parents
    flat, owner = _flat(sources)
    result["function"][owner] = nodes["function"][flat]
    for name in ("calls", "self", "open", "unwound"):
        np.add.at(result[name], owner, nodes[name][flat])
    flat, owner = (flat, owner) if timed is None else _flat(timed)
    np.add.at(result["total"], owner, nodes["total"][flat])
    np.minimum(result["total"], result["total"][0], out=result["total"])
    return result


def _flat(groups: list[list[int]]) -> tuple[Nodes, Nodes]:
    """The members of all groups, and the number of the group of each."""
    members = np.array([number for group in groups for number in group], "<i8")
    return members, np.repeat(np.arange(len(groups)), [len(group) for group in groups])
