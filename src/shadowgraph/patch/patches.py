"""What is written into the original code for a block of thunks: jumps to the thunks, and what leads to those jumps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.draft import FIELD_SIZE
from shadowgraph.patch.owners import NOBODY
from shadowgraph.patch.plan import ModulePlan
from shadowgraph.patch.relocate import JUMP_SIZE
from shadowgraph.patch.short_jumps import SHORT_JUMP_SIZE

__all__ = ["Patches", "fits", "little_endian", "make_patches"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Bytes = npt.NDArray[np.uint8]

_JMP, _JMP_SHORT = 0xE9, 0xEB


@dataclass(frozen=True)
class Patches:
    """Columns of equal length p; see ThunkBlock. What a patch requires precedes it."""

    address: _Ints
    owner: _Ints
    size: _Bytes
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
    led, complete = maker.redirects(copies, good & ~is_holed)
    plain = maker.jumps(np.flatnonzero(good & ~is_holed & complete), plan.patch_address, plan.original, thunk, led)
    lender = plan.lender[chosen]
    present = np.isin(lender, chosen[plain]) | (lender == NOBODY)
    holed = maker.jumps(
        np.flatnonzero(good & is_holed & present), plan.hole, plan.hole_original, thunk, lender_of=lender
    )
    maker.short_jumps(holed)
    return maker.patches()


class _Maker:
    def __init__(self, plan: ModulePlan, chosen: _Ints, load_bias: int) -> None:
        self._plan, self._chosen, self._bias = plan, chosen, load_bias
        self._parts: list[tuple[_Ints, _Ints, int, _Ints, _Bytes, _Bytes]] = []
        self._count = 0
        self._patch_of_row: dict[int, int] = {}

    def redirects(self, copies: _Ints, wanted: _Bools) -> tuple[dict[int, int], _Bools]:
        """Lead jumps to copies: the last patch of each of the chosen that has any, and who has all it needs."""
        complete = np.ones(len(self._chosen), np.bool_)
        last: dict[int, int] = {}
        if not len(self._plan.redirects) or not len(self._chosen):
            return last, complete
        position = {row: index for index, row in enumerate(self._chosen.tolist()) if wanted[index]}
        owner = np.array([position.get(row, -1) for row in self._plan.redirects["row"].tolist()], np.int64)
        address = self._plan.redirects["address"].astype(np.int64) + self._bias
        distance = copies - (address + FIELD_SIZE)
        complete[owner[(owner >= 0) & ~fits(distance)]] = False
        mine = np.flatnonzero((owner >= 0) & complete[owner])
        requires = np.full(len(mine), -1, np.int64)
        for index, place in enumerate(owner[mine].tolist()):
            requires[index] = last.get(place, -1)
            last[place] = self._count + index
        original = self._plan.redirects["original"][mine]
        replacement = original.copy()
        replacement[:, :FIELD_SIZE] = little_endian(distance[mine])
        self._add(address[mine], owner[mine], FIELD_SIZE, requires, original, replacement)
        return last, complete

    def jumps(
        self,
        wanted: _Ints,
        places: npt.NDArray[np.uint64],
        originals: _Bytes,
        thunk: _Ints,
        led: dict[int, int] | None = None,
        lender_of: _Ints | None = None,
    ) -> _Ints:
        """Jumps of five bytes to the thunks of the chosen ``wanted``; those that reach."""
        address = places[self._chosen[wanted]].astype(np.int64) + self._bias
        distance = thunk[wanted] - (address + JUMP_SIZE)
        reach = fits(distance)
        wanted, address, distance = wanted[reach], address[reach], distance[reach]
        original = originals[self._chosen[wanted]]
        replacement = np.empty_like(original)
        replacement[:, 0] = _JMP
        replacement[:, 1:] = little_endian(distance)
        if lender_of is None:
            requires = [(led or {}).get(index, -1) for index in wanted.tolist()]
        else:
            requires = [self._patch_of_row.get(row, -1) for row in lender_of[wanted].tolist()]
        rows = self._chosen[wanted].tolist()
        self._patch_of_row |= {row: self._count + index for index, row in enumerate(rows)}
        self._add(address, wanted, JUMP_SIZE, np.array(requires, np.int64), original, replacement)
        return wanted

    def short_jumps(self, holed: _Ints) -> None:
        """Jumps of two bytes to the holes of the chosen ``holed``, whose jumps were the last to be added."""
        rows = self._chosen[holed]
        distance = self._plan.hole[rows].astype(np.int64) - self._plan.patch_address[rows].astype(np.int64)
        original = self._plan.original[rows]
        replacement = original.copy()
        replacement[:, 0] = _JMP_SHORT
        replacement[:, 1] = (distance - SHORT_JUMP_SIZE).astype(np.int8).view(np.uint8)
        requires = np.arange(self._count - len(holed), self._count)
        address = self._plan.patch_address[rows].astype(np.int64) + self._bias
        self._add(address, holed, SHORT_JUMP_SIZE, requires, original, replacement)

    def patches(self) -> Patches:
        """All that was added, in order."""
        address, owner, sizes, requires, original, replacement = zip(*self._parts, strict=True)
        counts = [len(part) for part in address]
        return Patches(
            np.concatenate(address),
            np.concatenate(owner),
            np.repeat(np.array(sizes, np.uint8), counts),
            np.concatenate(requires),
            np.concatenate(original),
            np.concatenate(replacement),
        )

    def _add(
        self, address: _Ints, owner: _Ints, size: int, requires: _Ints, original: _Bytes, replacement: _Bytes
    ) -> None:
        self._parts.append((address, owner, size, requires, original, replacement))
        self._count += len(address)


def fits(distance: _Ints) -> _Bools:
    """Which distances a signed 32-bit displacement can hold."""
    return (distance >= -(1 << 31)) & (distance < 1 << 31)


def little_endian(values: _Ints) -> _Bytes:
    """uint8[n, 4]: the low halves."""
    return values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :FIELD_SIZE]
