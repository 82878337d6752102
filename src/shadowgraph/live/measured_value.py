"""What a histogram or totals measure of a call: a number, written as predicates write it (docs/predicates.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shadowgraph.agent import layout
from shadowgraph.errors import UsageError

__all__ = ["MeasuredValue", "measured_value"]

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"\s*(f?)arg\s*\(\s*(\d{1,4})\s*\)\s*", re.ASCII)
_CASTS = {f"{sign}{bits}": (sign == "u", bits) for sign in "iu" for bits in (8, 16, 32, 64)}
_FLOAT_ARGUMENTS = 8  # xmm0 to xmm7, by the ABI
_FLOATS = {"f32": 32, "f64": 64}
_OTHER_WORDS = {"ret": "result", "retval": "result", "return": "result", "time": "duration", "latency": "duration"}
_BARE_ARGUMENT = re.compile(r"(f?arg)\W?(\d{1,4})\W?", re.ASCII)


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """``code`` is what the agent is told (SG_VALUE_… in native/include/shadowgraph/users.h)."""

    code: int

    @property
    def is_duration(self) -> bool:
        """Whether it is a time."""
        return self.code == layout.VALUE_DURATION

    @property
    def at_exit(self) -> bool:
        """Whether it is known when the call is over, and not before."""
        return self.code & layout.VALUE_SOURCE < layout.VALUE_ARGUMENT

    @property
    def has_sign(self) -> bool:
        """Whether it is a whole number that may be below 0."""
        return not self.is_duration and not self.code & (layout.VALUE_UNSIGNED | layout.VALUE_FLOAT)

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point number."""
        return bool(self.code & layout.VALUE_FLOAT)


def measured_value(text: str) -> MeasuredValue:
    """The value that a text means. UsageError if no call has it."""
    word, cast = text.strip(), 0
    called = _CALL.fullmatch(word)
    if called and called[1] in _CASTS:
        is_unsigned, bits = _CASTS[called[1]]
        cast = bits << layout.VALUE_BITS_SHIFT | (layout.VALUE_UNSIGNED if is_unsigned else 0)
        word = called[2].strip()
    if called and called[1] in _FLOATS:
        cast = _FLOATS[called[1]] << layout.VALUE_BITS_SHIFT | layout.VALUE_FLOAT
        word = called[2].strip()
    argument = _ARGUMENT.fullmatch(word)
    if word == "fresult" or (argument and argument[1]):
        number = int(argument[2]) if argument else 0
        if (not cast or cast & layout.VALUE_FLOAT) and number < _FLOAT_ARGUMENTS:
            source = layout.VALUE_ARGUMENT + number if argument else layout.VALUE_RESULT
            return MeasuredValue(source | cast | layout.VALUE_FLOAT)
    elif not cast & layout.VALUE_FLOAT:
        if word == "duration" and not cast:
            return MeasuredValue(layout.VALUE_DURATION)
        if word == "result":
            return MeasuredValue(layout.VALUE_RESULT | cast)
        if argument and not argument[1] and int(argument[2]) < layout.PREDICATE_ARGUMENTS:
            return MeasuredValue(layout.VALUE_ARGUMENT + int(argument[2]) | cast)
    raise UsageError(f"{text.strip() or repr(text)}: {_mistake(word, called[1] if called and cast else '')}")


def _mistake(word: str, cast: str) -> str:
    """What is wrong with a value, ``word`` in a ``cast`` or none."""
    argument = _ARGUMENT.fullmatch(word)
    if argument and int(argument[2]) >= (_FLOAT_ARGUMENTS if argument[1] else layout.PREDICATE_ARGUMENTS):
        if argument[1]:
            return f"floating-point arguments are farg(0) to farg({_FLOAT_ARGUMENTS - 1})"
        return f"whole-number arguments are arg(0) to arg({layout.PREDICATE_ARGUMENTS - 1})"
    bare = _BARE_ARGUMENT.fullmatch(word.lower())
    meant = f"{bare[1]}({bare[2]})" if bare else _OTHER_WORDS.get(word.lower(), "")
    if cast and (meant or word in ("result", "fresult", "duration")):
        kind = (meant or word)[0]
        if (cast in _FLOATS) != (kind == "f") or kind == "d":
            return f"{cast}() is for fresult and farg(n)" if cast in _FLOATS else f"{cast}() is for result and arg(n)"
    if meant:
        return f"is no value of a call; write {f'{cast}({meant})' if cast else meant}"
    return "is no value of a call; try duration, result, arg(0), i32(result), u8(arg(1)), fresult or farg(0)"
