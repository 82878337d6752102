"""The call tree: all calls merged by the path of functions that leads to them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from shadowgraph.analysis.batches import Progress, native_batches
from shadowgraph.trace.columns import address, library
from shadowgraph.trace.reader import Trace

__all__ = ["NODE_DTYPE", "CallTree", "call_tree"]

# struct sg_tree_node
NODE_DTYPE = np.dtype(
    [(name, "<i8") for name in ("calls", "total", "self", "open", "unwound")] + [("parent", "<u4"), ("function", "<u4")]
)


@dataclass(frozen=True)
class CallTree:
    """All nodes as one array of NODE_DTYPE; times in nanoseconds.

    The first ``len(processes)`` nodes are roots, one for each process index in ``processes``. ``total`` is the time in
    which at least one call of a node was in flight, of a root any call at all, thread by thread: no node's is more than
    its root's, be there coroutines whose calls overlap. A parent's number is always smaller than its children's.
    """

    nodes: np.ndarray[Any, Any]
    processes: list[int]


def call_tree(trace: Trace, progress: Progress | None = None) -> CallTree:
    """One pass over all calls; memory grows with the number of distinct paths alone."""
    threads, owners = trace.threads["thread"].to_numpy(), trace.threads["process"].to_numpy()
    processes = sorted(set(owners.tolist())) or [0]
    roots = np.zeros(int(threads.max(initial=0)) + 2, "<u4")
    roots[threads] = np.searchsorted(processes, owners)
    native = library()
    state = native.sg_tree_create(len(processes))
    if not state:
        raise MemoryError
    try:
        for batch in native_batches(trace, progress):
            if not native.sg_tree_feed(state, ctypes.byref(batch), address(roots), len(roots)):
                raise MemoryError
        nodes = np.empty(native.sg_tree_count(state), NODE_DTYPE)
        native.sg_tree_finish(state, address(nodes))
    finally:
        native.sg_tree_destroy(state)
    _sum_roots(nodes, len(processes))
    return CallTree(nodes, processes)


def _sum_roots(nodes: np.ndarray[Any, Any], roots: int) -> None:
    """A root is not called by anybody and does nothing itself: its calls are those of its children."""
    below = nodes[roots:]
    first_level = below[below["parent"] < roots]
    nodes["calls"][:roots] = 0
    np.add.at(nodes["calls"], first_level["parent"], first_level["calls"])
    nodes["self"][:roots] = 0
