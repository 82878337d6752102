"""Where the thunks of hooked functions lead: which entry path of the agent serves those who want a function's calls."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout

__all__ = ["RECORDER_SLOT", "set_entries", "set_recorder"]

# The slot of the recorder that the plain paths of the agent serve (native/agent/paths.S).
RECORDER_SLOT = 0

# What only the path with a frame on the C stack deals with.
_HOOKS = layout.FLAG_EXEC | layout.FLAG_LOADED | layout.FLAG_CLONE | layout.FLAG_EXIT | layout.FLAG_SIGACTION
_RECORDER = np.uint64(1 << RECORDER_SLOT)


def set_recorder(records: npt.NDArray[np.void], zones: Mapping[str, int], *, conditional: bool = False) -> None:
    """Make the recorder the user of all functions that are not hooked for the agent's own needs alone.

    ``conditional``: it has a condition, which the plain paths do not look at.
    """
    traced = records["flags"] & layout.FLAG_SILENT == 0
    records["users"] = np.where(traced, _RECORDER, np.uint64(0))[:, None]
    records["callers"] = np.where(traced & (records["flags"] & layout.FLAG_CALLER != 0), _RECORDER, np.uint64(0))
    set_entries(records, zones, armed=1, counters=0, measures=0, recorder=not conditional)


def set_entries(
    records: npt.NDArray[np.void],
    zones: Mapping[str, int],
    *,
    armed: int,
    counters: int,
    measures: int,
    recorder: bool,
) -> None:
    """Lead each thunk to the entry path that its flags and its armed users ask for; functions without any pass.

    ``counters`` are the users that share one counter for each function, ``measures`` those that want the exit and the
    time, and nothing at the entry; ``recorder`` says whether the slot of the recorder is that of one, without a
    condition.
    """
    flags = records["flags"]
    users = (records["users"][:, 0] | records["users"][:, 1]) & np.uint64(armed)
    differ = records["users"][:, 0] != records["users"][:, 1]
    enter = np.where(users == 0, records["body"], np.uint64(zones["enter_general"]))
    usual = (users != 0) & (flags & layout.FLAG_VALUES == 0) & ~differ
    everybody = usual & (records["callers"] & users == 0)
    counted = users & np.uint64(counters) != 0
    others = users & ~np.uint64(counters)
    enter[everybody & ~counted & (users & ~np.uint64(measures) == 0)] = zones["enter_measure"]
    plain = usual & recorder & (others == _RECORDER)
    enter[plain & ~counted] = zones["enter"]
    enter[plain & ~counted & (records["callers"] & _RECORDER != 0)] = zones["enter_from_caller"]
    enter[plain & counted & everybody] = zones["enter_count_and_record"]
    enter[(users != 0) & (others == 0) & (records["callers"] & users == 0) & ~differ] = zones["enter_count"]
    enter[flags & layout.FLAG_TRUE_RETURN != 0] = zones["enter_for_true_return"]
    enter[flags & _HOOKS != 0] = zones["enter_general"]
    records["enter"] = enter
