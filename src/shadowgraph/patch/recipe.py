"""What is to be executed elsewhere of a function: see relocate.py, which makes recipes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["IN_PLACE_CALL", "CallForm", "Fixup", "FixupKind", "Recipe", "Row"]

IN_PLACE_CALL = b"\xff\x54\x24\xf8"  # call [rsp-8]


class CallForm(IntEnum):
    """How a displaced call is made: from its place, by pushing and jumping, from the thunk.

    OF_NEXT is a call of the very next instruction: see relocate.py.
    """

    IN_PLACE = 0
    PUSHED = 1
    REAL = 2
    OF_NEXT = 3


class FixupKind(IntEnum):
    """What is written into the four bytes of a fixup: see :class:`Fixup`."""

    RELATIVE = 0
    LOW = 1
    HIGH = 2


@dataclass(frozen=True, slots=True)
class Fixup:
    """Four bytes of the body to be filled in.

    ``field`` and ``end`` are offsets in the body: where the bytes lie and where their instruction ends. ``target`` is
    an address, as a distance from the first displaced byte. RELATIVE: target − end; LOW, HIGH: halves of the target's
    address.
    """

    field: int
    end: int
    target: int
    kind: FixupKind


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction of the body: a thread standing at body offset ``body`` stands, in truth, at ``original``.

    ``pushed`` bytes of a displaced call's return address are on the stack already. ``starts`` marks the place where a
    thread that stands at the original instruction may go on.
    """

    body: int
    original: int
    pushed: int
    starts: bool


@dataclass(frozen=True, slots=True)
class Recipe:
    """The body for ``displaced`` bytes of original code, its last jump back included.

    ``call`` is the form of the call among them, or None; one IN_PLACE needs IN_PLACE_CALL as the last of these bytes.
    """

    displaced: int
    body: bytes
    fixups: tuple[Fixup, ...]
    rows: tuple[Row, ...]
    call: CallForm | None

    def has_instruction_at(self, original: int) -> bool:
        """Whether one of the displaced instructions begins so many bytes behind the first."""
        return any(row.starts and row.original == original for row in self.rows)

    def copy_of(self, original: int) -> int:
        """Where in the body the displaced instruction goes on that begins so many bytes behind the first."""
        return next(row.body for row in self.rows if row.starts and row.original == original)
