"""How a run of instructions executes at another address: the recipe for a function's body (design: section 6).

A recipe depends on the bytes alone, never on where they lie: targets are distances from the first byte, and what has to
be filled in once the thunk's address is known is listed as fixups. Functions that begin with the same bytes share one.

What changes on the way:

- rip-relative operands get a new displacement; jumps and conditional jumps get 32 bits (flags are left alone by all
  of it);
- `loop`, `jrcxz` and their kin have 8-bit targets only: they hop over a short jump onto a long one;
- a jump to a displaced instruction goes to its copy; a jump to the function's own entry does too (it is a loop, not a
  call);
- a call is executed where it was, if there is room: the last four bytes of the original instruction become `call
  [rsp-8]`, and the body stores the target there, below rsp, where a call is about to write anyhow. The return address
  is then the original one, for unwinders and for hardware shadow stacks alike;
- other calls push their original successor and jump, because a return address in a thunk would be unknown to
  unwinders: `push imm32` writes the low half sign-extended, `mov dword [rsp+4], imm32` the high half. No register or
  flag is touched. Where shadow stacks are on such a function must not be hooked: its callee's return was announced by
  no call (PlanFlag.EMULATED_CALL). Or, if the caller of the planner vouches for unwind information of thunks, they
  are calls from the thunk (PlanFlag.REAL_CALL);
- a call of the very next instruction wants to know where it is, and its address is taken off the stack again. Shadow
  stacks leave such calls out (SDM vol. 2, CALL: a displacement of 0), so pushing is all there is to it.
"""

from __future__ import annotations

from shadowgraph.image.reasons import Reason
from shadowgraph.patch.decode import Kind, Step
from shadowgraph.patch.recipe import IN_PLACE_CALL, CallForm, Fixup, FixupKind, Recipe, Row
from shadowgraph.patch.sizes import JUMP_SIZE

__all__ = ["BRANCHES", "IN_PLACE_CALL", "JUMP_SIZE", "CallForm", "Fixup", "FixupKind", "Recipe", "Row", "relocate"]

_RETURN_ADDRESS_SIZE = 8
_FOUR = bytes(4)
# What ff /n does with its operand.
_CALL, _JMP, _PUSH = 2, 4, 6


def relocate(
    steps: list[Step], entry: int, overwritten: int = JUMP_SIZE, *, real_calls: bool = False
) -> Recipe | Reason:
    """The recipe for these instructions, or why there is none.

    ``entry`` is the function's first byte as a distance from the first step (0, or −4 where endbr64 stays in front);
    ``overwritten`` is how many of the original bytes will change; ``real_calls``: see above.
    """
    displaced = steps[-1].end
    if _reads_return_address(steps):
        return Reason.LOOKS_AT_RETURN_ADDRESS
    forms = {step.offset: _call_form(step, displaced, overwritten, real_calls) for step in steps if step.kind in _CALLS}
    places = _places(steps, forms)
    builder = _Builder()
    for step in steps:
        if step.kind in (Kind.BREAKPOINT, Kind.IMMOVABLE):
            return Reason.NOT_RELOCATABLE
        if step.kind not in BRANCHES and 0 < step.target < overwritten:
            # It calls, reads or names a byte that will be overwritten.
            return Reason.NOT_RELOCATABLE
        inside = 0 if step.target == entry else step.target
        if step.kind in _CALLS:
            form = forms[step.offset]
            if form is None:
                return Reason.NOT_RELOCATABLE
            builder.call(step, form)
        elif step.kind in BRANCHES and 0 <= inside < displaced:
            if inside not in places:
                return Reason.NOT_RELOCATABLE
            builder.branch(step, places[inside], internal=True)
        else:
            builder.add(step)
    if not (steps[-1].ends or forms.get(steps[-1].offset, CallForm.REAL) != CallForm.REAL):
        builder.row(displaced, starts=False)
        builder.emit(b"\xe9" + _FOUR, displaced)
    call = min((form for form in forms.values() if form is not None), default=None)
    return Recipe(displaced, bytes(builder.body), tuple(builder.fixups), tuple(builder.rows), call)


def _call_form(step: Step, displaced: int, overwritten: int, real_calls: bool) -> CallForm | None:
    """How a displaced call can be made; None if not at all: its successor would lie among overwritten bytes."""
    is_last = step.end == displaced
    if step.kind == Kind.CALL and step.target == step.end:
        return CallForm.OF_NEXT if is_last and step.end >= overwritten else None
    if is_last and step.end - len(IN_PLACE_CALL) >= overwritten:
        return CallForm.IN_PLACE
    if real_calls:
        return CallForm.REAL
    return CallForm.PUSHED if is_last and step.end >= overwritten else None


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


BRANCHES = (Kind.JUMP, Kind.CONDITIONAL, Kind.LOOP)
_CALLS = (Kind.CALL, Kind.CALL_INDIRECT)
_SIZES = {Kind.JUMP: 5, Kind.CONDITIONAL: 6}
# Beside the operand of the original call instruction; that of a direct call is written as numbers.
_CALL_SIZES = {
    (Kind.CALL, CallForm.IN_PLACE): 8 + 8 + 5,
    (Kind.CALL, CallForm.PUSHED): 5 + 8 + 5,
    (Kind.CALL, CallForm.REAL): 5,
    (Kind.CALL, CallForm.OF_NEXT): 5 + 8 + 5,
    (Kind.CALL_INDIRECT, CallForm.IN_PLACE): 5 + 5,
    (Kind.CALL_INDIRECT, CallForm.PUSHED): 5 + 8,
    (Kind.CALL_INDIRECT, CallForm.REAL): 0,
}


def _size(step: Step, form: CallForm | None) -> int:
    if form is not None:
        return _CALL_SIZES[step.kind, form] + (len(step.code) if step.kind == Kind.CALL_INDIRECT else 0)
    if step.kind == Kind.LOOP:
        return len(step.code) + 2 + 5
    return _SIZES.get(step.kind, len(step.code))


def _places(steps: list[Step], forms: dict[int, CallForm | None]) -> dict[int, int]:
    """Original offset of each instruction to the offset of its copy."""
    places = {}
    position = 0
    for step in steps:
        places[step.offset] = position
        position += _size(step, forms.get(step.offset))
    return places


class _Builder:
    def __init__(self) -> None:
        self.body = bytearray()
        self.fixups: list[Fixup] = []
        self.rows: list[Row] = []

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
        else:
            self.branch(step, step.target, internal=False)

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

    def call(self, step: Step, form: CallForm) -> None:
        """Append a call in one of its forms."""
        self.row(step.offset)
        if form == CallForm.IN_PLACE:
            self._store_target(step)
            self.emit(b"\xe9" + _FOUR, step.end - len(IN_PLACE_CALL))
        elif form in (CallForm.PUSHED, CallForm.OF_NEXT):
            self.emit(b"\x68" + _FOUR, step.end, FixupKind.LOW)
            self.row(step.offset, _RETURN_ADDRESS_SIZE, starts=False)
            self.emit(b"\xc7\x44\x24\x04" + _FOUR, step.end, FixupKind.HIGH)
            self.row(step.offset, _RETURN_ADDRESS_SIZE, starts=False)
            self._by_operand(step, _JMP)
        else:
            self._by_operand(step, _CALL)

    def _store_target(self, step: Step) -> None:
        """Write the call's target to [rsp-8]."""
        if step.kind == Kind.CALL:
            self.emit(b"\xc7\x44\x24\xf8" + _FOUR, step.target, FixupKind.LOW)
            self.row(step.offset, starts=False)
            self.emit(b"\xc7\x44\x24\xfc" + _FOUR, step.target, FixupKind.HIGH)
            self.row(step.offset, starts=False)
            return
        # Through the stack, whatever the operand is; lea leaves the flags alone.
        self._by_operand(step, _PUSH)
        self.row(step.offset, _RETURN_ADDRESS_SIZE, starts=False)
        self.body += b"\x48\x8d\x64\x24\x08"
        self.row(step.offset, starts=False)

    def _by_operand(self, step: Step, extension: int) -> None:
        """Append ff /extension for the operand of an indirect call; for a direct one, e8 or e9."""
        if step.kind == Kind.CALL:
            self.emit((b"\xe8" if extension == _CALL else b"\xe9") + _FOUR, step.target)
            return
        code = bytearray(step.code)
        code[step.modrm] = (code[step.modrm] & 0xC7) | extension << 3
        if step.field < 0:
            self.body += code
        else:
            self.emit(bytes(code), step.target, field=step.field)
