"""What to capture of a call: specifications like `open(str path, i32 flags) -> i32`, and where the ABI puts each value.

Classes and places follow the System V ABI for x86-64 (section 3.2.3): integers and pointers go to rdi, rsi, rdx, rcx,
r8, r9 and then to the stack, floating-point numbers to xmm0 to xmm7 and then to the stack, in one common order there.
Results are in rax, rdx or xmm0, xmm1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shadowgraph.agent import layout
from shadowgraph.errors import UsageError
from shadowgraph.ops.selection import Rule, function_rule

__all__ = [
    "TYPE_NAMES",
    "Capture",
    "Signature",
    "Value",
    "ValueRule",
    "native_values",
    "parse_rule",
    "spool_row",
]

_TYPES = {
    "ptr", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "bool", "char", "str",
}  # fmt: skip
_ALIASES = {
    "int": "i32", "short": "i16", "long": "i64", "ssize_t": "i64", "int64_t": "i64", "int32_t": "i32", "off_t": "i64",
    "unsigned": "u32", "uint": "u32", "ulong": "u64", "size_t": "u64", "uint64_t": "u64", "uint32_t": "u32",
    "float": "f32", "double": "f64", "pointer": "ptr", "string": "str", "cstr": "str", "char*": "str", "void*": "ptr",
    "_Bool": "bool", "int8_t": "i8", "int16_t": "i16", "uint8_t": "u8", "uint16_t": "u16", "intptr_t": "i64",
    "uintptr_t": "u64",
}  # fmt: skip
# All that stands for a type besides `_` and, for a pointer, whatever ends in `*`.
TYPE_NAMES = (*sorted(_TYPES), *sorted(_ALIASES))
_FLOATS = ("f32", "f64")
INTEGER_REGISTERS, VECTOR_REGISTERS = 6, 8


@dataclass(frozen=True, slots=True)
class Value:
    """One argument or result. Type `_` takes its place and is not captured.

    ``place`` is where it is (struct sg_value in arena.h), if that is not what the order of the values says.
    """

    type: str
    name: str = ""
    place: int | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments and results of a function, as far as they are to be captured."""

    arguments: tuple[Value, ...]
    results: tuple[Value, ...] = ()


@dataclass(frozen=True)
class ValueRule:
    """A specification of --args: which functions, and what of them."""

    text: str
    rule: Rule
    signature: Signature


@dataclass
class Capture:
    """What is captured of which functions: the last rule that matches, else what debug information says if asked for.

    ``matched`` are the rules that were used.
    """

    rules: Sequence[ValueRule] = ()
    automatic: bool = False
    matched: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.rules) or self.automatic

    def signature(self, module: str, names: Sequence[str]) -> Signature | None:
        """The signature that a rule gives to a function, if any does."""
        for rule in reversed(self.rules):
            if rule.rule.wants_module(module) and any(rule.rule.function(name) for name in names):
                self.matched.add(rule.text)
                return rule.signature
        return None


def parse_rule(text: str) -> ValueRule:
    """Read `pattern(type [name], …) [-> type | -> (type, type)]`. UsageError with a mark below a mistake."""
    match = re.fullmatch(r"\s*([^()]+?)\s*\((.*?)\)\s*(?:->\s*(.+?)\s*)?", text)
    if not match:
        raise _mistake(text, *_where_it_ends(text))
    pattern, results, at = match[1], match[3] or "", match.start(3)
    if results.startswith("("):
        results, at = results[1:].removesuffix(")"), at + 1
    signature = Signature(_values(text, match[2], match.start(2)), _values(text, results, at))
    if len(signature.arguments) + len(signature.results) > layout.VALUES_LIMIT:
        raise UsageError(f"--args {text!r}: at most {layout.VALUES_LIMIT} values can be captured of a call")
    if len(signature.results) > 2:
        raise _mistake(text, at, len(results), "a function has at most two results in registers")
    return ValueRule(text, function_rule(pattern, include=True), signature)


def _mistake(text: str, at: int, length: int, sentence: str) -> UsageError:
    """What is wrong with a specification, and below it the place."""
    return UsageError(f"--args: {sentence}\n    {text}\n    {' ' * at}{'^' * max(length, 1)}")


def _where_it_ends(text: str) -> tuple[int, int, str]:
    """Where a text stops to be a specification (place, length), and what should be there."""
    example = "; write it like 'malloc(u64 size) -> ptr'"
    begin = text.find("(")
    end = text.find(")", begin)
    if begin < 0:
        return len(text), 1, f"the arguments, in parentheses, are missing here{example}"
    if not text[:begin].strip() or ")" in text[:begin]:
        return 0, begin, f"the name of a function, or a pattern, is missing here{example}"
    if end < 0:
        return len(text), 1, f"a closing parenthesis is missing here{example}"
    rest = text[end + 1 :]
    return end + 1, len(rest), f"only '->' and a type can follow the arguments{example}"


def _values(text: str, part: str, start: int) -> tuple[Value, ...]:
    """The values of a list that begins at ``start`` in the specification."""
    found = []
    for piece in re.finditer(r"[^,]+", part):
        item = re.sub(r"\bconst\b\s*|\s*(?=\*)", "", piece[0].strip())
        if item in ("", "void", "..."):
            continue
        words = re.split(r"[\s:]+|(?<=\*)(?=\w)", item)
        first, second = words[0], words[1] if len(words) > 1 else ""
        kind, name = _type(first), second
        if kind is None and _type(second) is not None:  # `name: type`
            kind, name = _type(second), first
        if kind is None or len(words) > 2:
            at = start + piece.start() + len(piece[0]) - len(piece[0].lstrip())
            known = " ".join(TYPE_NAMES)
            sentence = f"{item!r} is not a type; types are {known}, whatever ends in *, and _ to leave a value out"
            raise _mistake(text, at, len(piece[0].strip()), sentence)
        found.append(Value(kind, name))
    return tuple(found)


def _type(word: str) -> str | None:
    if word == "_" or word in _TYPES:
        return word
    if word in _ALIASES:
        return _ALIASES[word]
    return "ptr" if word.endswith("*") and len(word) > 1 else None


def native_values(signature: Signature) -> bytes:
    """The struct sg_values of a signature."""
    items: list[tuple[int, int]] = []
    integers = vectors = stack = 0
    for value in signature.arguments:
        if value.type in _FLOATS:
            place, vectors = vectors, vectors + 1
            full = place >= VECTOR_REGISTERS
        else:
            place, integers = integers, integers + 1
            full = place >= INTEGER_REGISTERS
        if full:
            place, stack = layout.PLACE_STACK + stack, stack + 1
        if value.type != "_":
            items.append((_kind(value), place if value.place is None else value.place))
    entry = len(items)
    integers = vectors = 0
    for value in signature.results:
        if value.type in _FLOATS:
            items.append((_kind(value), vectors))
            vectors += 1
        else:
            items.append((_kind(value), integers))
            integers += 1
    block: Any = np.zeros(1, layout.values_dtype)
    block["entry"], block["at_return"] = entry, len(items) - entry
    for index, (kind, place) in enumerate(items):
        block["items"]["kind"][0, index], block["items"]["place"][0, index] = kind, place
    return bytes(block.tobytes())


def _kind(value: Value) -> int:
    if value.type in _FLOATS:
        return layout.VALUE_VECTOR
    return layout.VALUE_STRING if value.type == "str" else layout.VALUE_INTEGER


def spool_row(function: int, signature: Signature) -> dict[str, Any]:
    """What the trace has to know to show captured values: see docs/trace-format.md."""

    def rows(values: tuple[Value, ...]) -> list[dict[str, str]]:
        return [{"type": value.type, "name": value.name} for value in values if value.type != "_"]

    return {"function": function, "arguments": rows(signature.arguments), "results": rows(signature.results)}
