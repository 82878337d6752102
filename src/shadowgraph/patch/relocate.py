"""How a run of instructions executes at another address: the recipe for a function's body (design: section 6).

A recipe depends on the bytes alone, never on where they lie: targets are distances from the first byte, and what has to
be filled in once the thunk's address is known is listed as fixups. Functions that begin with the same bytes share one.

What changes on the way:

- rip-relative operands get a new displacement; jumps and conditional jumps get 32 bits (flags are left alone by all
  of it);
- `loop`, `jrcxz` and their kin have 8-bit targets only: they hop over a short jump onto a long one;
- a jump to a displaced instruction goes to its copy; a jump to the function's own entry does too (it is a loop, not a
  call);
- a call pushes its original successor and jumps, because a return address in a thunk would be unknown to unwinders,
  and gets by without a register or flag: `push imm32` writes the low half sign-extended, `mov dword [rsp+4], imm32`
  the high half. Its successor must not lie within the overwritten bytes, so a call that is followed by less than that
  is refused. On hardware with shadow stacks enabled such a function must not be hooked: its callee's return was
  announced by no call (flag EMULATED_CALL of the plan).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.decode import Kind, Step

__all__ = ["JUMP_SIZE", "Fixup", "FixupKind", "Recipe", "Row", "relocate"]

JUMP_SIZE = 5
_RETURN_ADDRESS_SIZE = 8
_FOUR = bytes(4)


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
    """The body for ``displaced`` bytes of original code, its last jump back included."""

    displaced: int
    body: bytes
    fixups: tuple[Fixup, ...]
    rows: tuple[Row, ...]
    emulates_call: bool

    def has_instruction_at(self, original: int) -> bool:
        """Whether one of the displaced instructions begins so many bytes behind the first."""
        return any(row.starts and row.original == original for row in self.rows)

    def copy_of(self, original: int) -> int:
        """Where in the body the displaced instruction goes on that begins so many bytes behind the first."""
        return next(row.body for row in self.rows if row.starts and row.original == original)


def relocate(steps: list[Step], entry: int, overwritten: int = JUMP_SIZE) -> Recipe | Reason:
    """The recipe for these instructions, or why there is none.

    ``entry`` is the function's first byte as a distance from the first step (0, or −4 where endbr64 stays in front);
    ``overwritten`` is how many of the original bytes will change.
    """
    displaced = steps[-1].end
    if _reads_return_address(steps):
        return Reason.LOOKS_AT_RETURN_ADDRESS
    places = _places(steps)
    builder = _Builder()
    for step in steps:
        if step.kind in (Kind.BREAKPOINT, Kind.IMMOVABLE):
            return Reason.NOT_RELOCATABLE
        if step.kind in (Kind.CALL, Kind.CALL_INDIRECT) and step.end < max(overwritten, displaced):
            return Reason.NOT_RELOCATABLE
        if step.kind not in _BRANCHES and 0 < step.target < overwritten:
            # It calls, reads or names a byte that will be overwritten.
            return Reason.NOT_RELOCATABLE
        inside = 0 if step.target == entry else step.target
        if step.kind in _BRANCHES and 0 <= inside < displaced:
            if inside not in places:
                return Reason.NOT_RELOCATABLE
            builder.branch(step, places[inside], internal=True)
        else:
            builder.add(step)
    last = steps[-1]
    if not (last.ends or last.kind in (Kind.CALL, Kind.CALL_INDIRECT)):
        builder.row(displaced, starts=False)
        builder.emit(b"\xe9" + _FOUR, displaced)
    return Recipe(displaced, bytes(builder.body), tuple(builder.fixups), tuple(builder.rows), builder.emulates_call)


def _reads_return_address(steps: list[Step]) -> bool:
    """Whether one of them loads or pops the top of the stack while that is the return address."""
    depth = 0
    for step in steps:
        if step.reads_top and depth == 0:
            return True
        if step.stack is None or step.ends:
            return False
        depth += step.stack
    return False


_BRANCHES = (Kind.JUMP, Kind.CONDITIONAL, Kind.LOOP)
_SIZES = {Kind.JUMP: 5, Kind.CONDITIONAL: 6, Kind.CALL: 5 + 8 + 5}


def _size(step: Step) -> int:
    if step.kind == Kind.LOOP:
        return len(step.code) + 2 + 5
    if step.kind == Kind.CALL_INDIRECT:
        return len(step.code) + 5 + 8
    return _SIZES.get(step.kind, len(step.code))


def _places(steps: list[Step]) -> dict[int, int]:
    """Original offset of each instruction to the offset of its copy."""
    places = {}
    position = 0
    for step in steps:
        places[step.offset] = position
        position += _size(step)
    return places


class _Builder:
    def __init__(self) -> None:
        self.body = bytearray()
        self.fixups: list[Fixup] = []
        self.rows: list[Row] = []
        self.emulates_call = False

    def row(self, original: int, pushed: int = 0, starts: bool = True) -> None:
        self.rows.append(Row(len(self.body), original, pushed, starts))

    def emit(self, code: bytes, target: int, kind: FixupKind = FixupKind.RELATIVE, field: int = -4) -> None:
        """Append one instruction with a fixup at ``field`` (from its end where negative)."""
        start = len(self.body)
        self.body += code
        place = start + field if field >= 0 else len(self.body) + field
        self.fixups.append(Fixup(place, len(self.body), target, kind))

    def add(self, step: Step) -> None:
        if step.kind in (Kind.PLAIN, Kind.JUMP_INDIRECT):
            self.row(step.offset)
            self.body += step.code
        elif step.kind in (Kind.RIP_RELATIVE, Kind.TRANSACTION):
            self.row(step.offset)
            self.emit(step.code, step.target, field=step.field)
        elif step.kind in _BRANCHES:
            self.branch(step, step.target, internal=False)
        else:
            self.call(step)

    def branch(self, step: Step, target: int, *, internal: bool) -> None:
        """Append a branch with a 32-bit target: a place in the body if ``internal``, else a distance as in the step."""
        self.row(step.offset)
        if step.kind == Kind.JUMP:
            code = b"\xe9"
        elif step.kind == Kind.CONDITIONAL:
            # The condition is the low half of the opcode: 0f 8x disp32, or 7x disp8 (0f is no prefix, so it tells
            # them apart).
            opcode = step.code[-5] if step.code[-6:-5] == b"\x0f" else step.code[-2]
            code = bytes((0x0F, 0x80 | (opcode & 15)))
        else:
            self.body += step.code[:-1] + b"\x02"
            self.row(step.end, starts=False)
            self.body += b"\xeb\x05"
            self.row(step.target, starts=False)
            code = b"\xe9"
        if internal:
            end = len(self.body) + len(code) + 4
            self.body += code + (target - end).to_bytes(4, "little", signed=True)
        else:
            self.emit(code + _FOUR, target)

    def call(self, step: Step) -> None:
        self.emulates_call = True
        self.row(step.offset)
        self.emit(b"\x68" + _FOUR, step.end, FixupKind.LOW)
        self.row(step.offset, _RETURN_ADDRESS_SIZE, starts=False)
        self.emit(b"\xc7\x44\x24\x04" + _FOUR, step.end, FixupKind.HIGH)
        self.row(step.offset, _RETURN_ADDRESS_SIZE, starts=False)
        if step.kind == Kind.CALL:
            self.emit(b"\xe9" + _FOUR, step.target)
            return
        # ff /2 is the call, ff /4 the jump through the same operand.
        code = bytearray(step.code)
        code[step.modrm] = (code[step.modrm] & 0xC7) | 0x20
        if step.field < 0:
            self.body += code
        else:
            self.emit(bytes(code), step.target, field=step.field)
