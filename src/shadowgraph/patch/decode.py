"""Instructions as the rest of this package sees them. Only this module knows the decoder (iced-x86), loaded when used.

Code is decoded as if it began at address 0, so every target comes out as a distance from the first byte. What is
learned about a run of bytes then holds wherever these bytes lie, and may be remembered by the bytes alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import iced_x86

__all__ = [
    "INVALID_LENGTH",
    "LONGEST_INSTRUCTION",
    "Kind",
    "Step",
    "decode_steps",
    "instruction_lengths",
    "uses_red_zone",
]

# Intel SDM vol. 2, 2.3.11.
LONGEST_INSTRUCTION = 15
# What instruction_lengths() gives where no instruction begins.
INVALID_LENGTH = LONGEST_INSTRUCTION + 1
_LEGACY_PREFIXES = b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3"
_OPERAND_SIZE = 0x66


class Kind(IntEnum):
    """How an instruction depends on its own address, which decides how it is moved."""

    PLAIN = 0
    RIP_RELATIVE = 1
    JUMP = 2
    CONDITIONAL = 3
    LOOP = 4
    CALL = 5
    CALL_INDIRECT = 6
    TRANSACTION = 7
    JUMP_INDIRECT = 8
    BREAKPOINT = 9
    IMMOVABLE = 10


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a decoded run.

    ``offset`` and ``target`` are in bytes from the start of the run. ``target`` is where a direct branch goes or what a
    rip-relative operand names; ``field`` is where the four displacement bytes lie within the instruction (−1: none),
    and ``modrm`` where the ModRM byte of an indirect call does. ``ends`` is set where the next instruction is not
    reached by falling through. ``stack`` is by how much rsp changes, None where the instruction alone does not tell.
    ``reads_top`` is set where the eight bytes on top of the stack are loaded or popped.
    """

    offset: int
    code: bytes
    kind: Kind
    target: int = 0
    field: int = -1
    ends: bool = False
    stack: int | None = 0
    reads_top: bool = False
    modrm: int = -1

    @property
    def end(self) -> int:
        """Where the next instruction begins."""
        return self.offset + len(self.code)


@cache
def _library() -> Any:
    import iced_x86

    return iced_x86


def decode_steps(code: bytes, at_least: int) -> list[Step] | None:
    """Whole instructions from the start of ``code`` until they cover ``at_least`` bytes or ``code`` ends.

    None if some of these bytes are no instruction, or if the last one runs past the end of ``code``.
    """
    decoder = _library().Decoder(64, code, ip=0)
    steps = []
    position = 0
    while position < at_least and position < len(code):
        instruction = decoder.decode()
        if not instruction:
            return None
        steps.append(_step(decoder, instruction, code[position : position + len(instruction)], position))
        position += len(instruction)
    return steps


def instruction_lengths(code: bytes) -> list[int]:
    """Lengths of the instructions of ``code`` in a row; INVALID_LENGTH for bytes that are none, and then a guess."""
    return [len(instruction) if instruction else INVALID_LENGTH for instruction in _library().Decoder(64, code, ip=0)]


def uses_red_zone(code: bytes) -> bool:
    """Whether any instruction of ``code`` names memory below rsp."""
    rsp = _library().Register.RSP
    return any(
        instruction.memory_base == rsp and instruction.memory_displacement >> 63
        for instruction in _library().Decoder(64, code, ip=0)
    )


def _step(decoder: iced_x86.Decoder, instruction: iced_x86.Instruction, code: bytes, offset: int) -> Step:
    x86 = _library()
    flow, flows = instruction.flow_control, x86.FlowControl
    ends = flow in (flows.RETURN, flows.INDIRECT_BRANCH, flows.EXCEPTION)
    if flow == flows.INDIRECT_CALL:
        return _indirect_call(decoder, instruction, code, offset)
    if instruction.code in (x86.Code.INT3, x86.Code.INT1):
        return Step(offset, code, Kind.BREAKPOINT)
    if instruction.is_jmp_far_indirect or instruction.code == x86.Code.XBEGIN_REL16:
        return Step(offset, code, Kind.IMMOVABLE, ends=ends)
    if instruction.code == x86.Code.XBEGIN_REL32:
        return Step(offset, code, Kind.TRANSACTION, _signed(instruction.near_branch_target), len(code) - 4)
    # For the decoder a system call is a call as well; here it is an instruction like others.
    is_call = instruction.is_call_near or instruction.is_call_far
    if flow in (flows.UNCONDITIONAL_BRANCH, flows.CONDITIONAL_BRANCH) or is_call:
        return _direct_branch(instruction, code, offset)
    stack, reads_top = (0, False) if ends else _stack_use(instruction)
    if instruction.is_ip_rel_memory_operand:
        field = _displacement_field(decoder, instruction)
        kind = Kind.IMMOVABLE if field < 0 else Kind.RIP_RELATIVE
        return Step(offset, code, kind, _signed(instruction.ip_rel_memory_address), field, ends, stack)
    kind = Kind.JUMP_INDIRECT if flow == flows.INDIRECT_BRANCH else Kind.PLAIN
    return Step(offset, code, kind, ends=ends, stack=stack, reads_top=reads_top)


def _direct_branch(instruction: iced_x86.Instruction, code: bytes, offset: int) -> Step:
    # An operand-size prefix is ignored by Intel and truncates rip on AMD: no compiler emits it, nobody moves it.
    if instruction.op0_kind != _library().OpKind.NEAR_BRANCH64 or _OPERAND_SIZE in _prefixes(code):
        return Step(offset, code, Kind.IMMOVABLE)
    target = _signed(instruction.near_branch_target)
    if instruction.is_jcc_short_or_near:
        return Step(offset, code, Kind.CONDITIONAL, target)
    if instruction.is_jmp_short_or_near:
        return Step(offset, code, Kind.JUMP, target, ends=True)
    if instruction.is_call_near:
        return Step(offset, code, Kind.CALL, target)
    if instruction.is_jcx_short or instruction.is_loop or instruction.is_loopcc:
        return Step(offset, code, Kind.LOOP, target)
    return Step(offset, code, Kind.IMMOVABLE)


def _indirect_call(decoder: iced_x86.Decoder, instruction: iced_x86.Instruction, code: bytes, offset: int) -> Step:
    x86 = _library()
    uses_rsp = x86.Register.RSP in (instruction.op0_register, instruction.memory_base)
    if instruction.code != x86.Code.CALL_RM64 or uses_rsp or _OPERAND_SIZE in _prefixes(code):
        return Step(offset, code, Kind.IMMOVABLE)
    # It is [prefixes] ff /2, and no prefix is ff.
    modrm = code.index(0xFF) + 1
    if not instruction.is_ip_rel_memory_operand:
        return Step(offset, code, Kind.CALL_INDIRECT, modrm=modrm)
    field = _displacement_field(decoder, instruction)
    if field < 0:
        return Step(offset, code, Kind.IMMOVABLE)
    return Step(offset, code, Kind.CALL_INDIRECT, _signed(instruction.ip_rel_memory_address), field, modrm=modrm)


def _displacement_field(decoder: iced_x86.Decoder, instruction: iced_x86.Instruction) -> int:
    """Where the displacement of a rip-relative operand lies; −1 for eip-relative ones, which wrap at 4 GiB."""
    constants = decoder.get_constant_offsets(instruction)
    if instruction.memory_base != _library().Register.RIP or constants.displacement_size != 4:
        return -1
    return int(constants.displacement_offset)


def _stack_use(instruction: iced_x86.Instruction) -> tuple[int | None, bool]:
    """By how much rsp changes (None: unknown), and whether the top of the stack is read."""
    x86 = _library()
    names, registers = x86.Mnemonic, x86.Register
    mnemonic = instruction.mnemonic
    on_top = instruction.memory_base == registers.RSP and not (
        instruction.memory_displacement or instruction.memory_index
    )
    loads = mnemonic in (names.PUSH, names.XCHG) or (
        mnemonic == names.MOV and instruction.op1_kind == x86.OpKind.MEMORY
    )
    if instruction.is_stack_instruction:
        change = int(instruction.stack_pointer_increment)
        unknown = mnemonic in (names.ENTER, names.LEAVE) or (change > 0 and instruction.op0_register == registers.RSP)
        return (None if unknown else change), (on_top and loads) or (change > 0 and mnemonic != names.LEAVE)
    if instruction.op0_register not in (registers.RSP, registers.ESP, registers.SP):
        return 0, on_top and loads
    return _stack_arithmetic(instruction), False


def _stack_arithmetic(instruction: iced_x86.Instruction) -> int | None:
    """By how much an instruction whose first operand is rsp changes it."""
    x86 = _library()
    mnemonic = instruction.mnemonic
    if mnemonic in (x86.Mnemonic.CMP, x86.Mnemonic.TEST):
        return 0
    by_constant = instruction.op1_kind in (x86.OpKind.IMMEDIATE8TO64, x86.OpKind.IMMEDIATE32TO64)
    if by_constant and mnemonic in (x86.Mnemonic.ADD, x86.Mnemonic.SUB):
        amount = _signed(instruction.immediate(1))
        return amount if mnemonic == x86.Mnemonic.ADD else -amount
    from_itself = instruction.memory_base == x86.Register.RSP and not instruction.memory_index
    if mnemonic == x86.Mnemonic.LEA and from_itself:
        return _signed(instruction.memory_displacement)
    return None


def _prefixes(code: bytes) -> bytes:
    """The legacy prefixes that an instruction begins with."""
    return code[: len(code) - len(code.lstrip(_LEGACY_PREFIXES))]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
