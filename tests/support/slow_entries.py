"""Which entry path serves those who want a function's calls: the slow, obvious twin of native/columns/entries.c."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout

__all__ = ["set_entries"]

# What only the path with a frame on the C stack deals with.
_HOOKS = layout.FLAG_EXEC | layout.FLAG_LOADED | layout.FLAG_CLONE | layout.FLAG_EXIT | layout.FLAG_SIGACTION
_PLAIN = np.uint64(1)  # the recorder that the plain paths of the agent serve has slot 0 (native/agent/paths.S)


def set_entries(
    records: npt.NDArray[np.void],
    zones: Mapping[str, int],
    *,
    armed: int,
    counters: int,
    measures: int,
    frugal: int,
    recorders: int,
) -> None:
    """Lead each thunk to the entry path that its flags and its armed users ask for; functions without any pass.

    ``counters`` are the users that share one counter for each function, ``measures`` those that want the exit and the
    time, and nothing at the entry, ``frugal`` those whose handlers are (beside them may be counters and the plain
    recorder), ``recorders`` those that record, without a condition or a limit.
    """
    flags = records["flags"]
    users = (records["users"][:, 0] | records["users"][:, 1]) & np.uint64(armed)
    differ = records["users"][:, 0] != records["users"][:, 1]
    enter = np.where(users == 0, records["body"], np.uint64(zones["enter_general"]))
    usual = (users != 0) & (flags & layout.FLAG_VALUES == 0) & ~differ
    everybody = usual & (records["callers"] & users == 0)
    counted = users & np.uint64(counters) != 0
    others = users & ~np.uint64(counters)
    recorded = usual & (users & ~np.uint64(recorders) == 0)
    enter[everybody & ~counted & (users & ~np.uint64(measures) == 0)] = zones["enter_measure"]
    handled = users & np.uint64(frugal) != 0
    beside_handlers = np.uint64(frugal | counters) | (np.uint64(recorders) & _PLAIN)
    enter[everybody & handled & (users & ~beside_handlers == 0)] = zones["enter_frugal"]
    enter[recorded & everybody] = zones["enter_recorders"]
    plain = usual & bool(recorders & 1) & (others == _PLAIN)
    enter[plain & ~counted] = zones["enter"]
    enter[plain & ~counted & (records["callers"] & _PLAIN != 0)] = zones["enter_from_caller"]
    enter[plain & counted & everybody] = zones["enter_count_and_record"]
    enter[(users != 0) & (others == 0) & (records["callers"] & users == 0) & ~differ] = zones["enter_count"]
    enter[flags & layout.FLAG_TRUE_RETURN != 0] = zones["enter_for_true_return"]
    enter[flags & _HOOKS != 0] = zones["enter_general"]
    records["recorders"] = np.where(recorded, users, np.uint64(0))
    records["enter"] = enter
