"""What the instructions of a compiled handler do: which members of its call they read, and whether they are frugal.

A frugal handler calls nothing and changes no register but five, so that an agent need save no others for it, nor leave
its paths in assembly (native/agent/frugal.h). What is not understood counts as the worst there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from shadowgraph.agent import layout
from shadowgraph.image import Image, image_from_bytes
from shadowgraph.ops.handler_object import HandlerObject

if TYPE_CHECKING:
    import iced_x86

__all__ = ["HandlerCode", "PairCode", "look_at_handler", "look_at_pair"]

# struct sg_call (include/shadowgraph/ops.h): where its members begin, and which of them frugal handlers are told.
_MEMBERS = {
    **{"function": 0, "arguments": 8, "stack": 16, "vectors": 24, "result": 32, "result_high": 40},
    **{"return_address": 48, "data": 56, "data_size": 64, "time": 72, "duration": 80, "thread": 88, "process": 92},
    **{"emit": 96, "user": 104, "instance": 112, "instance_size": 120},
}
_CALL_SIZE = 128
_TOLD = frozenset(
    (
        *("function", "arguments", "stack", "result", "result_high", "return_address", "data", "data_size"),
        *("time", "duration", "thread", "process"),
    )
)
_CHANGED = ("RAX", "RCX", "RDX", "RSI", "RDI", "RSP")
_KEPT = ("RBX", "RBP", "R12", "R13", "R14", "R15")  # a push or pop of these only saves what is the caller's
_MOST_INSTRUCTIONS = 10_000

# What compilers make of C without vectors; besides these, conditional jumps, moves and sets. None of them changes more
# than the registers that it names and the flags of arithmetic, or depends on other flags than those.
_COMMON = frozenset(
    (
        *(
            "MOV",
            "MOVZX",
            "MOVSX",
            "MOVSXD",
            "LEA",
            "PUSH",
            "POP",
            "XCHG",
            "BSWAP",
            "CMPXCHG",
            "XADD",
            "NOP",
            "ENDBR64",
        ),
        *("ADD", "ADC", "SUB", "SBB", "INC", "DEC", "NEG", "CMP", "TEST", "AND", "OR", "XOR", "NOT", "IMUL", "MUL"),
        *("DIV", "IDIV", "CBW", "CWDE", "CDQE", "CWD", "CDQ", "CQO", "SHL", "SHR", "SAL", "SAR", "ROL", "ROR", "SHLD"),
        *("SHRD", "BT", "BTS", "BTR", "BTC", "BSF", "BSR", "TZCNT", "LZCNT", "POPCNT", "JMP", "RET", "UD2", "CALL"),
        *("PAUSE", "LFENCE", "MFENCE", "SFENCE", "RDTSC"),
    )
)
_CONDITIONAL = ("J", "SET", "CMOV")


@dataclass(frozen=True, slots=True)
class HandlerCode:
    """What is known of a handler: the members of struct sg_call that it may read, and whether it is frugal."""

    reads: frozenset[str]
    is_frugal: bool


_NONE = HandlerCode(frozenset(), True)
_UNKNOWN = HandlerCode(frozenset(_MEMBERS), False)
_TIMES = frozenset(("time", "duration"))
_DATA = frozenset(("data", "data_size"))


@dataclass(frozen=True, slots=True)
class PairCode:
    """What is known of the handlers of an ops."""

    entry: HandlerCode
    exit: HandlerCode

    @property
    def is_frugal(self) -> bool:
        """Whether both are."""
        return self.entry.is_frugal and self.exit.is_frugal

    @property
    def time_is_told(self) -> bool:
        """Whether the entry handler asks for the time."""
        return "time" in self.entry.reads

    @property
    def start_is_timed(self) -> bool:
        """Whether the exit handler asks when the call was entered, or how long it took."""
        return not self.exit.reads.isdisjoint(_TIMES)

    @property
    def end_is_timed(self) -> bool:
        """Whether the exit handler asks how long the call took."""
        return "duration" in self.exit.reads

    @property
    def keeps_data(self) -> bool:
        """Whether one of them looks for what the ops keeps of a call."""
        return not (self.entry.reads | self.exit.reads).isdisjoint(_DATA)

    @property
    def flags(self) -> int:
        """Those of struct sg_user. What is kept has its place from the entry on."""
        entry, exit = bool(self.entry.reads) or self.keeps_data, bool(self.exit.reads)
        return entry * layout.USER_ENTRY_LOOKS | exit * layout.USER_EXIT_LOOKS


def look_at_pair(handlers: HandlerObject, *, see_time: bool = True, is_known: bool = True) -> PairCode:
    """Look at the handlers of an object.

    ``see_time``: they do not compile without the members that tell time; ``is_known``: nothing but what is in the
    object decides what they do.
    """
    image = image_from_bytes(handlers.content, handlers.name)

    def looked_at(address: int | None) -> HandlerCode:
        if address is None:
            return _NONE
        found = look_at_handler(image, address) if is_known else _UNKNOWN
        return found if see_time else replace(found, reads=found.reads - _TIMES)

    return PairCode(looked_at(handlers.entry), looked_at(handlers.exit))


def look_at_handler(image: Image, address: int) -> HandlerCode:
    """Follow the instructions of the handler at an image address to all its ends."""
    code = list(_reached(image, address))
    if not code or None in code:
        return _UNKNOWN
    instructions = [instruction for instruction in code if instruction is not None]
    reads = _members_read(instructions)
    if reads is None:
        return _UNKNOWN
    return HandlerCode(reads, reads <= _TOLD and all(map(_is_frugal, instructions)))


@cache
def _library() -> Any:
    import iced_x86

    return iced_x86


@cache
def _mnemonic(number: int) -> str:
    names = _library().Mnemonic.__dict__
    return next((name for name, value in names.items() if value == number), "")


def _register(number: int) -> str:
    """The name of the whole register that a register is part of."""
    return _register_names().get(_library().RegisterExt.full_register(number), "")


@cache
def _register_names() -> dict[int, str]:
    return {value: name for name, value in _library().Register.__dict__.items() if isinstance(value, int)}


def _reached(image: Image, address: int) -> Iterator[iced_x86.Instruction | None]:
    """All instructions that can follow from one; None for what cannot be followed."""
    x86 = _library()
    flows = x86.FlowControl
    waiting, seen = [address], set()
    while waiting:
        at = waiting.pop()
        if at in seen:
            continue
        seen.add(at)
        instruction = x86.Decoder(64, image.rest_of_segment(at)[:15].tobytes(), ip=at).decode()
        flow = instruction.flow_control if instruction else None
        if instruction.is_invalid or flow is None or len(seen) > _MOST_INSTRUCTIONS:
            yield None
            return
        yield instruction
        if flow in (flows.CONDITIONAL_BRANCH, flows.UNCONDITIONAL_BRANCH):
            waiting.append(instruction.near_branch_target)
        if flow in (flows.NEXT, flows.CONDITIONAL_BRANCH, flows.INDIRECT_CALL):
            waiting.append(instruction.next_ip)
        elif flow not in (flows.UNCONDITIONAL_BRANCH, flows.INDIRECT_BRANCH, flows.RETURN, flows.EXCEPTION):
            yield None  # a call of another function, which may be given the call to look at
            return


def _uses(instruction: iced_x86.Instruction) -> Any:
    return _library().InstructionInfoFactory().info(instruction)


def _is_frugal(instruction: iced_x86.Instruction) -> bool:
    x86 = _library()
    name = _mnemonic(instruction.mnemonic)
    if name not in _COMMON and not name.startswith(_CONDITIONAL):
        return False
    if name == "CALL" or (name == "RET" and instruction.op_count) or instruction.has_rep_prefix:
        return False
    only_looks = (x86.OpAccess.NONE, x86.OpAccess.READ, x86.OpAccess.COND_READ, x86.OpAccess.NO_MEM_ACCESS)
    changed = {_register(use.register) for use in _uses(instruction).used_registers() if use.access not in only_looks}
    return changed <= set(_CHANGED)


def _members_read(instructions: list[iced_x86.Instruction]) -> frozenset[str] | None:
    """The members read by way of rdi, which points to the call, and of its copies. None: the pointer may get away."""
    pointers = _pointers(instructions)
    found: set[str] = set()
    for instruction in instructions:
        members = _members_read_by(instruction, pointers)
        if members is None:
            return None
        found |= members
    return frozenset(found)


def _pointers(instructions: list[iced_x86.Instruction]) -> set[str]:
    """The registers that may hold the pointer at some time."""
    pointers, before = {"RDI"}, 0
    copies = [instruction for instruction in instructions if _is_copy(instruction)]
    while len(pointers) > before:
        before = len(pointers)
        pointers |= {_register(copy.op0_register) for copy in copies if _register(copy.op1_register) in pointers}
    return pointers


def _members_read_by(instruction: iced_x86.Instruction, pointers: set[str]) -> set[str] | None:
    """The members that an instruction reads if those registers hold the pointer; None if it does more with one."""
    x86 = _library()
    if instruction.is_string_instruction:
        return None
    uses = _uses(instruction)
    for number in range(instruction.op_count):
        if instruction.op_kind(number) == x86.OpKind.REGISTER and _gives_away(instruction, uses, number, pointers):
            return None
    if _register(instruction.memory_index) in pointers:
        return None
    if _register(instruction.memory_base) not in pointers:
        return None if _leads_anywhere(instruction) else set()
    if _leads_anywhere(instruction):
        return {"emit"} if instruction.memory_displacement == _MEMBERS["emit"] else None
    size = x86.MemorySizeExt.size(instruction.memory_size)
    only_reads = all(memory.access == x86.OpAccess.READ for memory in uses.used_memory())
    if not size or not only_reads or instruction.memory_index != x86.Register.NONE:
        return None
    return _members_in(instruction.memory_displacement, size)


def _leads_anywhere(instruction: iced_x86.Instruction) -> bool:
    """Whether it calls or jumps to where a register or a word in memory says. Handlers so emit, and nothing else."""
    flows = _library().FlowControl
    return instruction.flow_control in (flows.INDIRECT_CALL, flows.INDIRECT_BRANCH)


def _gives_away(instruction: iced_x86.Instruction, uses: Any, number: int, pointers: set[str]) -> bool:
    """Whether an operand that is a register is a pointer of which more is done than to copy or to overwrite it."""
    register = _register(instruction.op_register(number))
    if register not in pointers or _is_copy(instruction):
        return False
    if register in _KEPT and _mnemonic(instruction.mnemonic) in ("PUSH", "POP"):
        return False
    return bool(uses.op_access(number) != _library().OpAccess.WRITE)


def _is_copy(instruction: iced_x86.Instruction) -> bool:
    """Whether it copies a whole register to another one."""
    x86 = _library()
    moves = instruction.code in (x86.Code.MOV_R64_RM64, x86.Code.MOV_RM64_R64)
    return moves and all(instruction.op_kind(number) == x86.OpKind.REGISTER for number in (0, 1))


def _members_in(offset: int, size: int) -> set[str] | None:
    """The members that some bytes of a call belong to; None for bytes of something else."""
    if offset + size > _CALL_SIZE:
        return None
    begins = list(_MEMBERS.values())
    ends = [*begins[1:], _CALL_SIZE]
    whole = zip(_MEMBERS, begins, ends, strict=True)
    return {name for name, start, end in whole if start < offset + size and offset < end}
