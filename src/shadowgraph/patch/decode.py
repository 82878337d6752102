"""Instructions as the rest of this package sees them. The only module that knows the decoder (iced-x86), loaded when used.

Code is decoded as if it began at address 0, so every target comes out as a distance from the first byte. What is learned
about a run of bytes then holds wherever these bytes lie, and may be remembered by the bytes alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import iced_x86

__all__ = ["INVALID_LENGTH", "Kind", "Step", "decode_steps", "instruction_lengths"]

# What instruction_lengths() gives for bytes that are no instruction; the longest instruction has 15 bytes (SDM vol. 2, 2.3.11).
INVALID_LENGTH = 16


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
    BREAKPOINT = 8
    IMMOVABLE = 9


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a decoded run.

    ``offset`` and ``target`` are in bytes from the start of the run. ``target`` is where a direct branch goes or what a
    rip-relative operand names; ``field`` is where the four displacement bytes lie within the instruction (-1: none).
    ``ends`` is set where the next instruction is not reached by falling through. ``stack`` is by how much rsp changes,
    None where that cannot be told from the instruction alone. ``reads_slot`` is set where the eight bytes on top of the
    stack are read, popped, or their address is taken: [rsp] as an operand or a pop.
    """

    offset: int
    code: bytes
    kind: Kind
    target: int = 0
    field: int = -1
    ends: bool = False
    stack: int | None = 0
    reads_slot: bool = False
    # For CALL_INDIRECT: where the ModRM byte lies within the instruction.
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
    """Lengths of the instructions of ``code`` in a row; a byte that starts none counts as INVALID_LENGTH and is stepped over."""
    return [len(instruction) if instruction else INVALID_LENGTH for instruction in _library().Decoder(64, code, ip=0)]


def _step(decoder: iced_x86.Decoder, instruction: iced_x86.Instruction, code: bytes, offset: int) -> Step:
    x86 = _library()
    flow = instruction.flow_control
    flows = x86.FlowControl
    stack, reads_slot = _stack_use(instruction)
    if instruction.is_ip_rel_memory_operand and flow != flows.INDIRECT_CALL:
        return _rip_relative(decoder, instruction, code, offset, flow == flows.INDIRECT_BRANCH)
    if flow == flows.NEXT:
        return Step(offset, code, Kind.PLAIN, stack=stack, reads_slot=reads_slot)
    if flow in (flows.RETURN, flows.INDIRECT_BRANCH, flows.EXCEPTION):
        far = instruction.is_jmp_far_indirect
        return Step(
            offset,
            code,
            Kind.IMMOVABLE if far else Kind.PLAIN,
            ends=True,
            reads_slot=flow != flows.RETURN and reads_slot,
        )
    if flow == flows.INDIRECT_CALL:
        return _indirect_call(decoder, instruction, code, offset)
    if flow == flows.INTERRUPT:
        breakpoint_ = instruction.code in (x86.Code.INT3, x86.Code.INT1)
        return Step(offset, code, Kind.BREAKPOINT if breakpoint_ else Kind.PLAIN, stack=stack)
    if flow == flows.XBEGIN_XABORT_XEND:
        if instruction.code == x86.Code.XBEGIN_REL32:
            return Step(
                offset, code, Kind.TRANSACTION, target=_signed(instruction.near_branch_target), field=len(code) - 4
            )
        return Step(offset, code, Kind.IMMOVABLE if code[-4:-2] == b"\xc7\xf8" else Kind.PLAIN)
    return _direct_branch(instruction, code, offset)


def _direct_branch(instruction: iced_x86.Instruction, code: bytes, offset: int) -> Step:
    # With an operand-size prefix Intel ignores it and AMD truncates rip: nobody's compiler emits that, nobody moves it.
    if instruction.op0_kind != _library().OpKind.NEAR_BRANCH64:
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


def _rip_relative(
    decoder: iced_x86.Decoder, instruction: iced_x86.Instruction, code: bytes, offset: int, ends: bool
) -> Step:
    field = _displacement_field(decoder, instruction)
    if field < 0 or instruction.is_jmp_far_indirect:
        return Step(offset, code, Kind.IMMOVABLE)
    stack, _ = _stack_use(instruction)
    target = _signed(instruction.ip_rel_memory_address)
    return Step(offset, code, Kind.RIP_RELATIVE, target, field, ends=ends, stack=stack)


def _indirect_call(decoder: iced_x86.Decoder, instruction: iced_x86.Instruction, code: bytes, offset: int) -> Step:
    x86 = _library()
    rsp = x86.Register.RSP
    uses_rsp = instruction.op0_register == rsp or instruction.memory_base == rsp
    if instruction.code != x86.Code.CALL_RM64 or uses_rsp:
        return Step(offset, code, Kind.IMMOVABLE)
    # CALL_RM64 is [prefixes] ff /2: prefixes are below 0x70, or 3e/f2/f3, so the first ff is the opcode.
    modrm = code.index(0xFF) + 1
    if not instruction.is_ip_rel_memory_operand:
        return Step(offset, code, Kind.CALL_INDIRECT, modrm=modrm)
    field = _displacement_field(decoder, instruction)
    if field < 0:
        return Step(offset, code, Kind.IMMOVABLE)
    return Step(offset, code, Kind.CALL_INDIRECT, _signed(instruction.ip_rel_memory_address), field, modrm=modrm)


def _displacement_field(decoder: iced_x86.Decoder, instruction: iced_x86.Instruction) -> int:
    """Where the displacement of a rip-relative operand lies; -1 for eip-relative ones, which wrap at 4 GiB."""
    constants = decoder.get_constant_offsets(instruction)
    if instruction.memory_base != _library().Register.RIP or constants.displacement_size != 4:
        return -1
    return int(constants.displacement_offset)


def _stack_use(instruction: iced_x86.Instruction) -> tuple[int | None, bool]:
    """By how much rsp changes (None: unknown), and whether the top of the stack is read or its address taken."""
    x86 = _library()
    rsp = (x86.Register.RSP, x86.Register.ESP, x86.Register.SP)
    reads_slot = (
        instruction.memory_base in rsp and instruction.memory_displacement == 0 and instruction.memory_index == 0
    )
    if instruction.is_stack_instruction:
        change = int(instruction.stack_pointer_increment)
        mnemonics = (x86.Mnemonic.ENTER, x86.Mnemonic.LEAVE)
        pops_rsp = change > 0 and instruction.op0_register in rsp
        unknown = instruction.mnemonic in mnemonics or pops_rsp
        return (None if unknown else change), reads_slot or (change > 0 and instruction.mnemonic != x86.Mnemonic.LEAVE)
    if instruction.op0_register not in rsp or instruction.mnemonic in (x86.Mnemonic.CMP, x86.Mnemonic.TEST):
        return 0, reads_slot
    by_constant = instruction.op_count == 2 and instruction.op1_kind in (
        x86.OpKind.IMMEDIATE8TO64,
        x86.OpKind.IMMEDIATE32TO64,
    )
    if by_constant and instruction.mnemonic == x86.Mnemonic.SUB:
        return -_signed(instruction.immediate(1)), reads_slot
    if by_constant and instruction.mnemonic == x86.Mnemonic.ADD:
        return _signed(instruction.immediate(1)), reads_slot
    if (
        instruction.mnemonic == x86.Mnemonic.LEA
        and instruction.memory_base == x86.Register.RSP
        and not instruction.memory_index
    ):
        return _signed(instruction.memory_displacement), False
    return None, reads_slot


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
