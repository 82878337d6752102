"""What processes that have ended leave in an arena: forked children, of which nobody but a controller can know.

The agent gives back what threads of its own process leave. A child that ends as a whole tells nobody; its threads keep
their entries, and its pages of cells are kept from the next thread that needs one, though what is in them counts on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.agent.registry import Registry
from shadowgraph.ops.processes import runs
from shadowgraph.target.status import read_status

__all__ = ["reap"]


def reap(registry: Registry, pid: int) -> None:
    """Give back what processes have left that have forked from ``pid`` and ended. Called with the lock held.

    The entries of threads are for recorders to give back, where there are any. In another PID namespace the numbers of
    processes say nothing to us, and all are left alone.
    """
    if (read_status(pid) or {}).get("NSpid", str(pid)).split() != [str(pid)]:
        return
    threads, pages = registry.arena.threads, registry.arena.pages[: int(registry.arena.header["page_end"])]
    # Seen before its process is found to have ended: a later one with its number has entries of its own.
    living = np.flatnonzero(threads["state"] == layout.THREAD_LIVE)
    used = np.flatnonzero(pages["state"] == layout.PAGE_USED)
    owners, users = threads["pid"][living], pages["pid"][used]
    holders = list(_holders(registry))
    of_instances = [words[words != 0] >> np.uint64(32) for words in holders]
    ended = [one for one in np.unique(np.concatenate([owners, users, *of_instances])).tolist() if not runs(int(one))]
    if not ended:
        return
    pages["state"][used[np.isin(users, ended)]] = layout.PAGE_ORPHAN
    for words in holders:
        words[(words != 0) & np.isin(words >> np.uint64(32), np.array(ended, np.uint64))] = 0
    if not registry.has_recorder():
        threads["state"][living[np.isin(owners, ended)]] = layout.THREAD_FREE


def _holders(registry: Registry) -> Iterator[npt.NDArray[np.uint64]]:
    """For each user with instances the words that say whose they are (struct sg_instances)."""
    users = registry.arena.registry["users"]
    for slot in registry.slots():
        row = users[slot]
        if int(row["kind"]) == layout.USER_HANDLER and row["instances"]:
            at = int(row["instances_at"]) + layout.instances_dtype.itemsize
            yield registry.arena.pool[at : at + 8 * int(row["instances"])].view(np.uint64)
