"""What is written into the original code for a block of thunks: jumps to the thunks, and what leads to those jumps."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.module_plan import ModulePlan
from shadowgraph.patch.owners import NOBODY
from shadowgraph.patch.recipe import IN_PLACE_CALL
from shadowgraph.patch.sizes import FIELD_SIZE, JUMP_SIZE, SHORT_JUMP_SIZE
from shadowgraph.patch.trampolines import shared_call

__all__ = ["PatchKind", "Patches", "fits", "little_endian", "make_patches"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]

_JMP, _JMP_SHORT = 0xE9, 0xEB


class PatchKind(IntEnum):
    """What a patch is: a jump that hooks, or on the way there; a call in its place; another jump's new target."""

    JUMP = 0
    CALL = 1
    TARGET = 2


@dataclass(frozen=True)
class Patches:
    """Columns of equal length p; see ThunkBlock. What a patch requires precedes it."""

    address: _Ints
    owner: _Ints
    size: _Bytes
    kind: _Bytes
    requires: _Ints
    original: _Bytes
    replacement: _Bytes


def make_patches(plan: ModulePlan, chosen: _Ints, load_bias: int, thunk: _Ints, copies: _Ints, good: _Bools) -> Patches:
    """Patches for rows ``chosen`` of the plan that are ``good``, with their thunks at ``thunk``.

    ``copies`` are the addresses of the copies that ``plan.redirects`` lead to (those of other rows are not looked at).
    Left out, with all that requires them, are jumps that cannot reach their target and holes without their lender.
    """
    maker = _Maker(plan, chosen, load_bias)
    is_holed = plan.hole[chosen] != 0
    place = np.where(is_holed, plan.hole[chosen], plan.patch_address[chosen]).astype(np.int64) + load_bias
    overlaps = plan.trampoline[chosen] != 0
    target = np.where(overlaps, plan.trampoline[chosen] + load_bias, thunk)
    good = good & fits(target - (place + JUMP_SIZE))
    good &= maker.redirect(copies, good & ~is_holed)
    plain = np.flatnonzero(good & ~is_holed)
    maker.place_calls(plain)
    maker.jump(plain, place, plan.original, target)
    holed = maker.with_lenders(np.flatnonzero(good & is_holed))
    maker.place_calls(holed)
    maker.jump(holed, place, plan.hole_original, target)
    maker.jump_shortly(holed)
    return maker.patches()


class _Maker:
    """Adds patches one kind after the other. ``_last`` holds, for each of the chosen, the patch it required last."""

    def __init__(self, plan: ModulePlan, chosen: _Ints, load_bias: int) -> None:
        self._plan, self._chosen, self._bias = plan, chosen, load_bias
        self._parts: list[Patches] = []
        self._count = 0
        self._last = np.full(len(chosen), -1, np.int64)

    def redirect(self, copies: _Ints, wanted: _Bools) -> _Bools:
        """Lead jumps to the copies of those of the chosen that are ``wanted``; False for whom one cannot reach."""
        complete = np.ones(len(self._chosen), np.bool_)
        if not len(self._plan.redirects) or not len(self._chosen):
            return complete
        position = {row: index for index, row in enumerate(self._chosen.tolist()) if wanted[index]}
        owner = np.array([position.get(row, -1) for row in self._plan.redirects["row"].tolist()], np.int64)
        address = self._plan.redirects["address"].astype(np.int64) + self._bias
        distance = copies - (address + FIELD_SIZE)
        complete[owner[(owner >= 0) & ~fits(distance)]] = False
        mine = np.flatnonzero((owner >= 0) & complete[owner])
        original = self._plan.redirects["original"][mine]
        replacement = original.copy()
        replacement[:, :FIELD_SIZE] = little_endian(distance[mine])
        for index in range(len(mine)):  # few, and each requires the one before
            part = slice(index, index + 1)
            places = owner[mine[part]], address[mine[part]]
            self._add(*places, FIELD_SIZE, original[part], replacement[part], PatchKind.TARGET)
        return complete

    def place_calls(self, wanted: _Ints) -> None:
        """Calls made from their place, of the chosen ``wanted`` that have one."""
        wanted = wanted[self._plan.call_address[self._chosen[wanted]] != 0]
        rows = self._chosen[wanted]
        original = self._plan.call_original[rows]
        replacement = original.copy()
        replacement[:, : len(IN_PLACE_CALL)] = np.frombuffer(IN_PLACE_CALL, np.uint8)
        for index in np.flatnonzero(self._plan.trampoline[rows]).tolist():
            patch, row = int(self._plan.patch_address[rows[index]]), rows[index]
            displacement = int(self._plan.trampoline[row]) - (patch + JUMP_SIZE)
            call = shared_call(displacement, int(self._plan.call_address[row]) - patch)
            replacement[index, : len(call)] = np.frombuffer(call, np.uint8)
        address = self._plan.call_address[rows].astype(np.int64) + self._bias
        self._add(wanted, address, len(IN_PLACE_CALL), original, replacement, PatchKind.CALL)

    def jump(self, wanted: _Ints, place: _Ints, originals: _Bytes, target: _Ints) -> None:
        """Jumps of five bytes from ``place`` to ``target``, for the chosen ``wanted``.

        Those that share bytes with a call in its place (:meth:`place_calls`) end here where that begins.
        """
        rows = self._chosen[wanted]
        original = originals[rows]
        replacement = np.empty_like(original)
        replacement[:, 0] = _JMP
        replacement[:, 1:] = little_endian(target[wanted] - (place[wanted] + JUMP_SIZE))
        to_call = self._plan.call_address[rows].astype(np.int64) + self._bias - place[wanted]
        size = np.where(self._plan.trampoline[rows] != 0, to_call, JUMP_SIZE)
        replacement = np.where(np.arange(JUMP_SIZE) < size[:, None], replacement, original)
        self._add(wanted, place[wanted], size, original, replacement, PatchKind.JUMP)

    def with_lenders(self, holed: _Ints) -> _Ints:
        """Those of the chosen ``holed`` whose lender, if they need one, has got its jump; they require that."""
        patch_of = dict(zip(self._chosen.tolist(), self._last.tolist(), strict=True))
        lender = self._plan.lender[self._chosen[holed]]
        required = np.array([patch_of.get(row, -1) for row in lender.tolist()], np.int64)
        present = (lender == NOBODY) | (required >= 0)
        self._last[holed[present]] = required[present]
        kept: _Ints = holed[present]
        return kept

    def jump_shortly(self, holed: _Ints) -> None:
        """Jumps of two bytes to the holes of the chosen ``holed``."""
        rows = self._chosen[holed]
        distance = self._plan.hole[rows].astype(np.int64) - self._plan.patch_address[rows].astype(np.int64)
        original = self._plan.original[rows]
        replacement = original.copy()
        replacement[:, 0] = _JMP_SHORT
        replacement[:, 1] = (distance - SHORT_JUMP_SIZE).astype(np.int8).view(np.uint8)
        address = self._plan.patch_address[rows].astype(np.int64) + self._bias
        self._add(holed, address, SHORT_JUMP_SIZE, original, replacement, PatchKind.JUMP)

    def patches(self) -> Patches:
        """All that was added, in order."""
        columns = [[getattr(part, field.name) for part in self._parts] for field in fields(Patches)]
        return Patches(*map(np.concatenate, columns))

    def _add(
        self,
        owner: _Ints,
        address: _Ints,
        size: int | _Ints,
        original: _Bytes,
        replacement: _Bytes,
        kind: PatchKind,
    ) -> None:
        sizes, kinds = np.full(len(owner), size, np.uint8), np.full(len(owner), kind, np.uint8)
        self._parts.append(Patches(address, owner, sizes, kinds, self._last[owner], original, replacement))
        self._last[owner] = self._count + np.arange(len(owner))
        self._count += len(owner)


def fits(distance: _Ints) -> _Bools:
    """Which distances a signed 32-bit displacement can hold."""
    return (distance >= -(1 << 31)) & (distance < 1 << 31)


def little_endian(values: _Ints) -> _Bytes:
    """uint8[n, 4]: the low halves."""
    return values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :FIELD_SIZE]
