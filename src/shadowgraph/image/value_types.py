"""Types of arguments and results: what a value means, and in which registers the ABI passes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["PassedAs", "ValueKind", "ValueType", "merged"]


class ValueKind(Enum):
    """How to show a value. STRING is a pointer to char; BLOCK is a struct, union or array by value."""

    VOID = "void"
    BOOL = "bool"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    CHARACTER = "character"
    FLOAT = "float"
    POINTER = "pointer"
    STRING = "string"
    ENUM = "enum"
    BLOCK = "block"
    UNKNOWN = "unknown"


class PassedAs(Enum):
    """The class of eight bytes of a value (System V ABI, AMD64 supplement, 3.2.3). SSEUP: in the same register."""

    NOTHING = "nothing"
    INTEGER = "integer"
    SSE = "sse"
    SSEUP = "sseup"
    X87 = "x87"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type as far as reading a value needs it.

    ``name`` is as in the source, typedefs kept; ``size`` and ``alignment`` are in bytes; ``passed`` the class of each
    eight bytes, or (MEMORY,) for a value that is passed on the stack, and returned where the caller says. A type that
    C++ passes by invisible reference is (INTEGER,), the address, and ``by_reference``.
    """

    kind: ValueKind
    name: str
    size: int
    passed: tuple[PassedAs, ...]
    alignment: int = 8
    by_reference: bool = False
    enumerators: dict[int, str] = field(default_factory=dict, hash=False, compare=False)


def merged(one: PassedAs, other: PassedAs) -> PassedAs:
    """The class of eight bytes that two fields share (3.2.3, "classification", rule 4)."""
    if other in (one, PassedAs.NOTHING):
        return one
    if one == PassedAs.NOTHING:
        return other
    if PassedAs.MEMORY in (one, other) or PassedAs.X87 in (one, other):
        return PassedAs.MEMORY
    return PassedAs.INTEGER if PassedAs.INTEGER in (one, other) else PassedAs.SSE
