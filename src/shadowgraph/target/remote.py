"""Running functions and system calls inside a stopped thread, leaving no trace of it.

Everything of the thread is saved and put back: general registers with orig_rax (or a restart code of an interrupted
system call would leak into the program as an errno), the whole extended state at the size the kernel names, and the
signal mask, since a handler must not run on a borrowed stack.

Ends are noticed by system call stops, never by a fault or a breakpoint: the kernel forces those signals, and a forced
signal that the program ignores or blocks loses its disposition (signal(7), kernel/signal.c: force_sig_info_to_task).
Where SIGTRAP is not ignored, and need not be blocked for a while, a debug register may do the same with one stop only:
among hundreds of busy threads each stop costs the time that they take in turn.
"""

from __future__ import annotations

import os
import signal
import time
from types import TracebackType
from typing import NoReturn

from shadowgraph.errors import StartError
from shadowgraph.target import ptrace
from shadowgraph.target.memory import AT_HWCAP2, Memory, read_auxiliary_vector, read_mappings
from shadowgraph.target.shadow_stack import has_shadow_stack
from shadowgraph.target.status import ignores, is_there

__all__ = ["RemoteThread", "undisturbed"]

_SYSCALL_INSTRUCTION = b"\x0f\x05"
_ENDLESS_JUMP = b"\xeb\xfe"
_RED_ZONE = 128
_STACK_SIZE = 256 << 10
_SYS_MMAP, _SYS_MUNMAP = 9, 11
_PRIVATE_ANONYMOUS = 0x02 | 0x20
_TRAP_BIT = 1 << (signal.SIGTRAP - 1)
_ALL_SIGNALS = 0xFFFF_FFFF_FFFF_FFFF
_NO_SYSTEM_CALL = 0xFFFF_FFFF_FFFF_FFFF
_DIRECTION_FLAG = 0x400
_HWCAP2_FSGSBASE = 2  # arch/x86/include/uapi/asm/hwcap2.h

# Waiting in these ends with EINTR whenever the thread is stopped, be it without any signal (signal(7), last section);
# all others are restarted by the kernel. It does so before anything was done, so that they can be made again. A time
# limit in them counts from anew.
_NOT_RESTARTED = {
    *(0, 1, 19, 20),  # read, write, readv, writev: of sockets with a time limit (net/core/sock.h: sock_intr_errno)
    *(42, 43, 44, 45, 46, 47, 288, 299, 307),  # connect, accept, send…, recv…: the same
    *(65, 220),  # semop, semtimedop
    *(69, 70),  # msgsnd, msgrcv
    128,  # rt_sigtimedwait
    *(208, 333, 426),  # io_getevents, io_pgetevents, io_uring_enter
    *(232, 281, 441),  # epoll_wait, epoll_pwait, epoll_pwait2
}
_EINTR = -4 & 0xFFFF_FFFF_FFFF_FFFF
_RESTART_UNLESS_HANDLED = -514 & 0xFFFF_FFFF_FFFF_FFFF  # ERESTARTNOHAND: the kernel decides when the thread goes on


class RemoteThread:
    """A stopped thread that is borrowed for remote calls, as a context manager: on exit it is as it was.

    The thread must have been seized with OPTION_MARK_SYSTEM_CALLS. ``own_stack``: calls run on a stack that is mapped
    for them, for a thread whose own may be small (of a coroutine, of signal handlers). ``seconds`` is for how long a
    call may take; None for ever.
    """

    def __init__(self, tid: int, memory: Memory, *, own_stack: bool = False, seconds: float | None = None) -> None:
        self.tid = tid
        self.memory = memory
        self._seconds = seconds
        self._own_stack = 0 if own_stack else None
        # Where a call returns to, to be stopped there. Should that fail, the thread stays there until its time is over.
        marked = own_stack and not ignores(memory.pid, signal.SIGTRAP)
        self._mark = _find_code(memory, _ENDLESS_JUMP) if marked else 0
        self._syscall_address = _find_system_call_instruction(memory)

    def __enter__(self) -> RemoteThread:
        self._registers = ptrace.get_registers(self.tid)
        undisturbed(self._registers)
        self._extended = ptrace.get_extended_state(self.tid)
        self._mask = ptrace.get_signal_mask(self.tid)
        if self._mark and not ptrace.can_stop_at(self.tid, self._mark):
            self._mark = 0
        ptrace.set_signal_mask(self.tid, _ALL_SIGNALS & ~_TRAP_BIT if self._mark else _ALL_SIGNALS)
        self._shadow_stack = ptrace.get_shadow_stack(self.tid) if has_shadow_stack(self.tid) else 0
        self._bottom = (self._registers.rsp - _RED_ZONE) & ~0xF
        if self._own_stack is not None:
            self._own_stack = self.system_call(_SYS_MMAP, 0, _STACK_SIZE, 3, _PRIVATE_ANONYMOUS, -1, 0)
            self._bottom = self._own_stack + _STACK_SIZE
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._own_stack:
                self.system_call(_SYS_MUNMAP, self._own_stack, _STACK_SIZE)
            if self._shadow_stack:
                ptrace.set_shadow_stack(self.tid, self._shadow_stack)
            ptrace.set_extended_state(self.tid, self._extended)
            ptrace.set_registers(self.tid, self._registers)
            ptrace.set_signal_mask(self.tid, self._mask)
        except (ProcessLookupError, StartError):  # it has ended
            if kind is None:
                raise

    @property
    def registers(self) -> ptrace.Registers:
        """What the thread's registers were, and will be again."""
        return self._registers

    def may_use_gs(self) -> bool:
        """Whether programs may set the gs base (AT_HWCAP2, FSGSBASE), and this one does not use it itself."""
        has_instructions = read_auxiliary_vector(self.memory.pid).get(AT_HWCAP2, 0) & _HWCAP2_FSGSBASE
        return bool(has_instructions) and self._registers.gs_base == 0

    def push(self, data: bytes) -> int:
        """Put data on the thread's stack, below what it uses, for the calls that follow; returns its address."""
        self._bottom = (self._bottom - len(data)) & ~0xF
        self.memory.write(self._bottom, data)
        return self._bottom

    def call(self, function: int, *arguments: int) -> int:
        """Call a function with up to six integer arguments; returns rax.

        It returns to a system call instruction, and is stopped there before the kernel does anything.
        """
        registers = self._with_arguments(arguments)
        registers.rsp = self._bottom - 8
        registers.rip = function
        registers.eflags &= ~_DIRECTION_FLAG  # clear at a call (System V ABI, section 3.2.1)
        return_address = (self._mark or self._syscall_address).to_bytes(8, "little")
        self.memory.write(registers.rsp, return_address)
        if self._shadow_stack:  # its return must be to what a call has pushed
            self.memory.write(self._shadow_stack - 8, return_address)
            ptrace.set_shadow_stack(self.tid, self._shadow_stack - 8)
        ptrace.set_registers(self.tid, registers)
        if self._mark:
            return self._run_to_mark()
        entering = True
        while True:
            self._to_system_call_stop()
            registers = ptrace.get_registers(self.tid)
            if entering and registers.rsp == self._bottom and registers.rip == self._syscall_address + 2:
                break
            entering = not entering
        result = registers.orig_rax  # what rax was when the instruction was reached
        self._leave_system_call(registers)
        return result

    def system_call(self, number: int, *arguments: int) -> int:
        """Make a system call; returns its result, or raises OSError."""
        registers = self._with_arguments(arguments)
        registers.rip = self._syscall_address
        registers.rax = number
        registers.r10 = registers.rcx
        ptrace.set_registers(self.tid, registers)
        self._to_system_call_stop()
        self._to_system_call_stop()
        result = ptrace.get_registers(self.tid).rax
        if result > 0xFFFF_FFFF_FFFF_F000:
            code = (1 << 64) - result
            raise OSError(code, os.strerror(code))
        return result

    def _run_to_mark(self) -> int:
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        ptrace.stop_at(self.tid, self._mark)
        number = 0
        try:
            while True:
                ptrace.cont(self.tid, number)
                number = self._look_at(self._wait(deadline))
                registers = ptrace.get_registers(self.tid)
                if number == signal.SIGTRAP and registers.rip == self._mark:
                    return registers.rax
                if number not in (0, signal.SIGSTOP) and not self._was_pending(number):
                    self._fail(number)
        finally:
            if is_there(self.tid):
                ptrace.stop_at(self.tid, 0)

    def _look_at(self, status: int) -> int:
        """The signal that has stopped the thread; 0 for another stop."""
        if not os.WIFSTOPPED(status):
            raise StartError(f"process {self.memory.pid} ended while it was being entered")
        return os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0

    def _was_pending(self, number: int) -> bool:
        """Whether a signal is the program's own that was pending before: it goes back to wait until it is let through.

        A fault that the thread had just made when it was stopped is blocked while it is borrowed. But when a mark is
        reached, whose SIGTRAP is not blocked, the kernel takes the first synchronous signal of the queue, blocked or
        not (dequeue_synchronous_signal in kernel/signal.c); given back while it is blocked, it is queued again. The
        signal of a fault that is made now would have been unblocked by the kernel.
        """
        return bool(ptrace.get_signal_mask(self.tid) >> (number - 1) & 1)

    def _fail(self, number: int) -> NoReturn:
        # All signals are blocked, so this one was forced: the code that runs has failed.
        at = ptrace.get_registers(self.tid).rip
        raise StartError(f"process {self.memory.pid}: a function called in it failed at {at:#x} (signal {number})")

    def _with_arguments(self, arguments: tuple[int, ...]) -> ptrace.Registers:
        registers = self._registers.copy()
        registers.orig_rax = _NO_SYSTEM_CALL  # nothing for the kernel to restart
        for name, value in zip(("rdi", "rsi", "rdx", "rcx", "r8", "r9"), arguments, strict=False):
            setattr(registers, name, value & 0xFFFF_FFFF_FFFF_FFFF)
        return registers

    def _leave_system_call(self, registers: ptrace.Registers) -> None:
        """Make nothing of the system call that the thread is about to enter."""
        registers.orig_rax = _NO_SYSTEM_CALL
        ptrace.set_registers(self.tid, registers)
        self._to_system_call_stop()

    def _to_system_call_stop(self) -> None:
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        number = 0
        while True:
            ptrace.cont_to_system_call(self.tid, number)
            status = self._wait(deadline)
            number = self._look_at(status)
            if number == ptrace.SYSTEM_CALL_STOP:
                return
            if number not in (0, signal.SIGSTOP):
                self._fail(number)

    def _wait(self, deadline: float | None) -> int:
        if deadline is None:
            return ptrace.wait_stop(self.tid)
        while True:
            status = ptrace.wait_stop_now(self.tid)
            if status is not None:
                return status
            if time.monotonic() > deadline:
                self._give_up()
            time.sleep(0.0001)

    def _give_up(self) -> None:
        """Stop the thread wherever it is in the call."""
        ptrace.interrupt(self.tid)
        status = ptrace.wait_stop(self.tid)
        while os.WIFSTOPPED(status) and ptrace.event_of(status) != ptrace.EVENT_STOP:
            ptrace.cont(self.tid)
            status = ptrace.wait_stop(self.tid)
        raise StartError(
            f"process {self.memory.pid}: a function called in it has not returned for {self._seconds:g} seconds; "
            "a lock that it needs is held"
        )


def undisturbed(registers: ptrace.Registers) -> bool:
    """Change the registers of a stopped thread so that it goes on waiting in its system call; whether that was needed.

    It is where nothing but our stop has ended the waiting.
    """
    if registers.rax != _EINTR or registers.orig_rax not in _NOT_RESTARTED:
        return False
    registers.rax = _RESTART_UNLESS_HANDLED
    return True


def _find_system_call_instruction(memory: Memory) -> int:
    address = _find_code(memory, _SYSCALL_INSTRUCTION)
    if not address:
        raise StartError(f"process {memory.pid}: no system call instruction found in its memory")
    return address


def _find_code(memory: Memory, code: bytes) -> int:
    """These bytes in executable memory, be they in the middle of another instruction; 0 if they are nowhere."""
    candidates = [mapping for mapping in read_mappings(memory.pid) if "x" in mapping.permissions]
    candidates.sort(key=lambda mapping: mapping.path != "[vdso]" and "libc" not in mapping.path)
    for mapping in candidates:
        try:
            place = memory.read(mapping.start, mapping.end - mapping.start).find(code)
        except OSError:  # [vsyscall] cannot be read
            continue
        if place >= 0:
            return mapping.start + place
    return 0
