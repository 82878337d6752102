"""Comparisons of predicates: which step of the evaluator compares two values.

Whole numbers are compared as the numbers that they are, whatever their signs. Doubles follow IEEE 754: a NaN is not
equal to anything, itself included, and neither less nor greater.
"""

from __future__ import annotations

from shadowgraph.agent import layout
from shadowgraph.ops.predicate_numbers import constant, is_unsigned, limits
from shadowgraph.ops.predicate_syntax import Syntax
from shadowgraph.ops.predicate_tokens import Mistake
from shadowgraph.ops.predicate_tree import AllOf, Always, Condition, Constant, Kind, OneOf, Relation, Value

__all__ = ["is_not_a_number", "one_of", "relation", "true_if_not_zero"]

_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

# Sign: (step, whether it takes the values the other way round).
_SIGNED = {
    "==": (layout.PREDICATE_EQ, False),
    "!=": (layout.PREDICATE_NE, False),
    "<": (layout.PREDICATE_LT, False),
    ">=": (layout.PREDICATE_GE, False),
    ">": (layout.PREDICATE_LT, True),
    "<=": (layout.PREDICATE_GE, True),
}
_UNSIGNED = _SIGNED | {
    "<": (layout.PREDICATE_BELOW, False),
    ">=": (layout.PREDICATE_NOT_BELOW, False),
    ">": (layout.PREDICATE_BELOW, True),
    "<=": (layout.PREDICATE_NOT_BELOW, True),
}
_MIXED = {
    "==": layout.PREDICATE_MIXED_EQ,
    "!=": layout.PREDICATE_MIXED_NE,
    "<": layout.PREDICATE_MIXED_LT,
    "<=": layout.PREDICATE_MIXED_LE,
    ">": layout.PREDICATE_MIXED_GT,
    ">=": layout.PREDICATE_MIXED_GE,
}
_FLOAT = {
    "==": (layout.PREDICATE_FLOAT_EQ, False),
    "!=": (layout.PREDICATE_FLOAT_NE, False),
    "<": (layout.PREDICATE_FLOAT_LT, False),
    "<=": (layout.PREDICATE_FLOAT_LE, False),
    ">": (layout.PREDICATE_FLOAT_LT, True),
    ">=": (layout.PREDICATE_FLOAT_LE, True),
}


def true_if_not_zero(value: Value) -> Condition:
    """A number where a condition is wanted."""
    if isinstance(value, Constant):
        return Always(value.value != 0)
    if value.kind is Kind.FLOAT:
        return Relation((value, Constant(0.0, Kind.FLOAT)), (layout.PREDICATE_FLOAT_NE,), (False,))
    return Relation((value, Constant(0)), (layout.PREDICATE_NE,), (False,))


def is_not_a_number(value: Value) -> Condition:
    """isnan(x): nothing else differs from itself."""
    return Relation((value, value), (layout.PREDICATE_FLOAT_NE,), (False,))


def relation(operands: list[tuple[Value, Syntax]], signs: tuple[str, ...]) -> Condition:
    """Values compared with their neighbours."""
    pairs = [(operands[at], sign, operands[at + 1]) for at, sign in enumerate(signs)]
    if not any(value.reads_memory for value, _ in operands[1:-1]):
        found = [_pair(*pair) for pair in pairs]
        return found[0] if len(found) == 1 else AllOf(tuple(found))
    chain = [_checked(*pair) for pair in pairs]
    values = (chain[0][0], *(right for _, right in chain))
    steps = [_op(left, sign, right) for (left, right), sign in zip(chain, signs, strict=True)]
    return Relation(values, tuple(op for op, _ in steps), tuple(swapped for _, swapped in steps))


def _checked(left: tuple[Value, Syntax], sign: str, right: tuple[Value, Syntax]) -> tuple[Value, Value]:
    """Two values, made alike. Mistake if they cannot be compared, or never be equal."""
    a, b = _alike(*left, *right)
    if sign in ("==", "!="):
        _check_in_reach(a, b, right[1])
        _check_in_reach(b, a, left[1])
    return a, b


def _pair(left: tuple[Value, Syntax], sign: str, right: tuple[Value, Syntax]) -> Condition:
    a, b = _checked(left, sign, right)
    if isinstance(a, Constant):
        if isinstance(b, Constant):
            return Always(_holds(sign, a.value, b.value))
        a, sign, b = b, _MIRRORED[sign], a
    if isinstance(b, Constant) and (simpler := _with_neighbour(a, sign, b)):
        return simpler
    op, swapped = _op(a, sign, b)
    return Relation((a, b), (op,), (swapped,))


def _alike(left: Value, left_at: Syntax, right: Value, right_at: Syntax) -> tuple[Value, Value]:
    """Two values that can be compared: constants become what the other one is."""
    if left.kind is Kind.FLOAT and right.kind is not Kind.FLOAT:
        return (left, _as_float(right, right_at)) if not isinstance(left, Constant) else _whole(left, left_at, right)
    if right.kind is Kind.FLOAT and left.kind is not Kind.FLOAT:
        swapped = _alike(right, right_at, left, left_at)
        return swapped[1], swapped[0]
    return left, right


def _as_float(value: Value, at: Syntax) -> Value:
    if not isinstance(value, Constant):
        raise Mistake(at.start, at.end, "a floating-point number can only be compared with its like or with a constant")
    if float(value.value) != value.value:
        raise Mistake(at.start, at.end, "no floating-point number is exactly this one")
    return Constant(float(value.value), Kind.FLOAT)


def _whole(number: Constant, at: Syntax, other: Value) -> tuple[Value, Value]:
    """A constant with a fraction beside a whole number."""
    if isinstance(other, Constant):
        return number, _as_float(other, at)
    if not float(number.value).is_integer():
        raise Mistake(at.start, at.end, "what it is compared with is a whole number")
    return constant(int(number.value), at), other


def _check_in_reach(value: Value, other: Value, at: Syntax) -> None:
    """Refuse to ask whether a value is what it can never be: u8(x) == 300, u64(x) == -1."""
    if not isinstance(other, Constant) or isinstance(value, Constant) or value.kind is Kind.FLOAT:
        return
    low, high = limits(value) or ((0, (1 << 64) - 1) if value.kind is Kind.UNSIGNED else (-(1 << 63), (1 << 63) - 1))
    if not low <= other.value <= high:
        known = f"between {low} and {high}" if limits(value) else f"{value.kind.value} of 64 bits"
        raise Mistake(at.start, at.end, f"this can never be equal: the other side is {known}")


def _with_neighbour(left: Value, sign: str, right: Constant) -> Condition | None:
    """x > 5 as x >= 6, so that the constant can stay on the right; what is beyond all numbers decides by itself."""
    if left.kind is Kind.FLOAT or sign in ("==", "!="):
        return None
    assert isinstance(right.value, int)
    low, high = (0, (1 << 64) - 1) if left.kind is Kind.UNSIGNED else (-(1 << 63), (1 << 63) - 1)
    bound = right.value + 1 if sign in (">", "<=") else right.value
    if bound <= low or bound > high:
        truth = (bound <= low) == (sign in (">", ">="))
        return None if left.may_fail or left.at_exit else Always(truth)
    op, _ = (_UNSIGNED if left.kind is Kind.UNSIGNED else _SIGNED)[">=" if sign in (">", ">=") else "<"]
    return Relation((left, Constant(bound)), (op,), (False,))


def _op(left: Value, sign: str, right: Value) -> tuple[int, bool]:
    """The step, and whether its left is our right."""
    if left.kind is Kind.FLOAT:
        return _FLOAT[sign]
    if _fits_unsigned(left) and _fits_unsigned(right):
        return _UNSIGNED[sign]
    if not is_unsigned(left) and not is_unsigned(right):
        return _SIGNED[sign]
    if is_unsigned(right):
        return _MIXED[sign], False
    return _MIXED[_MIRRORED[sign]], True


def _fits_unsigned(value: Value) -> bool:
    """Whether the bits of a value are the same number if they are taken as unsigned."""
    return is_unsigned(value) or (isinstance(value, Constant) and value.value >= 0)


def one_of(value: Value, at: Syntax, constants: list[tuple[Value, Syntax]]) -> Condition:
    """x in (1, 2, 3)."""
    if value.kind is Kind.FLOAT:
        raise Mistake(at.start, at.end, "'in' is for whole numbers and strings")
    numbers: list[Constant] = []
    for item, place in constants:
        if not isinstance(item, Constant):
            raise Mistake(place.start, place.end, "only constants can stand in this list")
        number = _alike(value, at, item, place)[1]
        assert isinstance(number, Constant)
        _check_in_reach(value, number, place)
        numbers.append(number)
    if isinstance(value, Constant):
        return Always(any(value.value == number.value for number in numbers))
    return OneOf(value, tuple(dict.fromkeys(numbers)))


def _holds(sign: str, a: int | float, b: int | float) -> bool:
    match sign:
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case _:
            return a >= b
