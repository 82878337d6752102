"""Where the thunks of hooked functions lead: which entry path of the agent serves those who want a function's calls."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout

__all__ = ["record_everything", "set_entries"]

# What only the path with a frame on the C stack deals with.
_HOOKS = layout.FLAG_EXEC | layout.FLAG_LOADED | layout.FLAG_CLONE | layout.FLAG_EXIT
_RECORDER = np.uint64(1)


def record_everything(records: npt.NDArray[np.void], zones: Mapping[str, int]) -> None:
    """Make the recorder in slot 0 the user of all functions that are not hooked for the agent's own needs alone."""
    traced = records["flags"] & layout.FLAG_SILENT == 0
    records["users"] = np.where(traced, _RECORDER, np.uint64(0))[:, None]
    records["callers"] = np.where(traced & (records["flags"] & layout.FLAG_CALLER != 0), _RECORDER, np.uint64(0))
    set_entries(records, zones)


def set_entries(records: npt.NDArray[np.void], zones: Mapping[str, int]) -> None:
    """Lead each thunk to the entry path that its flags and users ask for; functions without users pass."""
    flags, users = records["flags"], records["users"][:, 0]
    enter = np.where(users == 0, records["body"], np.uint64(zones["enter_general"]))
    plain = (users == _RECORDER) & (flags & layout.FLAG_VALUES == 0)
    enter[plain] = zones["enter"]
    enter[plain & (records["callers"] == _RECORDER)] = zones["enter_from_caller"]
    enter[flags & layout.FLAG_TRUE_RETURN != 0] = zones["enter_for_true_return"]
    enter[flags & _HOOKS != 0] = zones["enter_general"]
    records["enter"] = enter
