"""Whole unwind rows: for a pc, where the CFA and the caller's value of each register are (DWARF 5, section 6.4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from shadowgraph.image import cfi
from shadowgraph.image.cfi import Cursor
from shadowgraph.image.frame_entries import Cie, Fde

__all__ = ["Rule", "RuleKind", "UnwindRow", "row_at"]


class RuleKind(Enum):
    """How the caller's value of a register is found. Registers without a rule are the same (6.4.1)."""

    UNDEFINED = "not known"
    SAME = "unchanged"
    SAVED_AT = "in memory at CFA + offset"
    IS_CFA_PLUS = "CFA + offset"
    IN_REGISTER = "in another register"
    SAVED_AT_EXPRESSION = "in memory at the expression's value"
    IS_EXPRESSION = "the expression's value"


@dataclass(frozen=True, slots=True)
class Rule:
    """One register's rule. ``number`` is an offset or a register, ``code`` an expression."""

    kind: RuleKind
    number: int = 0
    code: bytes = b""


@dataclass(slots=True)
class UnwindRow:
    """The CFA is ``cfa_register + cfa_offset``, or the value of ``cfa_code`` where that is not empty."""

    cfa_register: int | None = None
    cfa_offset: int = 0
    cfa_code: bytes = b""
    rules: dict[int, Rule] = field(default_factory=dict)

    def copy(self) -> UnwindRow:
        """A row of its own with the same rules."""
        return UnwindRow(self.cfa_register, self.cfa_offset, self.cfa_code, dict(self.rules))


def row_at(fde: Fde, pc: int) -> UnwindRow:
    """The row that holds at an image address within an FDE; ValueError for damaged or unknown instructions."""
    try:
        initial = _Program(fde.cie, fde.cie.instructions, UnwindRow(), fde.start).run_to(None)
        return _Program(fde.cie, fde.instructions, initial, fde.start).run_to(pc)
    except IndexError:
        raise ValueError("call-frame instructions end too early") from None


class _Program:
    """Call-frame instructions, run from a row on."""

    def __init__(self, cie: Cie, code: bytes, initial: UnwindRow, start: int) -> None:
        self.cie = cie
        self.cursor = Cursor(code)
        self.initial = initial
        self.row = initial.copy()
        self.remembered: list[UnwindRow] = []
        self.location = start

    def run_to(self, pc: int | None) -> UnwindRow:
        """Run to the end, or up to the first advance beyond ``pc``."""
        while self.cursor:
            operation = self.cursor.byte()
            high, low = operation & 0xC0, operation & 0x3F
            if high == 0x40 or cfi.CFA_SET_LOC < operation <= cfi.CFA_ADVANCE4:
                distance = low if high else self.cursor.unsigned(1 << (operation - cfi.CFA_ADVANCE1))
                self.location += distance * self.cie.code_alignment
                if pc is not None and self.location > pc:
                    break
            elif high == 0x80:
                self.row.rules[low] = Rule(RuleKind.SAVED_AT, self.cursor.uleb() * self.cie.data_alignment)
            elif high == 0xC0:
                self.restore(low)
            elif not (self.keep(operation) or self.set_cfa(operation)):
                self.set_rule(operation)
        return self.row

    def restore(self, register: int) -> None:
        """Back to what the CIE says about a register."""
        rule = self.initial.rules.get(register)
        if rule is None:
            self.row.rules.pop(register, None)
        else:
            self.row.rules[register] = rule

    def keep(self, operation: int) -> bool:
        """Carry out an instruction that keeps or brings back a whole row; False if it is none.

        glibc's clone brings back a row that another FDE remembered; there is nothing to bring back then.
        """
        if operation == cfi.CFA_REMEMBER:
            self.remembered.append(self.row.copy())
        elif operation == cfi.CFA_RESTORE_STATE:
            self.row = self.remembered.pop() if self.remembered else self.row
        elif operation == cfi.CFA_GNU_ARGS_SIZE:
            self.cursor.uleb()
        else:
            return operation == 0
        return True

    def set_cfa(self, operation: int) -> bool:
        """Carry out an instruction that defines the CFA; False if it is none."""
        row, cursor, factor = self.row, self.cursor, self.cie.data_alignment
        if operation in (cfi.CFA_DEF_CFA, cfi.CFA_DEF_CFA_SF, cfi.CFA_DEF_CFA_REGISTER):
            row.cfa_register, row.cfa_code = cursor.uleb(), b""
        if operation in (cfi.CFA_DEF_CFA, cfi.CFA_DEF_CFA_OFFSET):
            row.cfa_offset = cursor.uleb()
        elif operation in (cfi.CFA_DEF_CFA_SF, cfi.CFA_DEF_CFA_OFFSET_SF):
            row.cfa_offset = cursor.sleb() * factor
        elif operation == cfi.CFA_DEF_CFA_EXPRESSION:
            row.cfa_register, row.cfa_code = None, cursor.block()
        else:
            return operation == cfi.CFA_DEF_CFA_REGISTER
        return True

    def set_rule(self, operation: int) -> None:
        """Carry out an instruction about one register; ValueError for an unknown one."""
        cursor, factor = self.cursor, self.cie.data_alignment
        if operation == cfi.CFA_RESTORE_EXTENDED:
            self.restore(cursor.uleb())
            return
        register = cursor.uleb()
        if operation == cfi.CFA_OFFSET_EXTENDED:
            rule = Rule(RuleKind.SAVED_AT, cursor.uleb() * factor)
        elif operation == cfi.CFA_OFFSET_EXTENDED_SF:
            rule = Rule(RuleKind.SAVED_AT, cursor.sleb() * factor)
        elif operation == cfi.CFA_GNU_NEGATIVE_OFFSET:
            rule = Rule(RuleKind.SAVED_AT, -cursor.uleb() * factor)
        elif operation == cfi.CFA_UNDEFINED:
            rule = Rule(RuleKind.UNDEFINED)
        elif operation == cfi.CFA_SAME_VALUE:
            rule = Rule(RuleKind.SAME)
        elif operation == cfi.CFA_REGISTER:
            rule = Rule(RuleKind.IN_REGISTER, cursor.uleb())
        elif operation == cfi.CFA_VAL_OFFSET:
            rule = Rule(RuleKind.IS_CFA_PLUS, cursor.uleb() * factor)
        elif operation == cfi.CFA_VAL_OFFSET_SF:
            rule = Rule(RuleKind.IS_CFA_PLUS, cursor.sleb() * factor)
        elif operation == cfi.CFA_EXPRESSION:
            rule = Rule(RuleKind.SAVED_AT_EXPRESSION, 0, cursor.block())
        elif operation == cfi.CFA_VAL_EXPRESSION:
            rule = Rule(RuleKind.IS_EXPRESSION, 0, cursor.block())
        else:
            raise ValueError(f"call-frame instruction {operation:#x} is not known")
        self.row.rules[register] = rule
