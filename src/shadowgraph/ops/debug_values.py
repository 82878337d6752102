"""From the signature in debug information to what is captured of a call (--auto-args).

What cannot be shown in a word (structs by value, long double) is left out, but takes its place (image/abi.py).
"""

from __future__ import annotations

from shadowgraph.agent import layout
from shadowgraph.image.abi import INTEGER_REGISTERS, STACK, VECTOR_REGISTERS, Place, place_arguments
from shadowgraph.image.signatures import Signature as SourceSignature
from shadowgraph.image.value_types import ValueKind, ValueType
from shadowgraph.ops.values import Signature, Value

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

_PLACES = 256  # what a byte can say


def from_debug_information(source: SourceSignature) -> Signature | None:
    """What to capture of a function with this signature; None if there is nothing to show."""
    places = place_arguments([parameter.type for parameter in source.parameters], source.result)
    arguments = []
    for parameter, where in zip(source.parameters, places, strict=True):
        shown = _shown(parameter.type)
        if shown is not None and where is not None and len(where) == 1 and (place := _number(where[0])) < _PLACES:
            arguments.append(Value(shown, parameter.name, place))
    result = _shown(source.result)
    results = (Value(result, "", 0),) if result is not None else ()
    arguments = arguments[: layout.VALUES_LIMIT - len(results)]
    return Signature(tuple(arguments), results) if arguments or results else None


def _number(place: Place) -> int:
    """A place as struct sg_value has it."""
    if place.register == STACK:
        return layout.PLACE_STACK + place.offset // 8 - 1  # offset 8 is the first stack argument
    registers = VECTOR_REGISTERS if place.register in VECTOR_REGISTERS else INTEGER_REGISTERS
    return registers.index(place.register)


def _shown(kind: ValueType) -> str | None:
    if kind.by_reference:
        return "ptr"
    return _SHOWN.get((kind.kind, kind.size))
