"""What can be hooked and how: decoding, planning, relocation and thunks. Pure: bytes in, plan out."""

from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.patches import PatchKind
from shadowgraph.patch.plan import ModulePlan, plan_module
from shadowgraph.patch.thunks import HEAD_OFFSETS, HEAD_START, PC_ROW, RECORD, ThunkBlock, encode_thunks, thunk_space
from shadowgraph.patch.trampolines import TRAMPOLINE_SIZE, share_bytes, trampoline_code

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
