"""From the signature in debug information to what is captured of a call (--auto-args).

Where each argument is follows the classes of its eight bytes (System V ABI, AMD64 supplement, 3.2.3): a value goes to
registers as a whole or to the stack as a whole. What cannot be shown in a word (structs by value, long double) is left
out, but takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from shadowgraph.agent import layout
from shadowgraph.image.signatures import Signature as SourceSignature
from shadowgraph.image.value_types import PassedAs, ValueKind, ValueType
from shadowgraph.ops.values import INTEGER_REGISTERS, VECTOR_REGISTERS, Signature, Value

__all__ = ["from_debug_information"]

_SHOWN = {
    (ValueKind.SIGNED, 1): "i8",
    (ValueKind.SIGNED, 2): "i16",
    (ValueKind.SIGNED, 4): "i32",
    (ValueKind.SIGNED, 8): "i64",
    (ValueKind.UNSIGNED, 1): "u8",
    (ValueKind.UNSIGNED, 2): "u16",
    (ValueKind.UNSIGNED, 4): "u32",
    (ValueKind.UNSIGNED, 8): "u64",
    (ValueKind.ENUM, 1): "u8",
    (ValueKind.ENUM, 2): "u16",
    (ValueKind.ENUM, 4): "i32",
    (ValueKind.ENUM, 8): "i64",
    (ValueKind.FLOAT, 4): "f32",
    (ValueKind.FLOAT, 8): "f64",
    (ValueKind.BOOL, 1): "bool",
    (ValueKind.CHARACTER, 1): "char",
    (ValueKind.POINTER, 8): "ptr",
    (ValueKind.STRING, 8): "str",
}


@dataclass
class _Places:
    """What is taken so far: registers of both classes, and eight-byte slots on the stack."""

    integers: int = 0
    vectors: int = 0
    stack: int = 0

    def take(self, kind: ValueType) -> int:
        """The place of the next argument: a register number of its class, or a stack slot."""
        integers = kind.passed.count(PassedAs.INTEGER)
        vectors = kind.passed.count(PassedAs.SSE)
        in_registers = (
            PassedAs.MEMORY not in kind.passed
            and PassedAs.X87 not in kind.passed
            and self.integers + integers <= INTEGER_REGISTERS
            and self.vectors + vectors <= VECTOR_REGISTERS
        )
        if in_registers:
            place = self.vectors if vectors else self.integers
            self.integers += integers
            self.vectors += vectors
            return place
        if kind.alignment > 8:
            self.stack += self.stack % 2
        place = layout.PLACE_STACK + self.stack
        self.stack += max(1, -(-kind.size // 8))
        return place


def from_debug_information(source: SourceSignature) -> Signature | None:
    """What to capture of a function with this signature; None if there is nothing to show."""
    places = _Places()
    if source.result.passed == (PassedAs.MEMORY,) or source.result.by_reference:
        places.integers = 1  # the address of the result comes first
    arguments = []
    for parameter in source.parameters:
        place = places.take(parameter.type)
        shown = _shown(parameter.type)
        if shown is not None and place < 256:
            arguments.append(Value(shown, parameter.name, place))
    result = _shown(source.result)
    results = (Value(result, "", 0),) if result is not None else ()
    arguments = arguments[: layout.VALUES_LIMIT - len(results)]
    return Signature(tuple(arguments), results) if arguments or results else None


def _shown(kind: ValueType) -> str | None:
    if kind.by_reference:
        return "ptr"
    return _SHOWN.get((kind.kind, kind.size))
