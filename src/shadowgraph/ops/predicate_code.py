"""The steps of the native evaluator for conditions and values: struct sg_predicate of shadowgraph/predicate.h.

A condition goes on to the next step if it is what is wanted, and to a label if it is not; all labels lie ahead. A value
is computed into a register, its parts into that one and those above it. Of two parts the one that needs more registers
comes first, so that eight are always enough for what fits into a program (Sethi and Ullman, JACM 17, 1970).
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from fractions import Fraction

from shadowgraph.agent import layout
from shadowgraph.ops.predicate_numbers import bits_of
from shadowgraph.ops.predicate_split import Parts
from shadowgraph.ops.predicate_tree import (
    DURATION,
    NEGATED,
    OF_CALL,
    AllOf,
    Always,
    AnyOf,
    Condition,
    Constant,
    Kind,
    Not,
    OneOf,
    Relation,
    Step,
    TextTest,
    Value,
)

__all__ = ["TooLong", "entry_program", "exit_program"]

# For comparisons with the duration: in nanoseconds, and with ticks in its place.
_TICKS = {layout.PREDICATE_LT: layout.PREDICATE_BELOW, layout.PREDICATE_GE: layout.PREDICATE_NOT_BELOW}


class TooLong(Exception):
    """A program does not fit; ``words`` is what it would need."""

    def __init__(self, words: int) -> None:
        super().__init__(words)
        self.words = words


@dataclass(frozen=True)
class _Clock:
    """Nanoseconds are the upper 64 bits of (ticks << shift) × factor."""

    shift: int
    factor: int

    def ticks(self, nanoseconds: int) -> int:
        """The least number of ticks that is so many nanoseconds or more."""
        least = -((-nanoseconds << 64) // (self.factor << self.shift)) if nanoseconds > 0 else 0
        return min(least, (1 << 64) - 1)


def _clock(ticks_per_second: float) -> _Clock:
    # Rounded up: then what is a whole number of nanoseconds is not taken for one less.
    per_tick, shift = Fraction(10**9 << 64) / Fraction(ticks_per_second), 0
    while (factor := math.ceil(per_tick / 2**shift)) >= 1 << 64:
        shift += 1
    return _Clock(shift, factor)


def entry_program(parts: Parts, ticks_per_second: float) -> bytes:
    """What decides at the entry, and keeps what the exit needs."""
    program = _Program(_clock(ticks_per_second))
    for term in parts.entry:
        program.condition(term, True, _NO)
    if parts.kept:
        program.keep(parts.kept)
    return program.assembled()


def exit_program(parts: Parts, ticks_per_second: float) -> bytes:
    """What decides at the exit."""
    program = _Program(_clock(ticks_per_second))
    for term in parts.exit:
        program.condition(term, True, _NO)
    return program.assembled()


@dataclass(eq=False)
class _Label:
    """A step that others go to, once it is known which one."""

    step: int | None = None


_NO = _Label(layout.PREDICATE_NO)


@dataclass
class _Line:
    """One step. ``word``: what lies behind the steps and is meant by the number."""

    op: int
    to: int | _Label = 0
    left: int = 0
    right: int = 0
    number: int = 0
    word: bytes = b""


@dataclass
class _Program:
    clock: _Clock
    lines: list[_Line] = field(default_factory=list)

    def _emit(
        self, op: int, to: int | _Label = 0, left: int = 0, right: int = 0, number: int = 0, word: bytes = b""
    ) -> None:
        self.lines.append(_Line(op, to, left, right, number, word))

    def _mark(self, label: _Label) -> None:
        label.step = len(self.lines)

    # --- conditions ---

    def condition(self, condition: Condition, wanted: bool, otherwise: _Label) -> None:
        """Go on if a condition is as wanted, and elsewhere if it is not."""
        match condition:
            case Always(truth=truth):
                if truth != wanted:
                    self._emit(layout.PREDICATE_JUMP, otherwise)
            case Not(part=part):
                self.condition(part, not wanted, otherwise)
            case AllOf(parts=parts):
                self._joined([*parts], wanted, otherwise, True)
            case AnyOf(parts=parts):
                self._joined([*parts], wanted, otherwise, False)
            case Relation():
                self._relation(condition, wanted, otherwise)
            case OneOf(operand=operand, numbers=numbers):
                left, through = self._left(operand, 0), _Label()
                for number in numbers[:-1]:
                    self._compare(layout.PREDICATE_NE, left, number, through if wanted else otherwise)
                last = layout.PREDICATE_EQ if wanted else layout.PREDICATE_NE
                self._compare(last, left, numbers[-1], otherwise)
                self._mark(through)
            case TextTest(op=op, address=address, text=text):
                left = self._left(address, 0)
                word = text.ljust(-(-max(len(text), 1) // 8) * 8, b"\0")
                op = op if wanted else NEGATED[op]
                self._emit(op, otherwise, left, layout.PREDICATE_NUMBER, len(text) << 16, word)

    def _joined(self, parts: list[Condition], wanted: bool, otherwise: _Label, every: bool) -> None:
        """`and` (every) or `or`: all but the last part may decide it."""
        through = _Label()
        for part in parts[:-1]:
            self.condition(part, every, otherwise if every == wanted else through)
        self.condition(parts[-1], wanted, otherwise)
        self._mark(through)

    def _relation(self, relation: Relation, wanted: bool, otherwise: _Label) -> None:
        operands, ops = relation.operands, relation.ops
        if len(ops) == 1:
            left, right = operands if not relation.swapped[0] else operands[::-1]
            self._pair(ops[0] if wanted else NEGATED[ops[0]], left, right, otherwise)
            return
        through = _Label()
        self._value(operands[0], 0)
        for op, swapped, following in zip(ops[:-1], relation.swapped, operands[1:-1], strict=False):
            self._value(following, 1)
            left_register, right_register = (1, 0) if swapped else (0, 1)
            self._emit(op, otherwise if wanted else through, left_register, right_register)
            self._emit(layout.PREDICATE_OR, 0, 1, layout.PREDICATE_NUMBER)  # it is the next one's left
        self._value(operands[-1], 1)
        left_register, right_register = (1, 0) if relation.swapped[-1] else (0, 1)
        self._emit(ops[-1] if wanted else NEGATED[ops[-1]], otherwise, left_register, right_register)
        self._mark(through)

    def _pair(self, op: int, left: Value, right: Value, otherwise: _Label) -> None:
        if isinstance(right, Constant):
            if isinstance(left, Step) and left.op == DURATION and op in _TICKS:
                assert isinstance(right.value, int)
                op, right = _TICKS[op], Constant(self.clock.ticks(right.value))
                self._compare(op, layout.PREDICATE_TICKS, right, otherwise)
            else:
                self._compare(op, self._left(left, 0), right, otherwise)
            return
        first, second = self._both(left, right, 0)
        self._emit(op, otherwise, first, second)

    def _compare(self, op: int, left: int, constant: Constant, otherwise: _Label) -> None:
        """Compare register 0, or a word of the call, with a constant."""
        if _is_small(constant):
            self._emit(op, otherwise, left, layout.PREDICATE_NUMBER, _bits(constant))
        else:
            self._value(constant, 1)
            self._emit(op, otherwise, left, 1)

    # --- values ---

    def _value(self, value: Value, to: int) -> None:
        """Compute a value into a register; those above it are free."""
        assert to < layout.PREDICATE_REGISTERS
        if isinstance(value, Constant):
            if _is_small(value):
                self._emit(layout.PREDICATE_SMALL, to, 0, layout.PREDICATE_NUMBER, _bits(value))
            else:
                word = struct.pack("<Q", _bits(value))
                self._emit(layout.PREDICATE_LARGE, to, 0, layout.PREDICATE_NUMBER, word=word)
        elif value.op == DURATION:
            # The number of a shift is 0 where the clock is fast.
            self._emit(
                layout.PREDICATE_SHIFT_LEFT, to, layout.PREDICATE_TICKS, layout.PREDICATE_NUMBER, self.clock.shift
            )
            self._value(Constant(self.clock.factor), to + 1)
            self._emit(layout.PREDICATE_SCALE, to, to, to + 1)
        elif value.op == OF_CALL:
            self._emit(layout.PREDICATE_OR, to, value.index, layout.PREDICATE_NUMBER)
        elif not value.operands:
            self._emit(value.op, to, value.index)
        elif len(value.operands) == 1:
            self._emit(value.op, to, self._left(value.operands[0], to))
        else:
            self._operation(value, to)

    def _operation(self, value: Step, to: int) -> None:
        left, right = value.operands
        if isinstance(right, Constant) and _is_small(right):
            self._emit(value.op, to, self._left(left, to), layout.PREDICATE_NUMBER, _bits(right))
        else:
            first, second = self._both(left, right, to)
            self._emit(value.op, to, first, second)

    def _left(self, value: Value, free: int) -> int:
        """What stands in `left` for a value: a word of the call, or a register that it is computed into."""
        if isinstance(value, Step) and value.op == layout.PREDICATE_ARGUMENT and value.index < 6:
            return layout.PREDICATE_OF_ENTRY + value.index
        if isinstance(value, Step) and value.op == OF_CALL:
            return value.index
        self._value(value, free)
        return free

    def _both(self, left: Value, right: Value, free: int) -> tuple[int, int]:
        """Two values for `left` and `right`, the one that needs more registers first."""
        if _registers(right) > _registers(left):
            self._value(right, free)
            return self._left(left, free + 1), free
        place = self._left(left, free)
        self._value(right, free + 1)
        return place, free + 1

    # --- what is kept for the exit ---

    def keep(self, kept: tuple[Value | Condition, ...]) -> None:
        """Compute and keep values, from saved word 1 on; word 0 has a bit for each that there is not."""
        self._emit(layout.PREDICATE_SMALL, 0, 0, layout.PREDICATE_NUMBER)
        self._emit(layout.PREDICATE_SAVE, 0, 0)
        for index, what in enumerate(kept, 1):
            end = _Label()
            if what.may_fail:
                self._emit(layout.PREDICATE_ATTEMPT, end, index)
            left = 0
            if isinstance(what, Constant | Step):
                left = self._left(what, 0)
            else:
                self._emit(layout.PREDICATE_SMALL, 0, 0, layout.PREDICATE_NUMBER)
                self._emit(layout.PREDICATE_SAVE, index, 0)
                self.condition(what, True, end)
                self._emit(layout.PREDICATE_SMALL, 0, 0, layout.PREDICATE_NUMBER, 1)
            self._emit(layout.PREDICATE_SAVE, index, left)
            self._mark(end)

    # --- the bytes ---

    def assembled(self) -> bytes:
        """The struct, with constants and texts behind the steps. Raises TooLong."""
        pool = bytearray()
        places: dict[bytes, int] = {}
        for line in self.lines:
            if line.word and line.word not in places:
                places[line.word] = len(self.lines) + len(pool) // 8
                pool += line.word
        words = len(self.lines) + len(pool) // 8
        if words > layout.PREDICATE_WORDS:
            raise TooLong(words)
        steps = [_encoded(line, places.get(line.word, 0)) for line in self.lines]
        head = struct.pack(f"<II{len(steps)}Q", len(steps), words, *steps)
        return (head + pool).ljust(layout.PREDICATE_SIZE, b"\0")


def _encoded(line: _Line, place: int) -> int:
    to = line.to.step if isinstance(line.to, _Label) else line.to
    assert to is not None
    number = (line.number | place) & 0xFFFFFFFF
    return line.op | to << 8 | line.left << 16 | line.right << 24 | number << 32


def _bits(constant: Constant) -> int:
    """The 64 bits of a constant."""
    if constant.kind is Kind.FLOAT:
        return int(struct.unpack("<Q", struct.pack("<d", constant.value))[0])
    assert isinstance(constant.value, int)
    return bits_of(constant.value)


def _is_small(constant: Constant) -> bool:
    """Whether a step has room for a constant in its number, which is signed."""
    bits = _bits(constant)
    return bits < 1 << 31 or bits >= (1 << 64) - (1 << 31)


def _registers(value: Value) -> int:
    """How many registers a value takes while it is computed."""
    if isinstance(value, Constant) or not value.operands:
        return 2 if isinstance(value, Step) and value.op == DURATION else 1
    if len(value.operands) == 1:
        return _registers(value.operands[0])
    left, right = value.operands
    first, second = _registers(left), _registers(right)
    if isinstance(right, Constant) and _is_small(right):
        return first
    return max(first, second) if first != second else first + 1
