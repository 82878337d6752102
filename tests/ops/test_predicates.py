"""Predicates decide what their text says: the evaluator in C against Python itself, on expressions that are made up."""

from __future__ import annotations

import ast
import struct
from functools import cache

import hypothesis
from hypothesis import given
from hypothesis import strategies as st

from shadowgraph.errors import UsageError
from shadowgraph.ops.predicates import compile_predicate
from tests.support import predicate_oracle
from tests.support.predicates import PAGE, Call, Memory, decide

# Refusals of what is right in form: the twin has no opinion about them.
REFUSALS = (
    "can never be equal",
    "a text alone is no condition",
    "two texts are compared here",
    "too long",
    "can be kept",
    "does not fit into 64 bits",
    "division by zero",
    "a shift is by 0 to 64 bits",
    "nothing is here",
    "stands within after() already",
    "an address is wanted here",
    "no floating-point number is exactly this one",
    "what it is compared with is a whole number",
)


@cache
def memory() -> Memory:
    """Strings and numbers: among them at the ends of pages, and one that does not end before its page does."""
    found = Memory()
    for offset, data in (
        (0, b"abc\0"),
        (16, b"/etc/passwd\0"),
        (64, b"\0"),
        (100, struct.pack("<qIHB", -3, 77, 9, 200)),
        (PAGE - 4, b"abcdef\0"),
        (2 * PAGE - 3, b"abc"),
    ):
        found.write(found.base + offset, data)
    found.write(found.behind, b"xyz\0")
    return found


def _addresses() -> list[int]:
    base = memory().base
    return [base, base + 16, base + 64, base + 100, base + PAGE - 4, base + 2 * PAGE - 3, memory().behind - 2]


INTERESTING = [0, 1, 2, 7, 63, 64, 255, 256, 4096, -1, -2, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, -(2**63)]
INTEGERS = st.sampled_from(INTERESTING) | st.integers(-(2**63), 2**63 - 1) | st.integers(-10, 10)
DOUBLES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.5, float("inf"), float("-inf"), float("nan"), 5e-324, -5e-324])
BITS = (
    (DOUBLES | st.floats()).map(lambda value: int.from_bytes(struct.pack("<d", value), "little"))
    | st.floats(width=32).map(lambda value: int.from_bytes(struct.pack("<f", value), "little"))
    | st.integers(0, 2**64 - 1)
)


@st.composite
def calls(draw: st.DrawFn, *, pointers: bool = False) -> Call:
    """Calls with numbers of all sizes and pointers, or with pointers alone."""
    addresses = st.deferred(lambda: st.sampled_from(_addresses()))
    word = addresses if pointers else INTEGERS | addresses
    return Call(
        integers=draw(st.lists(word, min_size=6, max_size=6)),
        stack=draw(st.lists(word, min_size=3, max_size=3)),
        floats=draw(st.lists(BITS, min_size=8, max_size=8)),
        result=draw(word),
        result_high=draw(INTEGERS),
        fresult=draw(BITS),
        ticks=draw(st.integers(0, 2**50)),
        depth=draw(st.integers(0, 100)),
        thread=draw(st.integers(1, 3)),
        pid=draw(st.integers(1, 3)),
        returned=draw(st.sampled_from([True, True, True, False])),
    )


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name), list(arguments), [])


def _constant(value: int) -> ast.expr:
    return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))


CONSTANTS = (INTEGERS | st.sampled_from([2**63, 2**64 - 1])).map(_constant) | st.just(ast.Constant("a"))
INPUTS = st.integers(0, 8).map(lambda place: _call("arg", ast.Constant(place))) | st.sampled_from(
    ["result", "result_high", "duration", "depth", "thread", "pid"]
).map(ast.Name)
OPERATORS = [
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.FloorDiv,
    ast.Mod,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.LShift,
    ast.RShift,
]
CASTS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "u64"]
POINTERS = st.integers(0, 8).map(lambda place: _call("arg", ast.Constant(place)))
ADDRESSES = (
    POINTERS
    | POINTERS
    | st.builds(
        lambda place, more: ast.BinOp(_call("arg", ast.Constant(place)), ast.Add(), ast.Constant(more)),
        st.integers(0, 8),
        st.integers(0, 9),
    )
)


def _deeper(numbers: st.SearchStrategy[ast.expr]) -> st.SearchStrategy[ast.expr]:
    return (
        st.builds(lambda left, op, right: ast.BinOp(left, op(), right), numbers, st.sampled_from(OPERATORS), numbers)
        | st.builds(_call, st.sampled_from(CASTS), numbers)
        | st.builds(lambda op, operand: ast.UnaryOp(op(), operand), st.sampled_from([ast.USub, ast.Invert]), numbers)
    )


READS = st.builds(_call, st.sampled_from(["mem8", "mem16", "mem32", "mem64"]), ADDRESSES)
NUMBERS = st.recursive(
    CONSTANTS | INPUTS | INPUTS | READS | READS.map(lambda read: _call("after", read)), _deeper, max_leaves=6
)
FLOATS = (
    st.integers(0, 7).map(lambda place: _call("farg", ast.Constant(place)))
    | st.just(ast.Name("fresult"))
    | st.integers(0, 7).map(lambda place: _call("f32", _call("farg", ast.Constant(place))))
    | st.just(_call("f32", ast.Name("fresult")))
)
FLOAT_SIDES = (
    FLOATS
    | FLOATS.map(lambda value: ast.UnaryOp(ast.USub(), value))
    | st.sampled_from([0.0, 1.5, 5e-324]).map(ast.Constant)
)
ORDERS = [ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE]
TEXTS = st.sampled_from(["", "c", "abc", "abcdef", "ef", "/etc/", "passwd", "/etc/passwd", "é"]).map(ast.Constant)


def _compared(sides: st.SearchStrategy[ast.expr], most: int) -> st.SearchStrategy[ast.expr]:
    orders = st.lists(st.sampled_from(ORDERS), min_size=most, max_size=most)
    others = st.lists(sides, min_size=most, max_size=most)
    return st.builds(lambda left, ops, right: ast.Compare(left, [op() for op in ops], right), sides, orders, others)


STRINGS = ADDRESSES.map(lambda address: _call("str", address))
TEXT_TESTS = (
    st.builds(lambda string, op, text: ast.Compare(string, [op()], [text]), STRINGS, st.sampled_from(ORDERS[:2]), TEXTS)
    | st.builds(
        _call,
        st.sampled_from(["startswith", "endswith", "endswith"]),
        STRINGS,
        TEXTS,
    )
    | st.builds(
        lambda string, texts: ast.Compare(string, [ast.In()], [ast.Tuple(texts)]),
        STRINGS,
        st.lists(TEXTS, min_size=1, max_size=3),
    )
)
MEMBERSHIPS = st.builds(
    lambda item, op, items: ast.Compare(item, [op()], [ast.Tuple(items)]),
    INPUTS | READS,
    st.sampled_from([ast.In, ast.NotIn]),
    st.lists(CONSTANTS, min_size=1, max_size=4),
)
SIMPLE = (
    _compared(NUMBERS, 1)
    | _compared(NUMBERS, 2)
    | _compared(FLOAT_SIDES, 1)
    | FLOATS.map(lambda value: _call("isnan", value))
    | TEXT_TESTS
    | TEXT_TESTS.map(lambda test: _call("after", test))
    | MEMBERSHIPS
    | NUMBERS
)
CONDITIONS = st.recursive(
    SIMPLE,
    lambda parts: (
        st.builds(
            lambda op, values: ast.BoolOp(op(), values),
            st.sampled_from([ast.And, ast.Or]),
            st.lists(parts, min_size=2, max_size=3),
        )
        | parts.map(lambda part: ast.UnaryOp(ast.Not(), part))
    ),
    max_leaves=5,
)


def thoroughly(examples: int) -> hypothesis.settings:
    """So many examples, however long a busy machine takes to make them up."""
    return hypothesis.settings(max_examples=examples, suppress_health_check=[hypothesis.HealthCheck.too_slow])


def _check(tree: ast.expr, call: Call) -> None:
    text = ast.unparse(ast.fix_missing_locations(tree))
    try:
        predicate = compile_predicate(text, 1e9)
    except UsageError as error:
        hypothesis.assume(not any(refusal in str(error) for refusal in REFUSALS))
        raise
    assert decide(predicate, call) == predicate_oracle.holds(text, call, memory()), text


@thoroughly(800)
@given(CONDITIONS, calls())
def test_any_predicate_decides_as_python_does(tree: ast.expr, call: Call) -> None:
    _check(tree, call)


@thoroughly(600)
@given(_compared(NUMBERS, 1), calls())
def test_any_comparison_of_whole_numbers_decides_as_python_does(tree: ast.expr, call: Call) -> None:
    _check(tree, call)


@thoroughly(400)
@given(_compared(FLOAT_SIDES, 1), calls())
def test_any_comparison_of_doubles_decides_as_python_does(tree: ast.expr, call: Call) -> None:
    _check(tree, call)


@thoroughly(400)
@given(TEXT_TESTS, calls(pointers=True))
def test_any_test_of_a_string_decides_as_python_does(tree: ast.expr, call: Call) -> None:
    _check(tree, call)
