"""As much of the call-frame instructions as the tables need: is the return address on top of the stack at this address?

A function that is entered by a call starts with CFA = rsp + 8 and the return address at CFA − 8 (System V ABI, AMD64
supplement, 3.2.2 and 3.7). An unwind row that says something else at a supposed function start belongs to the middle of
a function, to a signal frame, or to the first function of a thread. Full rows, for walking stacks, are not made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from shadowgraph.image.reasons import Reason

__all__ = ["Cursor", "Row", "judge_row", "rows"]

RBP, RSP, RETURN_ADDRESS = 6, 7, 16

# DWARF 5, 6.4.2 and 7.24; the GNU ones from the Linux Standard Base, "Call Frame Instructions".
CFA_SET_LOC, CFA_ADVANCE1, CFA_ADVANCE2, CFA_ADVANCE4 = 0x01, 0x02, 0x03, 0x04
CFA_OFFSET_EXTENDED, CFA_RESTORE_EXTENDED, CFA_UNDEFINED, CFA_SAME_VALUE, CFA_REGISTER = 0x05, 0x06, 0x07, 0x08, 0x09
CFA_REMEMBER, CFA_RESTORE_STATE = 0x0A, 0x0B
CFA_DEF_CFA, CFA_DEF_CFA_REGISTER, CFA_DEF_CFA_OFFSET, CFA_DEF_CFA_EXPRESSION = 0x0C, 0x0D, 0x0E, 0x0F
CFA_EXPRESSION, CFA_OFFSET_EXTENDED_SF, CFA_DEF_CFA_SF, CFA_DEF_CFA_OFFSET_SF = 0x10, 0x11, 0x12, 0x13
CFA_VAL_OFFSET, CFA_VAL_OFFSET_SF, CFA_VAL_EXPRESSION = 0x14, 0x15, 0x16
CFA_GNU_ARGS_SIZE, CFA_GNU_NEGATIVE_OFFSET = 0x2E, 0x2F


class Cursor:
    """Reads numbers from a block of bytes; past the end it raises IndexError."""

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self.data = data
        self.offset = offset

    def __bool__(self) -> bool:
        return self.offset < len(self.data)

    def byte(self) -> int:
        """One unsigned byte."""
        value = self.data[self.offset]
        self.offset += 1
        return value

    def unsigned(self, width: int) -> int:
        """A little-endian integer of ``width`` bytes."""
        if self.offset + width > len(self.data):
            raise IndexError
        value = int.from_bytes(self.data[self.offset : self.offset + width], "little")
        self.offset += width
        return value

    def uleb(self) -> int:
        """An unsigned LEB128 number."""
        return self._leb()[0]

    def sleb(self) -> int:
        """A signed LEB128 number."""
        value, bits = self._leb()
        return value - (1 << bits) if value >> (bits - 1) else value

    def _leb(self) -> tuple[int, int]:
        """A LEB128 number as if it were unsigned, and how many bits it was written with."""
        value = bits = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << bits
            bits += 7
            if byte < 0x80:
                return value, bits

    def block(self) -> bytes:
        """A length as ULEB128 and that many bytes."""
        size = self.uleb()
        self.offset += size
        return self.data[self.offset - size : self.offset]

    def string(self) -> bytes:
        """The bytes up to the next NUL, which is skipped."""
        end = self.data.index(b"\0", self.offset)
        value = self.data[self.offset : end]
        self.offset = end + 1
        return value


# The rule for the return address, reduced to what a judgement needs.
AT_CFA_MINUS_8, NOWHERE, ELSEWHERE = "at CFA - 8", "undefined", "elsewhere"


@dataclass(slots=True)
class Row:
    """The CFA as a register and an offset (no register: an expression), and where the return address is."""

    register: int | None = None
    offset: int = 0
    return_address: str = ELSEWHERE

    def copy(self) -> Row:
        """A row of its own with the same rules."""
        return Row(self.register, self.offset, self.return_address)

    @property
    def is_at_entry(self) -> bool:
        """Whether all is as right after a call."""
        return (self.register, self.offset, self.return_address) == (RSP, 8, AT_CFA_MINUS_8)


class _Rules(Protocol):
    """What a CIE says about the units of its numbers, and the instructions that all its FDEs begin with."""

    @property
    def code_alignment(self) -> int: ...
    @property
    def data_alignment(self) -> int: ...
    @property
    def instructions(self) -> bytes: ...


def judge_row(cie: _Rules, instructions: bytes, distance: int) -> Reason:
    """Whether a call may land ``distance`` bytes behind the start of an FDE, by the unwind row that holds there.

    ``instructions`` are those of the FDE; NONE means that all is as after a call.
    """
    row = Row()
    try:
        for start, following in rows(cie, instructions):
            if start > distance:
                break
            row = following
    except (IndexError, ValueError):
        return Reason.UNREADABLE_UNWIND
    if row.return_address == NOWHERE:
        return Reason.NO_CALLER
    return Reason.NONE if row.is_at_entry else Reason.FRAME_IN_PROGRESS


def rows(cie: _Rules, instructions: bytes) -> Iterator[tuple[int, Row]]:
    """The rows of an FDE, each with how many bytes behind its start it begins to hold.

    IndexError or ValueError where the instructions are damaged or unknown.
    """
    *_, (_, initial) = _run(cie, cie.instructions, Row())
    yield from _run(cie, instructions, initial)


def _run(cie: _Rules, code: bytes, initial: Row) -> Iterator[tuple[int, Row]]:
    cursor, row, remembered, here = Cursor(code), initial.copy(), list[Row](), 0
    while cursor:
        operation = cursor.byte()
        high, low = operation & 0xC0, operation & 0x3F
        if high == 0x40 or CFA_SET_LOC < operation <= CFA_ADVANCE4:
            yield here, row.copy()
            here += (low if high else cursor.unsigned(1 << (operation - CFA_ADVANCE1))) * cie.code_alignment
        elif high == 0x80:
            _set_saved(row, low, cursor.uleb() * cie.data_alignment)
        elif high == 0xC0:
            _set_rule(row, low, initial.return_address)
        elif operation == CFA_REMEMBER:
            remembered.append(row.copy())
        elif operation == CFA_RESTORE_STATE:
            row = remembered.pop() if remembered else row
        elif operation and not _set_cfa(operation, cursor, row, cie.data_alignment):
            _set_register(operation, cursor, row, initial, cie)
    yield here, row


def _set_cfa(operation: int, cursor: Cursor, row: Row, data_alignment: int) -> bool:
    """Carry out an instruction that defines the CFA; False if it is none."""
    if operation == CFA_DEF_CFA:
        row.register, row.offset = cursor.uleb(), cursor.uleb()
    elif operation == CFA_DEF_CFA_SF:
        row.register, row.offset = cursor.uleb(), cursor.sleb() * data_alignment
    elif operation == CFA_DEF_CFA_REGISTER:
        row.register = cursor.uleb()
    elif operation == CFA_DEF_CFA_OFFSET:
        row.offset = cursor.uleb()
    elif operation == CFA_DEF_CFA_OFFSET_SF:
        row.offset = cursor.sleb() * data_alignment
    elif operation == CFA_DEF_CFA_EXPRESSION:
        cursor.block()
        row.register = None
    else:
        return False
    return True


def _set_register(operation: int, cursor: Cursor, row: Row, initial: Row, cie: _Rules) -> None:
    """Carry out an instruction about one register; only the return address is kept track of."""
    register = cursor.uleb()
    if operation == CFA_OFFSET_EXTENDED:
        _set_saved(row, register, cursor.uleb() * cie.data_alignment)
    elif operation == CFA_OFFSET_EXTENDED_SF:
        _set_saved(row, register, cursor.sleb() * cie.data_alignment)
    elif operation == CFA_GNU_NEGATIVE_OFFSET:
        _set_saved(row, register, -cursor.uleb() * cie.data_alignment)
    elif operation == CFA_RESTORE_EXTENDED:
        _set_rule(row, register, initial.return_address)
    elif operation == CFA_UNDEFINED:
        _set_rule(row, register, NOWHERE)
    elif operation == CFA_SAME_VALUE:
        _set_rule(row, register, ELSEWHERE)
    elif operation in (CFA_REGISTER, CFA_VAL_OFFSET):
        cursor.uleb()
        _set_rule(row, register, ELSEWHERE)
    elif operation == CFA_VAL_OFFSET_SF:
        cursor.sleb()
        _set_rule(row, register, ELSEWHERE)
    elif operation in (CFA_EXPRESSION, CFA_VAL_EXPRESSION):
        cursor.block()
        _set_rule(row, register, ELSEWHERE)
    elif operation != CFA_GNU_ARGS_SIZE:
        raise ValueError(f"call-frame instruction {operation:#x} is not known")


def _set_saved(row: Row, register: int, offset: int) -> None:
    _set_rule(row, register, AT_CFA_MINUS_8 if offset == -8 else ELSEWHERE)


def _set_rule(row: Row, register: int, rule: str) -> None:
    if register == RETURN_ADDRESS:
        row.return_address = rule
