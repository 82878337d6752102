"""Arithmetic of predicates: constants are computed as they are read, everything else becomes steps of the evaluator.

Constants are computed exactly and have to fit into 64 bits. What is computed in the target, or has been cast, wraps at
64 bits. A number is signed unless u64() has made it unsigned; with one unsigned operand both are taken as unsigned.
"""

from __future__ import annotations

from shadowgraph.agent import layout
from shadowgraph.ops.predicate_syntax import Syntax
from shadowgraph.ops.predicate_tokens import Mistake
from shadowgraph.ops.predicate_tree import Constant, Kind, Step, Value

__all__ = ["CASTS", "arithmetic", "bits_of", "cast", "constant", "is_unsigned", "limits", "sign"]

_BIT_SIGN = -(1 << 63)
_PLAIN = {
    "+": layout.PREDICATE_ADD,
    "-": layout.PREDICATE_SUB,
    "*": layout.PREDICATE_MUL,
    "&": layout.PREDICATE_AND,
    "|": layout.PREDICATE_OR,
    "^": layout.PREDICATE_XOR,
    "<<": layout.PREDICATE_SHIFT_LEFT,
}
_BY_SIGN = {
    "//": (layout.PREDICATE_DIV, layout.PREDICATE_UNSIGNED_DIV),
    "%": (layout.PREDICATE_MOD, layout.PREDICATE_UNSIGNED_MOD),
    ">>": (layout.PREDICATE_SHIFT_RIGHT, layout.PREDICATE_UNSIGNED_SHIFT_RIGHT),
}
# Name, step (none for 64 bits) and the least and greatest number.
CASTS: dict[str, tuple[int | None, int, int]] = {
    "i8": (layout.PREDICATE_I8, -(1 << 7), (1 << 7) - 1),
    "i16": (layout.PREDICATE_I16, -(1 << 15), (1 << 15) - 1),
    "i32": (layout.PREDICATE_I32, -(1 << 31), (1 << 31) - 1),
    "i64": (None, -(1 << 63), (1 << 63) - 1),
    "u8": (layout.PREDICATE_U8, 0, (1 << 8) - 1),
    "u16": (layout.PREDICATE_U16, 0, (1 << 16) - 1),
    "u32": (layout.PREDICATE_U32, 0, (1 << 32) - 1),
    "u64": (None, 0, (1 << 64) - 1),
}
_LIMITS = {op: (low, high) for op, low, high in CASTS.values() if op is not None} | {
    layout.PREDICATE_MEMORY8: (0, (1 << 8) - 1),
    layout.PREDICATE_MEMORY16: (0, (1 << 16) - 1),
    layout.PREDICATE_MEMORY32: (0, (1 << 32) - 1),
}


def constant(value: int, at: Syntax) -> Constant:
    """A whole number; Mistake if it has more than 64 bits."""
    if not -(1 << 63) <= value < 1 << 64:
        raise Mistake(at.start, at.end, "this number does not fit into 64 bits")
    return Constant(value)


def bits_of(value: int) -> int:
    """The 64 bits of a whole number as a number from 0 on."""
    return value & ((1 << 64) - 1)


def limits(value: Value) -> tuple[int, int] | None:
    """The least and greatest number that a value can be, if it is narrower than 64 bits."""
    return _LIMITS.get(value.op) if isinstance(value, Step) else None


def is_unsigned(value: Value) -> bool:
    """Whether the bits of a value are to be taken as unsigned, whatever it is computed with."""
    return value.kind is Kind.UNSIGNED or (
        isinstance(value, Constant) and value.kind is Kind.ANY and value.value >= 1 << 63
    )


def sign(sign: str, operand: Value, at: Syntax) -> Value:
    """+x, -x or ~x."""
    if sign == "+":
        return operand
    if operand.kind is Kind.FLOAT:
        if sign == "~":
            raise Mistake(at.start, at.end, "a floating-point number has no bits to be turned")
        if isinstance(operand, Constant):
            return Constant(-operand.value, Kind.FLOAT)
        return Step(layout.PREDICATE_XOR, Kind.FLOAT, (operand, Constant(_BIT_SIGN)))
    if isinstance(operand, Constant):
        assert isinstance(operand.value, int)
        value = -operand.value if sign == "-" else ~operand.value
        if operand.kind is Kind.ANY:
            return constant(value, at)
        return Constant(_wrapped(value, operand.kind), operand.kind)
    if sign == "-":
        return Step(layout.PREDICATE_SUB, operand.kind, (Constant(0), operand))
    return Step(layout.PREDICATE_XOR, operand.kind, (operand, Constant(-1)))


def arithmetic(sign: str, left: Value, right: Value, at: Syntax, right_at: Syntax) -> Value:
    """Two numbers with a sign between them. ``at`` is the whole, ``right_at`` the second."""
    if Kind.FLOAT in (left.kind, right.kind):
        if not (isinstance(left, Constant) and isinstance(right, Constant)):
            raise Mistake(at.start, at.end, "floating-point numbers can be compared, and not calculated with")
        return _folded_float(sign, left, right, at)
    if isinstance(right, Constant):
        if sign in ("//", "%") and right.value == 0:
            raise Mistake(right_at.start, right_at.end, "this is a division by zero")
        if sign in ("<<", ">>") and not 0 <= right.value <= 64:
            raise Mistake(right_at.start, right_at.end, "a shift is by 0 to 64 bits")
        if isinstance(left, Constant):
            return _folded(sign, left, right, at)
    shift = sign in ("<<", ">>")
    kind = _kind(left, right, shift)
    op = _PLAIN[sign] if sign in _PLAIN else _BY_SIGN[sign][kind is Kind.UNSIGNED]
    return Step(op, kind, (left, right))


def _folded(sign: str, left: Constant, right: Constant, at: Syntax) -> Constant:
    a, b = left.value, right.value
    assert isinstance(a, int) and isinstance(b, int)
    if left.kind is Kind.ANY and right.kind is Kind.ANY:
        return constant(_result(sign, a, b), at)
    shift = sign in ("<<", ">>")
    kind = _kind(left, right, shift)
    return Constant(_wrapped(_result(sign, _wrapped(a, kind), b if shift else _wrapped(b, kind)), kind), kind)


def _kind(left: Value, right: Value, shift: bool) -> Kind:
    """Whether the result is signed: the count of a shift has no say in it."""
    return Kind.UNSIGNED if is_unsigned(left) or (not shift and is_unsigned(right)) else Kind.SIGNED


def _wrapped(value: int, kind: Kind) -> int:
    """What 64 bits have of a number."""
    value = bits_of(value)
    return value if kind is Kind.UNSIGNED or value < 1 << 63 else value - (1 << 64)


def _folded_float(sign: str, left: Constant, right: Constant, at: Syntax) -> Constant:
    a, b = float(left.value), float(right.value)
    if sign not in ("+", "-", "*"):
        raise Mistake(at.start, at.end, f"{sign} is for whole numbers")
    return Constant(a + b if sign == "+" else a - b if sign == "-" else a * b, Kind.FLOAT)


def _result(sign: str, a: int, b: int) -> int:
    match sign:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "//":
            return a // b
        case "%":
            return a % b
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
        case "<<":
            return a << b
        case _:
            return a >> b


def cast(name: str, operand: Value, at: Syntax) -> Value:
    """u8(x) and its kind: the low bits of a number, with or without a sign."""
    if operand.kind is Kind.FLOAT:
        raise Mistake(at.start, at.end, f"{name}() is for whole numbers, and this is a floating-point number")
    op, low, high = CASTS[name]
    kind = Kind.UNSIGNED if name == "u64" else Kind.SIGNED
    if isinstance(operand, Constant):
        assert isinstance(operand.value, int)
        value = operand.value & (high - low)
        return Constant(value - (high - low + 1) if value > high else value, kind)
    if op is not None:
        return Step(op, kind, (operand,))
    return Step(operand.op, kind, operand.operands, operand.index, operand.late)
