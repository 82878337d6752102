"""Trampolines: where jumps lead that share bytes with a call (overlaps.py), in a program that runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from shadowgraph.patch.flags import PlanFlag
from shadowgraph.patch.module_plan import ModulePlan
from shadowgraph.patch.recipe import IN_PLACE_CALL
from shadowgraph.patch.sizes import JUMP_SIZE

__all__ = ["TRAMPOLINE_SIZE", "FreePlaces", "share_bytes", "shared_call", "trampoline_code"]

TRAMPOLINE_SIZE = 14
_JMP = b"\xe9"
_JMP_NEXT_QUAD = b"\xff\x25\0\0\0\0"
_LOWEST = 0x10000  # vm.mmap_min_addr
_PAGE = 4096
# SIB bytes of [rsp-8], in the order in which their places are tried: near ones first, and below the code rather than
# above, where heaps grow.
_SIBS = (0xE4, 0xA4, 0x64, 0x24)
_TRIES = 16


def trampoline_code(thunk: int) -> bytes:
    """The bytes of a trampoline."""
    return _JMP_NEXT_QUAD + thunk.to_bytes(8, "little")


def shared_call(displacement: int, before: int) -> bytes:
    """The call in the last four bytes of an overwritten run that begins with a jump, so many bytes behind its start."""
    shared = (_JMP + displacement.to_bytes(4, "little", signed=True))[before:]
    return shared + IN_PLACE_CALL[len(shared) :]


def share_bytes(
    plan: ModulePlan, rows: npt.NDArray[np.int64], load_bias: int, occupied: Sequence[tuple[int, int]]
) -> ModulePlan:
    """The plan with those of ``rows`` hooked in this way that can be, beside what is ``occupied`` (sorted, disjoint).

    Their trampolines must then be written (ThunkBlock.trampoline) before any jump is.
    """
    wanted = rows[plan.overlap[rows] >= 0]
    if not len(wanted):
        return plan
    recipe, flags = plan.recipe.copy(), plan.flags.copy()
    trampoline, call_address = plan.trampoline.copy(), plan.call_address.copy()
    free = FreePlaces(occupied)
    for row in wanted.tolist():
        patch = int(plan.patch_address[row])
        before = int(plan.displaced[row]) - len(IN_PLACE_CALL)
        place = next(filter(free.take, _places(patch + load_bias, before)), None)
        if place is None:
            continue
        recipe[row] = plan.overlap[row]
        flags[row] = flags[row] & ~np.uint16(PlanFlag.EMULATED_CALL) | np.uint16(
            PlanFlag.CALL_IN_PLACE | PlanFlag.OVERLAPPING
        )
        trampoline[row] = place - load_bias
        call_address[row] = patch + before
    return replace(plan, recipe=recipe, flags=flags, trampoline=trampoline, call_address=call_address)


def _places(patch: int, before: int) -> Iterator[int]:
    """Where a jump at ``patch`` may lead, the call beginning so many bytes behind it."""
    for sib in _SIBS if before <= 2 else _SIBS[-1:]:
        call = bytes((*IN_PLACE_CALL[:2], sib, *IN_PLACE_CALL[3:]))
        for free in _free_bytes(before - 1):
            displacement = int.from_bytes((free + call)[:4], "little", signed=True)
            yield patch + JUMP_SIZE + displacement


def _free_bytes(count: int) -> Iterator[bytes]:
    """Some of the values that the displacement's first ``count`` bytes may have, the highest first."""
    step = max(256**count // _TRIES, 1)
    for value in reversed(range(0, 256**count, step)):
        yield value.to_bytes(count, "little")


class FreePlaces:
    """Where trampolines may be put: on pages that nobody has."""

    def __init__(self, occupied: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in occupied]
        self._ends = [end for _, end in occupied]
        self._taken: dict[int, list[int]] = {}

    def take(self, place: int) -> bool:
        """Take TRAMPOLINE_SIZE bytes from a place on, if they are free."""
        end = place + TRAMPOLINE_SIZE
        first, last = place // _PAGE, (end - 1) // _PAGE
        if first * _PAGE < _LOWEST or not self._is_unmapped(first * _PAGE, (last + 1) * _PAGE):
            return False
        near = [other for page in (first, last) for other in self._taken.get(page, ())]
        if any(abs(place - other) < TRAMPOLINE_SIZE for other in near):
            return False
        for page in {first, last}:
            self._taken.setdefault(page, []).append(place)
        return True

    def _is_unmapped(self, start: int, end: int) -> bool:
        index = bisect_right(self._starts, start)
        free_below = index == 0 or self._ends[index - 1] <= start
        return free_below and (index == len(self._starts) or end <= self._starts[index])
