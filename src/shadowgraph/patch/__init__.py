"""What can be hooked and how: decoding, planning, relocation and thunks. Pure: bytes in, plan out."""

from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.plan import ModulePlan, plan_module
from shadowgraph.patch.thunks import PC_ROW, RECORD, ThunkBlock, encode_thunks, thunk_space

__all__ = ["PC_ROW", "RECORD", "ModulePlan", "PlanFlag", "ThunkBlock", "encode_thunks", "plan_module", "thunk_space"]
