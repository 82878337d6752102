"""What a predicate computes: values, and conditions on them, in the terms of the native evaluator.

A value or condition that needs the exit of the call says so (``at_exit``); one that a bad address or a division by
zero can end says that (``may_fail``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from shadowgraph.agent import layout

__all__ = [
    "DURATION",
    "NEGATED",
    "OF_CALL",
    "AllOf",
    "Always",
    "AnyOf",
    "Condition",
    "Constant",
    "Kind",
    "Not",
    "OneOf",
    "Relation",
    "Step",
    "TextTest",
    "Value",
]

# The duration in nanoseconds: for the evaluator it is a number of ticks and what the code makes of it.
DURATION = -1
# A word of the call that needs no step of its own: ``index`` is what stands in the `left` of others.
OF_CALL = -2

_OF_THE_EXIT = {layout.PREDICATE_RESULT, layout.PREDICATE_RESULT_HIGH, layout.PREDICATE_FLOAT_RESULT, DURATION}
_DIVISIONS = {
    layout.PREDICATE_DIV,
    layout.PREDICATE_MOD,
    layout.PREDICATE_UNSIGNED_DIV,
    layout.PREDICATE_UNSIGNED_MOD,
    layout.PREDICATE_SHIFT_LEFT,
    layout.PREDICATE_SHIFT_RIGHT,
    layout.PREDICATE_UNSIGNED_SHIFT_RIGHT,
}
_MEMORY = {
    layout.PREDICATE_MEMORY8,
    layout.PREDICATE_MEMORY16,
    layout.PREDICATE_MEMORY32,
    layout.PREDICATE_MEMORY64,
}

_OPPOSITES = [
    (layout.PREDICATE_EQ, layout.PREDICATE_NE),
    (layout.PREDICATE_LT, layout.PREDICATE_GE),
    (layout.PREDICATE_BELOW, layout.PREDICATE_NOT_BELOW),
    (layout.PREDICATE_MIXED_EQ, layout.PREDICATE_MIXED_NE),
    (layout.PREDICATE_MIXED_LT, layout.PREDICATE_MIXED_GE),
    (layout.PREDICATE_MIXED_LE, layout.PREDICATE_MIXED_GT),
    (layout.PREDICATE_FLOAT_EQ, layout.PREDICATE_FLOAT_NE),
    (layout.PREDICATE_FLOAT_LT, layout.PREDICATE_FLOAT_NOT_LT),
    (layout.PREDICATE_FLOAT_LE, layout.PREDICATE_FLOAT_NOT_LE),
    (layout.PREDICATE_TEXT_EQ, layout.PREDICATE_TEXT_NE),
    (layout.PREDICATE_TEXT_STARTS, layout.PREDICATE_TEXT_NOT_STARTS),
    (layout.PREDICATE_TEXT_ENDS, layout.PREDICATE_TEXT_NOT_ENDS),
]
NEGATED = dict(_OPPOSITES) | {opposite: op for op, opposite in _OPPOSITES}


class Kind(Enum):
    """What the 64 bits of a value stand for. ANY: a constant, which goes with either kind of whole number."""

    ANY = "a whole number"
    SIGNED = "a signed number"
    UNSIGNED = "an unsigned number"
    FLOAT = "a floating-point number"


@dataclass(frozen=True)
class Constant:
    """A number that is known; a whole one unless ``kind`` is FLOAT. It fits into 64 bits."""

    value: int | float
    kind: Kind = Kind.ANY

    at_exit = False
    may_fail = False
    reads_memory = False


@dataclass(frozen=True)
class Step:
    """A value that is computed by one step of the evaluator.

    ``late``: from memory as it is at the exit, or kept for the exit.
    """

    op: int
    kind: Kind
    operands: tuple[Value, ...] = ()
    index: int = 0
    late: bool = False

    @property
    def at_exit(self) -> bool:
        """Whether it can only be known when the function has returned."""
        return self.late or self.op in _OF_THE_EXIT or any(operand.at_exit for operand in self.operands)

    @property
    def may_fail(self) -> bool:
        """Whether there may be no such value."""
        if self.op in _MEMORY or (self.op == layout.PREDICATE_ARGUMENT and self.index >= 6):
            return True
        if self.op in _DIVISIONS and not isinstance(self.operands[1], Constant):
            return True
        return any(operand.may_fail for operand in self.operands)

    @property
    def reads_memory(self) -> bool:
        """Whether another thread may change it from one look to the next."""
        return self.op in _MEMORY or any(operand.reads_memory for operand in self.operands)


@dataclass(frozen=True)
class Always:
    """True or False."""

    truth: bool

    at_exit = False
    may_fail = False


@dataclass(frozen=True)
class Relation:
    """Neighbours compared: operands[n] ops[n] operands[n + 1]; ``swapped[n]``: the evaluator takes them the other way.

    There are more than two where a value between others is read from memory, which is to be looked at once.
    """

    operands: tuple[Value, ...]
    ops: tuple[int, ...]
    swapped: tuple[bool, ...]

    @property
    def at_exit(self) -> bool:
        """Whether it can only be known when the function has returned."""
        return any(operand.at_exit for operand in self.operands)

    @property
    def may_fail(self) -> bool:
        """Whether one of the values may not be there."""
        return any(operand.may_fail for operand in self.operands)


@dataclass(frozen=True)
class OneOf:
    """Whether a whole number is one of some constants."""

    operand: Value
    numbers: tuple[Constant, ...]

    @property
    def at_exit(self) -> bool:
        """Whether it can only be known when the function has returned."""
        return self.operand.at_exit

    @property
    def may_fail(self) -> bool:
        """Whether the number may not be there."""
        return self.operand.may_fail


@dataclass(frozen=True)
class TextTest:
    """A string in memory compared with a text."""

    op: int
    address: Value
    text: bytes
    late: bool

    may_fail = True

    @property
    def at_exit(self) -> bool:
        """Whether it can only be known when the function has returned."""
        return self.late or self.address.at_exit


@dataclass(frozen=True)
class _Joined:
    parts: tuple[Condition, ...]

    @property
    def at_exit(self) -> bool:
        """Whether a part of it can only be known when the function has returned."""
        return any(part.at_exit for part in self.parts)

    @property
    def may_fail(self) -> bool:
        """Whether a part of it may fail."""
        return any(part.may_fail for part in self.parts)


class AllOf(_Joined):
    """All of the conditions, looked at from left to right until one does not hold."""


class AnyOf(_Joined):
    """One of the conditions, looked at from left to right until one holds."""


@dataclass(frozen=True)
class Not:
    """The opposite."""

    part: Condition

    @property
    def at_exit(self) -> bool:
        """Whether it can only be known when the function has returned."""
        return self.part.at_exit

    @property
    def may_fail(self) -> bool:
        """Whether the part may fail."""
        return self.part.may_fail


Value = Constant | Step
Condition = Always | Relation | OneOf | TextTest | AllOf | AnyOf | Not
