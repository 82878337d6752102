"""Code that has no caller in the usual sense: what a signal handler returns to, and where threads and coroutines begin.

Most of it is known by its unwind information (an undefined return address, a signal frame). What C libraries leave
without is told by its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from shadowgraph.stack.code import LoadedCode
from shadowgraph.stack.expressions import ReadWord

__all__ = ["begins_context", "is_entry_point", "is_signal_return", "registers_before_signal"]

# mov rax, 15 (rt_sigreturn); syscall: the two ways to encode the number (arch/x86/include/uapi/asm/unistd_64.h).
_SIGNAL_RETURNS = (b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", b"\xb8\x0f\x00\x00\x00\x0f\x05")

# glibc's __start_context, where a function given to makecontext returns to: mov rsp, rbx; mov rdi, [rsp]; test rdi, rdi
_CONTEXT_START = b"\x48\x89\xdc\x48\x8b\x3c\x24\x48\x85\xff"

# Where gregset_t begins in the ucontext that lies at rsp in a signal frame, and its order (<sys/ucontext.h>) as DWARF
# numbers: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
_MACHINE_CONTEXT = 40
_GREGSET_ORDER = (8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16)


def is_signal_return(code: LoadedCode, address: int) -> bool:
    """Whether a signal handler that returns to an address ends its signal."""
    start = code.text(address, address + 9)
    return start.startswith(_SIGNAL_RETURNS)


def registers_before_signal(registers: Mapping[int, int], read: ReadWord) -> dict[int, int]:
    """The registers that the signal frame at rsp holds: those of the interrupted code."""
    base = registers[7] + _MACHINE_CONTEXT
    return {number: read(base + 8 * index, 8) for index, number in enumerate(_GREGSET_ORDER)}


def begins_context(code: LoadedCode, address: int) -> bool:
    """Whether a return address is the one that makecontext(3) gives to the first function of a context."""
    return code.text(address, address + len(_CONTEXT_START)) == _CONTEXT_START


def is_entry_point(code: LoadedCode, pc: int) -> bool:
    """Whether ``pc`` lies in the function that the kernel or the loader starts the program with."""
    row = code.function(pc)
    return row >= 0 and code.image.entry != 0 and row == code.functions.find(code.image.entry)
