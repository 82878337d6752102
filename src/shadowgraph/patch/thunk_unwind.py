"""Unwind information for thunks: for each displaced instruction the row that its original has (design: section 3).

A thunk's head runs where the function's entry was called: CFA = rsp + 8, return address at CFA - 8, as in the CIE. Each
displaced instruction has the row of the original one, moved by what a displaced call has pushed already.

Functions that begin alike share their instructions: worked out once for each combination of where the displaced
instructions lie in the body and what the function's own FDE says up to there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shadowgraph.image import cfi
from shadowgraph.image.frame_entries import Fde
from shadowgraph.image.unwind import UnwindTable
from shadowgraph.image.unwind_rows import Rule, RuleKind, UnwindRow, row_at
from shadowgraph.patch.module_plan import ModulePlan
from shadowgraph.patch.recipe import Recipe
from shadowgraph.patch.thunks import HEAD_SIZE

__all__ = ["DATA_ALIGNMENT", "ENTRY_INSTRUCTIONS", "ThunkRows", "thunk_rows"]

_Ints = npt.NDArray[np.int64]

DATA_ALIGNMENT = -8
# What the CIE says: DW_CFA_def_cfa rsp, 8; DW_CFA_offset r16, 1.
ENTRY_INSTRUCTIONS = bytes([cfi.CFA_DEF_CFA, cfi.RSP, 8, 0x80 | cfi.RETURN_ADDRESS, 1])
_PREFIX = 24  # bytes of an FDE that are compared at once; longer beginnings are worked out one by one


@dataclass(frozen=True)
class ThunkRows:
    """Call-frame instructions of m thunks: ``codes[code[i]]`` are those of thunk i.

    ``unknown`` int64: thunks of functions that have no usable unwind information of their own. Only their heads can be
    described; for those ``code`` is 0, that of no instructions.
    """

    codes: list[bytes]
    code: _Ints
    unknown: _Ints


def thunk_rows(plan: ModulePlan, unwind: UnwindTable, chosen: _Ints) -> ThunkRows:
    """The call-frame instructions for the thunks of these rows of the plan."""
    shapes = _Shapes(plan.recipes)
    recipe = plan.recipe[chosen].astype(np.int64)
    patch = plan.patch_address[chosen].astype(np.int64)
    fde = unwind.indexes(plan.patch_address[chosen])
    known = np.flatnonzero(fde >= 0)
    distance = patch[known] - unwind.start[fde[known]].astype(np.int64)
    beginnings = _beginnings(unwind, fde[known], distance + shapes.displaced[recipe[known]])
    key = np.concatenate([beginnings, _as_bytes(shapes.shape[recipe[known]]), _as_bytes(distance)], axis=1)
    _, first, inverse = np.unique(key.view(f"V{key.shape[1]}").ravel(), return_index=True, return_inverse=True)

    codes = [b""]
    number = np.zeros(len(first), np.int64)
    for index, representative in enumerate(known[first].tolist()):
        entry = unwind.fde(int(fde[representative]))
        try:
            code = _instructions(plan.recipes[int(recipe[representative])], entry, int(patch[representative]))
        except ValueError:
            continue
        number[index] = len(codes)
        codes.append(code)
    code_of = np.zeros(len(chosen), np.int64)
    code_of[known] = number[inverse.ravel()]
    return ThunkRows(codes, code_of, np.flatnonzero(code_of == 0))


class _Shapes:
    """What matters of a recipe here: where its instructions lie in the body and which ones they stand for."""

    def __init__(self, recipes: Sequence[Recipe]) -> None:
        numbers: dict[tuple[tuple[int, int, int], ...], int] = {}
        shapes = [tuple((row.body, row.original, row.pushed) for row in recipe.rows) for recipe in recipes]
        self.shape = np.array([numbers.setdefault(shape, len(numbers)) for shape in shapes], np.int64)
        self.displaced = np.array([recipe.displaced for recipe in recipes], np.int64)


def _as_bytes(values: _Ints) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8).reshape(-1, 8)


# How many bytes of operands the instructions have that begin nearly every FDE; -1: to be looked at one by one.
_OPERANDS = np.full(256, -1, np.int64)
_OPERANDS[[0, cfi.CFA_REMEMBER, cfi.CFA_RESTORE_STATE]] = 0
_OPERANDS[[cfi.CFA_DEF_CFA_OFFSET, cfi.CFA_DEF_CFA_REGISTER, cfi.CFA_ADVANCE1]] = 1
_OPERANDS[[cfi.CFA_DEF_CFA, cfi.CFA_ADVANCE2]] = 2
_OPERANDS[cfi.CFA_ADVANCE4] = 4
_OPERANDS[0x40:0x80] = 0
_OPERANDS[0x80:0xC0] = 1
_OPERANDS[0xC0:] = 0


def _beginnings(unwind: UnwindTable, rows: _Ints, limit: _Ints) -> npt.NDArray[np.uint8]:
    """uint8[n, _PREFIX + 8]: the instructions of each FDE that hold up to ``limit`` bytes behind its start, then zeros.

    Those that are longer, or not of the simplest kind, are made different from all others by a number of their own.
    """
    data, columns = unwind._data, unwind._columns  # to be a method of UnwindTable
    body = columns.body[rows]
    at = columns.at[rows]
    length = np.ascontiguousarray(data[at[:, None] + np.arange(4)]).view("<u4")[:, 0].astype(np.int64)
    length = at + 4 + length - body
    places = body[:, None] + np.arange(_PREFIX)
    code = np.where(np.arange(_PREFIX) < length[:, None], data[np.minimum(places, len(data) - 1)], 0).astype(np.uint8)

    end = np.zeros(len(rows), np.int64)
    location = np.zeros(len(rows), np.int64)
    special = np.zeros(len(rows), np.bool_)
    active = np.flatnonzero(length > 0)
    while len(active):
        operation = code[active, end[active]]
        operands = _OPERANDS[operation]
        following = end[active] + 1 + np.maximum(operands, 0)
        first, second = (code[active, np.minimum(end[active] + i, _PREFIX - 1)].astype(np.int64) for i in (1, 2))
        far = (operation == cfi.CFA_ADVANCE2) | (operation == cfi.CFA_ADVANCE4)  # nobody needs it for a few bytes
        advance = np.where((operation & 0xC0) == 0x40, operation & 0x3F, 0).astype(np.int64)
        advance = np.where(operation == cfi.CFA_ADVANCE1, first, np.where(far, 1 << 16, advance))
        has_numbers = (operands >= 1) & (operation != cfi.CFA_ADVANCE1) & ~far
        long_number = has_numbers & ((first >= 128) | ((operands == 2) & (second >= 128)))
        beyond = location[active] + advance > limit[active]
        strange = ~beyond & ((operands < 0) | long_number | (following >= np.minimum(length[active] + 1, _PREFIX)))
        special[active[strange]] = True
        going_on = ~strange & ~beyond
        location[active[going_on]] += advance[going_on]
        end[active[going_on]] = following[going_on]
        active = active[going_on & (following < length[active])]
    code[np.arange(_PREFIX) >= end[:, None]] = 0
    own = np.where(special, 1 + np.arange(len(rows)), 0)
    return np.concatenate([code, _as_bytes(own)], axis=1)


# --- one combination ---


def _instructions(recipe: Recipe, fde: Fde, patch: int) -> bytes:
    """The call-frame instructions of a thunk with this body; ValueError where the function's own do not serve."""
    if fde.cie.is_signal_frame:
        raise ValueError("a signal frame has no callers")
    writer = _RowWriter()
    writer.require_entry(row_at(fde, patch))
    for row in recipe.rows:
        # What is behind the last byte of the FDE is a jump back that is never reached by falling through.
        original = min(patch + row.original, fde.start + fde.size - 1)
        writer.advance(HEAD_SIZE + row.body)
        writer.write(_moved(row_at(fde, original), row.pushed))
    return bytes(writer.code)


def _moved(row: UnwindRow, pushed: int) -> UnwindRow:
    """The row with so many bytes more on the stack."""
    if pushed and row.cfa_register == cfi.RSP:
        row = row.copy()
        row.cfa_offset += pushed
    return row


class _RowWriter:
    """Writes the difference from row to row, beginning with that of the CIE."""

    def __init__(self) -> None:
        self.code = bytearray()
        self.row = UnwindRow(cfi.RSP, 8, b"", {cfi.RETURN_ADDRESS: Rule(RuleKind.SAVED_AT, -8)})
        self.here = 0

    def require_entry(self, row: UnwindRow) -> None:
        if row != self.row:
            raise ValueError("the function does not begin as one that was called")

    def advance(self, place: int) -> None:
        distance, self.here = place - self.here, place
        if 0 < distance < 0x40:
            self.code.append(0x40 | distance)
        elif distance:
            self.code += bytes([cfi.CFA_ADVANCE4]) + distance.to_bytes(4, "little")

    def write(self, row: UnwindRow) -> None:
        """Make ``row`` hold from here on."""
        self._write_cfa(row)
        for register in sorted(self.row.rules.keys() | row.rules.keys()):
            if self.row.rules.get(register) != row.rules.get(register):
                self._write_rule(register, row.rules.get(register, Rule(RuleKind.SAME)))
        self.row = row.copy()

    def _write_cfa(self, row: UnwindRow) -> None:
        before = self.row
        if row.cfa_code:
            if row.cfa_code != before.cfa_code:
                self.code += bytes([cfi.CFA_DEF_CFA_EXPRESSION]) + _block(row.cfa_code)
        elif row.cfa_register != before.cfa_register or before.cfa_code:
            assert row.cfa_register is not None
            self.code += bytes([cfi.CFA_DEF_CFA_SF]) + _uleb(row.cfa_register)
            self.code += _sleb(_factored(row.cfa_offset))
        elif row.cfa_offset != before.cfa_offset:
            self.code += bytes([cfi.CFA_DEF_CFA_OFFSET_SF]) + _sleb(_factored(row.cfa_offset))

    def _write_rule(self, register: int, rule: Rule) -> None:
        number = _uleb(register)
        if rule.kind is RuleKind.SAVED_AT and register < 0x40 and rule.number <= 0:
            self.code += bytes([0x80 | register]) + _uleb(_factored(rule.number))
        elif rule.kind is RuleKind.SAVED_AT:
            self.code += bytes([cfi.CFA_OFFSET_EXTENDED_SF]) + number + _sleb(_factored(rule.number))
        elif rule.kind is RuleKind.IS_CFA_PLUS:
            self.code += bytes([cfi.CFA_VAL_OFFSET_SF]) + number + _sleb(_factored(rule.number))
        elif rule.kind is RuleKind.IN_REGISTER:
            self.code += bytes([cfi.CFA_REGISTER]) + number + _uleb(rule.number)
        elif rule.kind in _EXPRESSIONS:
            self.code += bytes([_EXPRESSIONS[rule.kind]]) + number + _block(rule.code)
        else:
            same = rule.kind is RuleKind.SAME
            self.code += bytes([cfi.CFA_SAME_VALUE if same else cfi.CFA_UNDEFINED]) + number


_EXPRESSIONS = {
    RuleKind.SAVED_AT_EXPRESSION: cfi.CFA_EXPRESSION,
    RuleKind.IS_EXPRESSION: cfi.CFA_VAL_EXPRESSION,
}


def _factored(offset: int) -> int:
    if offset % DATA_ALIGNMENT:
        raise ValueError(f"an offset of {offset} bytes cannot be written")
    return offset // DATA_ALIGNMENT


def _uleb(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(result + bytes([value]))


def _sleb(value: int) -> bytes:
    result = bytearray()
    while not -0x40 <= value < 0x40:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(result + bytes([value & 0x7F]))


def _block(code: bytes) -> bytes:
    return _uleb(len(code)) + code
