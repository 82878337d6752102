"""What the parts of a predicate mean: names and functions are looked up, and what does not go together is refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

from shadowgraph.agent import layout
from shadowgraph.ops import predicate_numbers as numbers
from shadowgraph.ops import predicate_relations as relations
from shadowgraph.ops import predicate_syntax as syntax
from shadowgraph.ops.predicate_syntax import Syntax
from shadowgraph.ops.predicate_tokens import Mistake
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
    Step,
    TextTest,
    Value,
)

__all__ = ["condition_of"]

_NUMBERED = re.compile(r"(f?arg)(\d{1,2})", re.ASCII)  # as others write an argument
_VALUES: dict[str, Value | Condition] = {
    "result": Step(layout.PREDICATE_RESULT, Kind.SIGNED),
    "result_high": Step(layout.PREDICATE_RESULT_HIGH, Kind.SIGNED),
    "fresult": Step(layout.PREDICATE_FLOAT_RESULT, Kind.FLOAT),
    "duration": Step(DURATION, Kind.SIGNED),
    "depth": Step(OF_CALL, Kind.SIGNED, index=layout.PREDICATE_DEPTH),
    "thread": Step(OF_CALL, Kind.SIGNED, index=layout.PREDICATE_THREAD),
    "pid": Step(OF_CALL, Kind.SIGNED, index=layout.PREDICATE_PROCESS),
    "inf": Constant(float("inf"), Kind.FLOAT),
    "True": Always(True),
    "False": Always(False),
}
_MEMORY = {
    "mem8": layout.PREDICATE_MEMORY8,
    "mem16": layout.PREDICATE_MEMORY16,
    "mem32": layout.PREDICATE_MEMORY32,
    "mem64": layout.PREDICATE_MEMORY64,
}
_TEXT_TESTS = {"startswith": layout.PREDICATE_TEXT_STARTS, "endswith": layout.PREDICATE_TEXT_ENDS}
_MOST_TEXT = 512


def condition_of(tree: Syntax) -> Condition:
    """The condition that a predicate is. Raises Mistake."""
    return _Reader().condition(tree)


class _Text:
    """str(address): good for comparisons alone."""

    def __init__(self, address: Value) -> None:
        self.address = address


class _Reader:
    def __init__(self) -> None:
        self._late = False
        self._memory_reads = 0
        self._functions: dict[str, tuple[Callable[[syntax.Call], Value | Condition | _Text], int, str]] = {
            "arg": (self._argument, 1, "arg(0)"),
            "farg": (self._float_argument, 1, "farg(0)"),
            "str": (self._string, 1, "str(arg(0))"),
            "f32": (self._single, 1, "f32(farg(0))"),
            "f64": (self._double, 1, "f64(farg(0))"),
            "isnan": (self._is_not_a_number, 1, "isnan(fresult)"),
            "after": (self._after, 1, "after(mem8(arg(1)))"),
            **{name: (self._cast, 1, f"{name}(arg(0))") for name in numbers.CASTS},
            **{name: (self._memory, 1, f"{name}(arg(0))") for name in _MEMORY},
            **{name: (self._text_test, 2, f'{name}(str(arg(0)), "/etc/")') for name in _TEXT_TESTS},
        }

    # --- what is wanted: a condition, a number, or what comes ---

    def condition(self, tree: Syntax) -> Condition:
        found = self._any(tree)
        if isinstance(found, _Text):
            raise Mistake(
                tree.start, tree.end, 'a string alone is no condition; compare it, as in str(arg(0)) == "abc"'
            )
        if isinstance(found, bytes):
            raise Mistake(tree.start, tree.end, "a text alone is no condition")
        if isinstance(found, Constant | Step):
            return relations.true_if_not_zero(found)
        return found

    def _number(self, tree: Syntax) -> Value:
        found = self._any(tree)
        if isinstance(found, bytes):
            if len(found) == 1:
                return Constant(found[0])
            raise Mistake(tree.start, tree.end, "a number is wanted here; only a text of one byte stands for one")
        if isinstance(found, _Text):
            raise Mistake(tree.start, tree.end, "a number is wanted here, and this is a string")
        if not isinstance(found, Constant | Step):
            raise Mistake(tree.start, tree.end, "a number is wanted here, and this is true or false")
        return found

    def _any(self, tree: Syntax) -> Value | Condition | _Text | bytes:
        match tree:
            case syntax.Literal(value=bytes(value)):
                return value
            case syntax.Literal(value=float(value)):
                return Constant(value, Kind.FLOAT)
            case syntax.Literal(value=int(value)):
                return numbers.constant(value, tree)
            case syntax.Name(name=name):
                return self._name(name, tree)
            case syntax.Call():
                return self._call(tree)
            case syntax.Sign(sign=sign, operand=operand):
                return numbers.sign(sign, self._number(operand), tree)
            case syntax.Arithmetic(sign=sign, left=left, right=right):
                first, second = self._number(left), self._number(right)
                return numbers.arithmetic(sign, first, second, tree, right)
            case syntax.Negation(operand=operand):
                return Not(self.condition(operand))
            case syntax.Logic(word=word, operands=operands):
                parts = tuple(self.condition(operand) for operand in operands)
                return AllOf(parts) if word == "and" else AnyOf(parts)
            case syntax.Comparison():
                return self._comparison(tree)
        raise Mistake(tree.start, tree.end, "a list can only stand behind 'in'")

    # --- names ---

    def _name(self, name: str, tree: Syntax) -> Value | Condition:
        if name in _VALUES:
            return _VALUES[name]
        if name in self._functions:
            raise Mistake(tree.start, tree.end, f"{name} is a function: {self._functions[name][2]}")
        raise self._unknown(name, tree.start)

    def _unknown(self, name: str, start: int) -> Mistake:
        near = difflib.get_close_matches(name, [*_VALUES, *self._functions], 1)
        known = [*(known for known in _VALUES if known.islower()), *self._functions]
        numbered = _NUMBERED.fullmatch(name)
        near = [f"{numbered[1]}({numbered[2]})"] if numbered else near
        meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        return Mistake(start, start + len(name), f"{name!r} is not known; {meant}")

    def _call(self, tree: syntax.Call) -> Value | Condition | _Text:
        name, end = tree.name, tree.start + len(tree.name)
        if name in _VALUES:
            raise Mistake(tree.start, tree.end, f"{name} is not a function: write it without parentheses")
        if name not in self._functions:
            raise self._unknown(name, tree.start)
        made, wanted, example = self._functions[name]
        if len(tree.arguments) != wanted:
            raise Mistake(end, tree.end, f"{name}() takes {'one value' if wanted == 1 else 'two'}: {example}")
        return made(tree)

    def _place(self, tree: syntax.Call, most: int, what: str) -> int:
        """The number of an argument, which has to be written as one."""
        (inner,) = tree.arguments
        found = self._number(inner)
        if not isinstance(found, Constant) or not isinstance(found.value, int):
            raise Mistake(inner.start, inner.end, f"which argument it is has to be a plain number: {tree.name}(0)")
        if not 0 <= found.value < most:
            raise Mistake(inner.start, inner.end, f"{what} are {tree.name}(0) to {tree.name}({most - 1})")
        return found.value

    def _argument(self, tree: syntax.Call) -> Step:
        place = self._place(tree, layout.PREDICATE_ARGUMENTS, "integer arguments")
        return Step(layout.PREDICATE_ARGUMENT, Kind.SIGNED, index=place)

    def _float_argument(self, tree: syntax.Call) -> Step:
        place = self._place(tree, 8, "floating-point arguments in registers")
        return Step(layout.PREDICATE_FLOAT_ARGUMENT, Kind.FLOAT, index=place)

    # --- functions of numbers ---

    def _cast(self, tree: syntax.Call) -> Value:
        (inner,) = tree.arguments
        return numbers.cast(tree.name, self._number(inner), inner)

    def _double(self, tree: syntax.Call) -> Step:
        """Which a floating-point value is by itself."""
        return self._floating(tree, "where they are of type double, as they are by themselves")

    def _single(self, tree: syntax.Call) -> Step:
        return Step(layout.PREDICATE_WIDEN, Kind.FLOAT, (self._floating(tree, "where they are of type float"),))

    def _floating(self, tree: syntax.Call, where: str) -> Step:
        (inner,) = tree.arguments
        found = self._number(inner)
        if not isinstance(found, Step) or found.op not in (
            layout.PREDICATE_FLOAT_ARGUMENT,
            layout.PREDICATE_FLOAT_RESULT,
        ):
            raise Mistake(inner.start, inner.end, f"{tree.name}() is for farg(n) and fresult, {where}")
        return found

    def _is_not_a_number(self, tree: syntax.Call) -> Condition:
        (inner,) = tree.arguments
        found = self._number(inner)
        if found.kind is not Kind.FLOAT:
            raise Mistake(inner.start, inner.end, "isnan() is for floating-point numbers, and this is a whole one")
        return relations.is_not_a_number(found)

    # --- memory ---

    def _memory(self, tree: syntax.Call) -> Step:
        address = self._address(tree.arguments[0])
        return Step(_MEMORY[tree.name], Kind.SIGNED, (address,), late=self._late)

    def _address(self, tree: Syntax) -> Value:
        found = self._number(tree)
        if found.kind is Kind.FLOAT:
            raise Mistake(tree.start, tree.end, "an address is wanted here, and this is a floating-point number")
        self._memory_reads += 1
        return found

    def _string(self, tree: syntax.Call) -> _Text:
        return _Text(self._address(tree.arguments[0]))

    def _after(self, tree: syntax.Call) -> Value | Condition | _Text:
        (inner,) = tree.arguments
        if self._late:
            raise Mistake(tree.start, tree.end, "after() stands within after() already")
        before, self._late = self._memory_reads, True
        found = self._any(inner)
        self._late = False
        if self._memory_reads == before:
            raise Mistake(inner.start, inner.end, "after() is for what is read from memory, and nothing is here")
        if isinstance(found, _Text):
            raise Mistake(inner.start, inner.end, 'put the whole comparison into after(): after(str(arg(0)) == "abc")')
        assert not isinstance(found, bytes)
        return found

    def _text_test(self, tree: syntax.Call) -> Condition:
        first, second = tree.arguments
        string, text = self._any(first), self._any(second)
        if not isinstance(string, _Text):
            raise Mistake(first.start, first.end, "a string is wanted here, like str(arg(0))")
        return self._test(_TEXT_TESTS[tree.name], string, text, second)

    def _test(self, op: int, string: _Text, text: object, at: Syntax) -> TextTest:
        if not isinstance(text, bytes):
            raise Mistake(at.start, at.end, "a string is compared with a text in quotes")
        if b"\0" in text:
            raise Mistake(at.start, at.end, "a string ends at its first zero byte, so it has none")
        if len(text) > _MOST_TEXT:
            raise Mistake(at.start, at.end, f"texts have at most {_MOST_TEXT} bytes")
        return TextTest(op, string.address, text, self._late)

    # --- comparisons ---

    def _comparison(self, tree: syntax.Comparison) -> Condition:
        if tree.signs[0] in ("in", "not in"):
            found = self._membership(*tree.operands)
            return Not(found) if tree.signs[0] == "not in" else found
        sides = [self._any(operand) for operand in tree.operands]
        if any(isinstance(side, _Text) for side in sides):
            return self._text_comparison(tree, sides)
        places = tree.operands
        if all(isinstance(side, bytes) for side in sides):
            raise Mistake(tree.start, tree.end, "two texts are compared here, and nothing of the call")
        values = [self._as_number(side, place) for side, place in zip(sides, places, strict=True)]
        return relations.relation(list(zip(values, places, strict=True)), tree.signs)

    def _as_number(self, side: object, place: Syntax) -> Value:
        """A side of a comparison that has been read already."""
        if isinstance(side, Constant | Step):
            return side
        if isinstance(side, bytes) and len(side) == 1:
            return Constant(side[0])
        what = "a text" if isinstance(side, bytes) else "true or false"
        hint = "; a string in memory is str(…)" if isinstance(side, bytes) else ""
        raise Mistake(place.start, place.end, f"a number is compared here with {what}{hint}")

    def _text_comparison(self, tree: syntax.Comparison, sides: Sequence[object]) -> Condition:
        if len(sides) != 2 or tree.signs[0] not in ("==", "!="):
            raise Mistake(tree.start, tree.end, "strings can be compared with == and != alone")
        (left, right), (left_at, right_at) = sides, tree.operands
        if not isinstance(left, _Text):
            left, right, right_at = right, left, left_at
        assert isinstance(left, _Text)
        op = layout.PREDICATE_TEXT_EQ if tree.signs[0] == "==" else NEGATED[layout.PREDICATE_TEXT_EQ]
        return self._test(op, left, right, right_at)

    def _membership(self, item: Syntax, listing: Syntax) -> Condition:
        assert isinstance(listing, syntax.Listing)
        found = self._any(item)
        if isinstance(found, _Text):
            tests = [self._test(layout.PREDICATE_TEXT_EQ, found, self._any(part), part) for part in listing.items]
            return AnyOf(tuple(tests))
        value = self._as_number(found, item)
        return relations.one_of(value, item, [(self._number(part), part) for part in listing.items])
