"""What a plan says: see plan.py, which makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.owners import NOBODY
from shadowgraph.patch.recipe import Recipe
from shadowgraph.patch.sizes import JUMP_SIZE, SHORT_JUMP_SIZE

__all__ = ["REDIRECT", "ModulePlan"]

# A jump into a function: the image address of its four last bytes, what the file has there (and one byte more), and
# where in the function it leads, as a distance from the patch address.
REDIRECT = np.dtype([("row", "<i8"), ("address", "<u8"), ("target", "<i8"), ("original", "u1", (JUMP_SIZE,))])


@dataclass(frozen=True)
class ModulePlan:
    """One row for each row of the function table, whether it was asked for or not.

    ``patch_address``  uint64, image address of the bytes to be replaced
    ``displaced``      uint16, bytes of original code that run in the thunk; 0 if not hookable
    ``hookable``       bool
    ``reason``         uint8, :class:`Reason`; 0 if hookable, NOT_CHOSEN for rows outside of ``only``
    ``flags``          uint16, :class:`PlanFlag`
    ``original``       uint8[n, 5], the bytes the file has at the patch address
    ``recipe``         int32, index into ``recipes``, −1 if not hookable
    ``hole``           uint64, image address of the five bytes that a SHORT_JUMP leads to, else 0
    ``hole_original``  uint8[n, 5], the bytes the file has there
    ``lender``         int64, the row that must be hooked too for its displaced bytes to be the hole, else −1
    ``call_address``   uint64, image address of the four bytes to be replaced by a call (CALL_IN_PLACE), else 0
    ``call_original``  uint8[n, 5], the bytes the file has there, or where ``overlap`` would have a call
    ``overlap``        int32, index into ``recipes`` of what EMULATED_CALL may become (overlaps.py), else −1
    ``trampoline``     int64, address of the trampoline less the load bias (OVERLAPPING), else 0
    ``redirects``      REDIRECT[k], jumps whose last four bytes must lead to the copy, sorted by row
    """

    path: str
    patch_address: npt.NDArray[np.uint64]
    displaced: npt.NDArray[np.uint16]
    hookable: npt.NDArray[np.bool_]
    reason: npt.NDArray[np.uint8]
    flags: npt.NDArray[np.uint16]
    original: npt.NDArray[np.uint8]
    recipe: npt.NDArray[np.int32]
    hole: npt.NDArray[np.uint64]
    hole_original: npt.NDArray[np.uint8]
    lender: npt.NDArray[np.int64]
    call_address: npt.NDArray[np.uint64]
    call_original: npt.NDArray[np.uint8]
    overlap: npt.NDArray[np.int32]
    trampoline: npt.NDArray[np.int64]
    redirects: npt.NDArray[np.void]
    recipes: Sequence[Recipe]

    @property
    def overwritten(self) -> npt.NDArray[np.uint8]:
        """uint8[n]: how many bytes change at the patch address: 5, 2 for a SHORT_JUMP, 0 if not hookable."""
        size = np.where(self.flags & np.uint16(PlanFlag.SHORT_JUMP), SHORT_JUMP_SIZE, JUMP_SIZE)
        return np.where(self.hookable, size, 0).astype(np.uint8)

    @property
    def window(self) -> npt.NDArray[np.uint16]:
        """uint16[n]: bytes from the patch address that are overwritten or displaced; 0 if not hookable."""
        return np.maximum(self.displaced, self.overwritten).astype(np.uint16)

    def with_lenders(self, rows: Sequence[int] | npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """These rows, and behind them those that must be hooked for their sake and are not among them."""
        chosen = np.asarray(rows, np.int64)
        lenders = {*self.lender[chosen].tolist()} - {NOBODY, *chosen.tolist()}
        return np.concatenate([chosen, np.array(sorted(lenders), np.int64)])

    def for_rows(self, rows: npt.NDArray[np.int64]) -> ModulePlan:
        """The plan as far as these rows need it: without the recipes of others, which have −1 for theirs."""
        used = sorted({*self.recipe[rows].tolist(), *self.overlap[rows].tolist()} - {-1})
        number = np.full(len(self.recipes) + 1, -1, np.int32)
        number[used] = np.arange(len(used))
        recipes = [self.recipes[index] for index in used]
        return replace(self, recipe=number[self.recipe], overlap=number[self.overlap], recipes=recipes)
