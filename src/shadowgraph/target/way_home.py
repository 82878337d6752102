"""How a borrowed thread finds back by itself if its tracer dies: the frame of a signal, and code that returns by it.

When a tracer is killed, the kernel lets its tracees run on with the registers that they have. So those that a thread is
given for a remote call lead back: before the first of them is changed, all that it has is written down as the kernel
does it for a signal handler (struct rt_sigframe, arch/x86/include/asm/sigframe.h), and whatever it is made to do ends
in the system call that returns from handlers (rt_sigreturn(2)), which sets all registers, the extended state and the
signal mask at once.

The code for that lies behind the end of the vDSO, where its last page is zeros, and stays there: 35 bytes, the same for
all threads and controllers. (The kernel lets debuggers write there: arch/x86/entry/vdso/vma.c.)
"""

from __future__ import annotations

import struct
from itertools import pairwise

from shadowgraph.errors import StartError
from shadowgraph.target.memory import PAGE, Mapping, Memory
from shadowgraph.target.ptrace import Registers

__all__ = [
    "END",
    "RETURN",
    "as_resumed",
    "find_code",
    "forget_frame_at_end",
    "frame_at_end",
    "frame_below",
    "lead_home",
    "make_frame",
    "space_for",
]

# rbx: the frame; r12, r13, r14: process, thread and signal to tell a tracer by that the end has been reached.
_CODE = bytes.fromhex(
    "0f05"  #            syscall
    "4889c5"  #          mov %rax, %rbp         the result; where functions return to
    "4489e7"  #          mov %r12d, %edi
    "4489ee"  #          mov %r13d, %esi
    "4489f2"  #          mov %r14d, %edx
    "b8ea000000"  #      mov $234, %eax         tgkill
    "0f05"  #            syscall
    "4889dc"  #          mov %rbx, %rsp         the end
    "48c7c00f000000"  #  mov $15, %rax          rt_sigreturn, as unwinders know it
    "0f05"  #            syscall
    "ebf5"  #            jmp to the mov $15, should a tracer have ended that call
)
RETURN = 2
END = 21  # behind the tgkill
_RESTORER = 24
_SLOT = 48  # so much of a page's end

_UC = 8  # struct rt_sigframe: uc
_CONTEXT_SIZE = 304 + 8  # with pretcode
_INFO_SIZE = 128
_STATE_AT = (_CONTEXT_SIZE + _INFO_SIZE + 63) // 64 * 64
_XSTATE_MAGIC1, _XSTATE_MAGIC2 = 0x46505853, 0x46505845
_SOFTWARE_BYTES, _HEADER = 464, 512
_FLAGS = 7  # UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
_NO_STACK = 0x4000_0000  # flags of a signal stack that are none: the thread keeps the one that it has
_TILES = 0b11 << 17
_WITHOUT_TILES = 2752  # where the state of AMX begins
_RED_ZONE = 128
_MARGIN = 4096
_MARK, _MARK_SIZE = b"shadowgraph: here was a frame", 64

_RESTARTS = {-512 & (1 << 64) - 1, -513 & (1 << 64) - 1, -514 & (1 << 64) - 1, -516 & (1 << 64) - 1}
_RESTART_SYSTEM_CALL = 219
_EINTR = -4 & (1 << 64) - 1
_NO_SYSTEM_CALL = (1 << 64) - 1


def find_code(memory: Memory, mappings: list[Mapping]) -> int:
    """Where the code is in a process; written there if it is not yet."""
    wanted = _CODE.ljust(_SLOT, b"\0")
    candidates = [mapping for mapping in mappings if mapping.permissions.startswith("r-x")]
    candidates.sort(key=lambda mapping: (mapping.path != "[vdso]", "libc" not in mapping.path))
    for mapping in candidates:
        at = mapping.end - _SLOT
        try:
            there = memory.read(at, _SLOT)
            if there == bytes(_SLOT):
                memory.write(at, wanted)
                there = memory.read(at, _SLOT)
        except OSError:  # [vsyscall] cannot be read
            continue
        if there == wanted:
            return at
    raise StartError(f"process {memory.pid}: there is no room for {_SLOT} bytes behind any of its code")


def space_for(state: bytes) -> int:
    """How many bytes a frame with this extended state takes."""
    return _STATE_AT + (len(_as_in_frame(state)) + 63) // 64 * 64


def frame_below(registers: Registers, mappings: list[Mapping], space: int) -> int:
    """A place for a frame on the stack of a thread, below what it uses; 0 if it runs on another one than its own.

    That of another (a coroutine's, a signal handler's) may be too small. A thread's own stack is the process's first
    one, or holds its thread control block at its upper end, as the C libraries make them.
    """
    low = registers.rsp - _RED_ZONE - space
    for mapping in mappings:
        if not mapping.start <= registers.rsp - 1 < mapping.end:
            continue
        own = mapping.start <= registers.fs_base < mapping.end and registers.rsp <= registers.fs_base
        if mapping.path == "[stack]" or (own and low - _MARGIN > mapping.start):
            return low & ~63
    return 0


def frame_at_end(memory: Memory, registers: Registers, mappings: list[Mapping], space: int, *, is_first: bool) -> int:
    """A place for a frame at the far end of a thread's own stack, for one that runs on another; 0 if there is none.

    Nothing is there that anybody needs: its pages have never been written to, or by us alone, and then they are zeros
    behind our mark. ``is_first``: the process's first thread.
    """
    stack = _own_stack(registers, mappings, is_first=is_first)
    if stack is None or stack.start <= registers.rsp < stack.end:
        return 0
    size = -(-(_MARK_SIZE + space) // PAGE) * PAGE
    if stack.end - stack.start < 2 * size:
        return 0
    try:
        with open(f"/proc/{memory.pid}/pagemap", "rb") as file:
            file.seek(stack.start // PAGE * 8)
            pages = struct.unpack(f"<{size // PAGE}Q", file.read(size // PAGE * 8))
        written = any(page >> 62 for page in pages)  # present, or swapped
        if written and memory.read(stack.start, size) != _MARK.ljust(size, b"\0"):
            return 0
        memory.write(stack.start, _MARK)
    except (OSError, struct.error):
        return 0
    return stack.start + _MARK_SIZE


def forget_frame_at_end(memory: Memory, frame: int, space: int) -> None:
    """Make the place of such a frame what it was, for the next one. The thread has no need of it any more."""
    memory.write(frame, bytes(space))


def _own_stack(registers: Registers, mappings: list[Mapping], *, is_first: bool) -> Mapping | None:
    """The stack that a thread was made with: it has its thread control block, and no access right below its end."""
    for before, mapping in pairwise(mappings):
        if is_first and mapping.path == "[stack]":
            return mapping
        if is_first or not mapping.start <= registers.fs_base < mapping.end:
            continue
        guarded = before.end == mapping.start and before.permissions.startswith("---")
        return mapping if guarded and mapping.permissions == "rw-p" and not mapping.inode else None
    return None


def make_frame(at: int, code: int, registers: Registers, state: bytes, mask: int) -> bytes:
    """The frame at an address (a multiple of 64) by which a thread returns to what it has now.

    A system call that waits to be restarted by the kernel is made again.
    """
    r = as_resumed(registers)
    state = _as_in_frame(state)
    state_at = at + _STATE_AT
    content = struct.pack("<QQQQII Q", code + _RESTORER, _FLAGS, 0, 0, _NO_STACK, 0, 0)
    names = ("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx")
    content += struct.pack("<18Q", *(getattr(r, name) for name in (*names, "rsp", "rip", "eflags")))
    content += struct.pack("<4H", r.cs, r.gs, r.fs, r.ss)
    content += struct.pack("<4Q Q 8Q Q", 0, 0, 0, 0, state_at, *[0] * 8, mask)
    assert len(content) == _CONTEXT_SIZE
    return content.ljust(state_at - at, b"\0") + state


def lead_home(registers: Registers, code: int, frame: int) -> None:
    """Change registers so that a thread which runs on with them returns by a frame."""
    registers.orig_rax = _NO_SYSTEM_CALL
    registers.rbx = registers.rsp = frame + _UC
    registers.rip = code + END


def as_resumed(registers: Registers) -> Registers:
    """As the kernel would let it go on when it has been interrupted in a system call (arch/x86/kernel/signal.c).

    What it keeps to go on with a call that waits for some time is lost by a return from a handler: it begins anew, or
    ends with EINTR if it has gone on before, for then the call is not known any more.
    """
    found = registers.copy()
    if found.orig_rax < 1 << 63 and found.rax in _RESTARTS:
        if found.orig_rax == _RESTART_SYSTEM_CALL:
            found.rax = _EINTR
        else:
            found.rax = found.orig_rax
            found.rip -= 2
    return found


def _as_in_frame(state: bytes) -> bytes:
    """The extended state as ptrace gives it, as it is in a frame (arch/x86/kernel/fpu/signal.c).

    The kernel restores no more of it than the thread may use: no state of AMX if it has never asked for that.
    """
    (features,) = struct.unpack_from("<Q", state, _SOFTWARE_BYTES)
    (in_use,) = struct.unpack_from("<Q", state, _HEADER)
    if not in_use & _TILES and features & _TILES:
        features &= ~_TILES
        state = state[:_WITHOUT_TILES]
    size = len(state)
    software = struct.pack("<IIQI", _XSTATE_MAGIC1, size + 4, features, size).ljust(_HEADER - _SOFTWARE_BYTES, b"\0")
    return state[:_SOFTWARE_BYTES] + software + state[_HEADER:] + struct.pack("<I", _XSTATE_MAGIC2)
