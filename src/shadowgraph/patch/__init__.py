"""What can be hooked and how: decoding, planning, relocation and thunks. Pure: bytes in, plan out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.module_plan import ModulePlan
from shadowgraph.patch.patches import PatchKind
from shadowgraph.patch.thunks import HEAD_OFFSETS, HEAD_START, PC_ROW, RECORD, ThunkBlock, encode_thunks, thunk_space
from shadowgraph.patch.trampolines import TRAMPOLINE_SIZE, share_bytes, trampoline_code

if TYPE_CHECKING:
    from shadowgraph.patch.plan import plan_module

__all__ = [
    "HEAD_OFFSETS",
    "HEAD_START",
    "PC_ROW",
    "RECORD",
    "TRAMPOLINE_SIZE",
    "ModulePlan",
    "PatchKind",
    "PlanFlag",
    "ThunkBlock",
    "encode_thunks",
    "plan_module",
    "share_bytes",
    "thunk_space",
    "trampoline_code",
]


def __getattr__(name: str) -> Any:
    """Load the planner, and with it a decoder, only where something has to be planned."""
    if name == "plan_module":
        from shadowgraph.patch.plan import plan_module

        return plan_module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
