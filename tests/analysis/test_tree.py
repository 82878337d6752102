"""A call tree says what its slow twin says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import shadowgraph
from shadowgraph.analysis.subtree import callees_of, callers_of
from shadowgraph.analysis.tree import CallTree, call_tree
from shadowgraph.trace.convert import convert
from tests.support import slow
from tests.support.synthetic import Call, Recording, simulate_calls


def tree_of(recording: Recording, folder: Path) -> CallTree:
    recording.write(folder)
    convert(folder)
    with shadowgraph.open(folder) as trace:
        return call_tree(trace)


def paths(tree: CallTree) -> dict[tuple[int, ...], tuple[int, int, int]]:
    """All nodes but the roots, by their path of functions; of several roots the sum."""
    found: dict[tuple[int, ...], tuple[int, int, int]] = {}
    path: list[tuple[int, ...]] = []
    for number, node in enumerate(tree.nodes.tolist()):
        calls, total, own, _, _, parent, function = node
        path.append((*path[parent], function) if number >= len(tree.processes) else ())
        if path[-1]:
            known = found.get(path[-1], (0, 0, 0))
            found[path[-1]] = (known[0] + calls, known[1] + total, known[2] + own)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_paths_calls_and_times(tmp_path: Path, seed: int) -> None:
    threads = {n: simulate_calls(seed * 7 + n, 500, functions=3 + 4 * seed, root=n > 0) for n in range(3)}
    tree = tree_of(Recording(dict(threads), processes={1: 0, 2: 1}), tmp_path / "a.sgt")
    assert paths(tree) == slow.tree(dict(threads))
    assert tree.processes == [0, 1]
    for root in (0, 1):
        below = tree.nodes[2:][tree.nodes["parent"][2:] == root]
        assert tree.nodes["total"][root] == below["total"].sum()


@pytest.mark.parametrize("seed", range(4))
def test_calls_that_overlap_do_not_make_a_node_longer_than_the_time_there_was(tmp_path: Path, seed: int) -> None:
    random_ = random.Random(seed)
    threads = {
        n: [Call(10 * k, random_.randrange(4), random_.randrange(400), 1 + random_.randrange(3)) for k in range(300)]
        for n in range(2)
    }
    tree = tree_of(Recording(dict(threads)), tmp_path / "a.sgt")
    assert paths(tree) == slow.tree(dict(threads))
    whole = sum(slow.union((call.start, call.end) for call in calls) for calls in threads.values())
    assert tree.nodes["total"][0] == whole == tree.nodes["total"].max()
    for function in (1, 2, 3):
        for nodes in (callers_of(tree.nodes, [function], 10), callees_of(tree.nodes, [function])):
            assert nodes["total"].max() == nodes["total"][0]


@pytest.mark.parametrize("seed", range(4))
def test_recursion_counts_no_time_twice_in_any_way_that_leads_to_a_function(tmp_path: Path, seed: int) -> None:
    threads = {n: simulate_calls(seed * 5 + n, 400, functions=2 + seed) for n in range(2)}
    tree = tree_of(Recording(dict(threads)), tmp_path / "a.sgt")
    for function in range(1, 3 + seed):
        nodes = callers_of(tree.nodes, [function], depth=3)
        found = {path: row[:2] for path, row in paths(CallTree(nodes, [0])).items()}
        found[()] = (int(nodes["calls"][0]), int(nodes["total"][0]))
        assert found == slow.callers_of(dict(threads), function, depth=3)


def test_many_paths_are_kept_apart(tmp_path: Path) -> None:
    calls = [
        call
        for n in range(120 * 120)
        for call in (Call(100 * n, 0, 90, 1 + n // 120), Call(100 * n + 10, 1, 20, 200 + n % 120))
    ]
    tree = tree_of(Recording({0: calls}), tmp_path / "a.sgt")
    assert len(tree.nodes) == 1 + 120 + 120 * 120
    assert (tree.nodes["calls"][tree.nodes["function"] >= 200] == 1).all()


def test_callees_of_a_function_merge_its_outermost_calls(tmp_path: Path) -> None:
    # 1 calls 2 (which calls 3, and itself, which calls 4), and 5 calls 2 (which calls 3).
    calls = [
        Call(0, 0, 1000, 1), Call(10, 1, 300, 2), Call(20, 2, 50, 3), Call(100, 2, 100, 2), Call(110, 3, 40, 4),
        Call(400, 1, 200, 5), Call(410, 2, 100, 2), Call(420, 3, 30, 3),
    ]  # fmt: skip
    tree = tree_of(Recording({0: calls}), tmp_path / "a.sgt")
    callees = callees_of(tree.nodes, [2])
    assert paths(CallTree(callees, [0])) == {(3,): (2, 80, 80), (2,): (1, 100, 60), (2, 4): (1, 40, 40)}
    assert callees["calls"][0] == 3
    assert callees["total"][0] == 400
    assert callees["self"][0] == 300 - 150 + 60 + 70
    callers = callers_of(tree.nodes, [2], depth=10)
    assert {path: row[:2] for path, row in paths(CallTree(callers, [0])).items()} == {
        (1,): (1, 300), (2,): (1, 100), (2, 1): (1, 100), (5,): (1, 100), (5, 1): (1, 100),
    }  # fmt: skip
    assert (callers["calls"][0], callers["total"][0]) == (3, 400)
    assert len(callers_of(tree.nodes, [2], depth=1)) == 4
