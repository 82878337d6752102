"""What a histogram or totals measure of a call: a number, written as predicates write it (docs/predicates.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shadowgraph.agent import layout
from shadowgraph.errors import UsageError

__all__ = ["MeasuredValue", "measured_value"]

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"\s*arg\s*\(\s*(\d{1,4})\s*\)\s*", re.ASCII)
_CASTS = {f"{sign}{bits}": (sign == "u", bits) for sign in "iu" for bits in (8, 16, 32, 64)}
_WHAT = "it is duration, result, or arg(0) to arg(63), and of a narrow type i32(result), u8(arg(1)) and the like"


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
        """Whether it may be below 0."""
        return not self.is_duration and not self.code & layout.VALUE_UNSIGNED


def measured_value(text: str) -> MeasuredValue:
    """The value that a text means. UsageError if no call has it."""
    word, cast = text.strip(), 0
    called = _CALL.fullmatch(word)
    if called and called[1] in _CASTS:
        is_unsigned, bits = _CASTS[called[1]]
        cast = bits << layout.VALUE_BITS_SHIFT | (layout.VALUE_UNSIGNED if is_unsigned else 0)
        word = called[2].strip()
    if word == "duration" and not cast:
        return MeasuredValue(layout.VALUE_DURATION)
    if word == "result":
        return MeasuredValue(layout.VALUE_RESULT | cast)
    argument = _ARGUMENT.fullmatch(word)
    if argument and int(argument[1]) < layout.PREDICATE_ARGUMENTS:
        return MeasuredValue(layout.VALUE_ARGUMENT + int(argument[1]) | cast)
    raise UsageError(f"{text}: {_why_not(word, called[1] if called else '')}; {_WHAT}")


def _why_not(word: str, called: str) -> str:
    if re.match(r"farg|fresult", word) or called in ("f32", "f64", "float", "double"):
        return "floating-point numbers cannot be measured (--when compares them, record --args and probe show them)"
    return "is no value of a call"
