"""The ptrace system call: thin, typed, and one place for its errors.

All requests for one tracee must come from the thread that seized it (ptrace(2)): callers keep to one thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

from shadowgraph.errors import StartError
from shadowgraph.target.permission import why_forbidden

__all__ = [
    "EVENT_EXEC",
    "EVENT_STOP",
    "OPTION_EXIT_KILL",
    "OPTION_MARK_SYSTEM_CALLS",
    "OPTION_TRACE_EXEC",
    "SYSTEM_CALL_STOP",
    "Registers",
    "TraceeEnded",
    "can_stop_at",
    "cont",
    "cont_to_system_call",
    "detach",
    "dying_with_us",
    "event_of",
    "get_extended_state",
    "get_registers",
    "get_signal_mask",
    "interrupt",
    "seize",
    "set_extended_state",
    "set_options",
    "set_registers",
    "set_signal_mask",
    "step",
    "stop",
    "stop_at",
    "wait_stop",
    "wait_stop_now",
    "why_not",
]

_POKEUSER = 6
_CONT = 7
_SINGLESTEP = 9
_SYSCALL = 24
_GETREGS = 12
_SETREGS = 13
_DETACH = 17
_GETREGSET = 0x4204
_SETREGSET = 0x4205
_SETOPTIONS = 0x4200
_SEIZE = 0x4206
_INTERRUPT = 0x4207
_GETSIGMASK = 0x420A
_SETSIGMASK = 0x420B

EVENT_EXEC = 4
EVENT_STOP = 128
OPTION_MARK_SYSTEM_CALLS = 1  # PTRACE_O_TRACESYSGOOD: stops at system calls have bit 7 set in their signal
OPTION_TRACE_EXEC = 1 << EVENT_EXEC
OPTION_EXIT_KILL = 1 << 20  # the tracee dies with its tracer
SYSTEM_CALL_STOP = 0x85  # SIGTRAP with that bit

_NT_X86_XSTATE = 0x202
_NT_X86_SHSTK = 0x204
_DEBUG_REGISTERS = 848  # offsetof(struct user, u_debugreg)

_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.restype = ctypes.c_long
_ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


# In the order of struct user_regs_struct.
_REGISTER_NAMES = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
    *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
)


class Registers(ctypes.Structure):
    """struct user_regs_struct of <sys/user.h>: the general registers of a stopped thread."""

    _fields_: ClassVar = [(name, ctypes.c_uint64) for name in _REGISTER_NAMES]

    rip: int
    rsp: int
    rax: int
    rdi: int
    rsi: int
    rdx: int
    rcx: int
    r8: int
    r9: int
    r10: int
    r12: int
    r13: int
    r14: int
    rbx: int
    rbp: int
    cs: int
    ss: int
    fs: int
    gs: int
    orig_rax: int
    eflags: int
    fs_base: int
    gs_base: int

    def copy(self) -> Registers:
        """A copy that can be changed on its own."""
        return Registers.from_buffer_copy(self)


class _IoVector(ctypes.Structure):
    _fields_: ClassVar = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _request(request: int, tid: int, address: object = None, data: object = None) -> int:
    result = _ptrace(request, tid, address, data)
    if result == -1:
        number = ctypes.get_errno()
        if number:
            raise OSError(number, os.strerror(number))
    return int(result)


def seize(tid: int, options: int = 0) -> None:
    """Become the tracer of a thread without stopping it."""
    try:
        _request(_SEIZE, tid, 0, options)
    except OSError as error:
        raise StartError(why_not(tid, error)) from error


def set_options(tid: int, options: int) -> None:
    """Replace the options of a stopped thread; they end with detach()."""
    _request(_SETOPTIONS, tid, 0, options)


@contextmanager
def dying_with_us(tid: int, options: int = OPTION_MARK_SYSTEM_CALLS) -> Iterator[None]:
    """While this holds, a stopped thread that was seized with these options dies with us.

    For the moments in which its code is not its own: were we killed, it would run into our breakpoint.
    """
    set_options(tid, options | OPTION_EXIT_KILL)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it has ended
            set_options(tid, options)


def why_not(tid: int, error: OSError) -> str:
    """Say why a thread cannot be traced, from what /proc tells about it."""
    if error.errno == 3:
        return f"there is no process {tid}"
    try:
        with open(f"/proc/{tid}/status") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        status = {}
    if status.get("State", "").startswith("Z"):
        return f"process {tid} has ended already (it is a zombie waiting for its parent)"
    tracer = status.get("TracerPid", "0").strip()
    if tracer != "0":
        try:
            with open(f"/proc/{tracer}/comm") as file:
                name = file.read().strip()
        except OSError:
            name = "unknown"
        return f"process {tid} is traced by process {tracer} ({name}) already; end that first"
    if error.errno not in (errno.EPERM, errno.EACCES):
        return f"process {tid} cannot be traced: {os.strerror(error.errno or 0).lower()}"
    return why_forbidden(tid)


def interrupt(tid: int) -> None:
    """Ask a seized thread to stop; wait_stop() tells when it has."""
    _request(_INTERRUPT, tid)


def cont(tid: int, signal: int = 0) -> None:
    """Let a stopped thread run, with a signal delivered if one is given."""
    _request(_CONT, tid, 0, signal)


def cont_to_system_call(tid: int, signal: int = 0) -> None:
    """Let a stopped thread run until it enters or leaves a system call (or stops for another reason)."""
    _request(_SYSCALL, tid, 0, signal)


def step(tid: int, signal: int = 0) -> None:
    """Let a stopped thread run one instruction."""
    _request(_SINGLESTEP, tid, 0, signal)


def detach(tid: int, signal: int = 0) -> None:
    """Stop tracing a stopped thread; it runs on. A thread that is gone already is no error."""
    try:
        _request(_DETACH, tid, 0, signal)
    except ProcessLookupError:
        pass


def get_registers(tid: int) -> Registers:
    """The general registers of a stopped thread."""
    registers = Registers()
    _request(_GETREGS, tid, 0, ctypes.addressof(registers))
    return registers


def set_registers(tid: int, registers: Registers) -> None:
    """Set all general registers of a stopped thread, orig_rax included."""
    _request(_SETREGS, tid, 0, ctypes.addressof(registers))


def get_extended_state(tid: int) -> bytes:
    """The whole XSAVE area of a stopped thread, as large as this kernel makes it (11,008 bytes with AMX)."""
    size = 1 << 16
    buffer = ctypes.create_string_buffer(size)
    vector = _IoVector(ctypes.addressof(buffer), size)
    _request(_GETREGSET, tid, _NT_X86_XSTATE, ctypes.addressof(vector))
    return buffer.raw[: vector.length]


def set_extended_state(tid: int, state: bytes) -> None:
    """Put back what get_extended_state() returned."""
    buffer = ctypes.create_string_buffer(state, len(state))
    vector = _IoVector(ctypes.addressof(buffer), len(state))
    _request(_SETREGSET, tid, _NT_X86_XSTATE, ctypes.addressof(vector))


def get_shadow_stack(tid: int) -> int:
    """The shadow stack pointer of a stopped thread that has one (Linux 6.6)."""
    pointer = ctypes.c_uint64()
    vector = _IoVector(ctypes.addressof(pointer), 8)
    _request(_GETREGSET, tid, _NT_X86_SHSTK, ctypes.addressof(vector))
    return pointer.value


def set_shadow_stack(tid: int, pointer: int) -> None:
    """Set what get_shadow_stack() returned."""
    value = ctypes.c_uint64(pointer)
    vector = _IoVector(ctypes.addressof(value), 8)
    _request(_SETREGSET, tid, _NT_X86_SHSTK, ctypes.addressof(vector))


def get_signal_mask(tid: int) -> int:
    """The blocked signals of a stopped thread, as the kernel's 64-bit set."""
    mask = ctypes.c_uint64()
    _request(_GETSIGMASK, tid, 8, ctypes.addressof(mask))
    return mask.value


def set_signal_mask(tid: int, mask: int) -> None:
    """Set the blocked signals of a stopped thread."""
    value = ctypes.c_uint64(mask)
    _request(_SETSIGMASK, tid, 8, ctypes.addressof(value))


class TraceeEnded(StartError):
    """A tracee ended where it should have stopped; ``status`` is its wait status, which can be had only once."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def wait_stop(tid: int) -> int:
    """Wait until a traced thread stops or ends, and return its wait status."""
    while True:
        try:
            return os.waitpid(tid, _WALL)[1]
        except InterruptedError:
            continue


def stop(tid: int) -> None:
    """Stop a seized thread; signals that come before are delivered. TraceeEnded if it ends instead."""
    interrupt(tid)
    while True:
        status = wait_stop(tid)
        if not os.WIFSTOPPED(status):
            raise TraceeEnded(f"process {tid} ended while it was being stopped", status)
        if event_of(status) == EVENT_STOP:
            return
        cont(tid, os.WSTOPSIG(status) if event_of(status) == 0 else 0)


def wait_stop_now(tid: int) -> int | None:
    """As wait_stop(), but without waiting: None if nothing has happened."""
    got, status = os.waitpid(tid, _WALL | os.WNOHANG)
    return status if got else None


def stop_at(tid: int, address: int) -> None:
    """Make a stopped thread, and no other, stop with SIGTRAP before it runs the instruction at an address; 0: no more.

    This is a debug register of the processor (Intel SDM volume 3, 18.2): nobody's code changes.
    """
    _request(_POKEUSER, tid, _DEBUG_REGISTERS + 7 * 8, 0)
    if address:
        _request(_POKEUSER, tid, _DEBUG_REGISTERS, address)
        _request(_POKEUSER, tid, _DEBUG_REGISTERS + 7 * 8, 1)


def can_stop_at(tid: int, address: int) -> bool:
    """Whether stop_at() is possible for an address."""
    try:
        stop_at(tid, address)
        stop_at(tid, 0)
    except OSError:
        return False
    return True


def event_of(status: int) -> int:
    """The PTRACE_EVENT number in a wait status, 0 if it is a plain stop."""
    return status >> 16


_WALL = 0x40000000
