"""Running functions and system calls inside a stopped thread, leaving no trace of it.

Everything of the thread is saved and put back: general registers with orig_rax (or a restart code of an interrupted
system call would leak into the program as an errno), the whole extended state at the size the kernel names, and the
signal mask, since a handler must not run on a borrowed stack.

Should we die meanwhile, the thread finds back by itself (way_home.py). So nothing is asked of the kernel that would
outlive us: no debug register, no single step.

The end of a call is noticed by a signal that the thread sends itself, one that the program neither handles nor blocks
and that does nothing by default: only a tracer sees it. Where there is no such signal, by stops at system calls; each
stop costs much time where hundreds of busy threads take turns. Never by a fault or a breakpoint: the kernel forces
those signals, and a forced signal that the program ignores or blocks loses its disposition (signal(7), kernel/signal.c:
force_sig_info_to_task).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

from shadowgraph.errors import StartError
from shadowgraph.target import ptrace, way_home
from shadowgraph.target.memory import AT_HWCAP2, Memory, read_auxiliary_vector, read_mappings
from shadowgraph.target.shadow_stack import has_shadow_stack
from shadowgraph.target.status import read_status

__all__ = ["RemoteThread", "undisturbed"]

_RED_ZONE = 128
_STACK_SIZE = 256 << 10
_SYS_MMAP, _SYS_MUNMAP, _SYS_TGKILL = 9, 11, 234
_PRIVATE_ANONYMOUS = 0x02 | 0x20
_ALL_SIGNALS = 0xFFFF_FFFF_FFFF_FFFF
_NO_SYSTEM_CALL = 0xFFFF_FFFF_FFFF_FFFF
_DIRECTION_FLAG = 0x400
_HWCAP2_FSGSBASE = 2  # arch/x86/include/uapi/asm/hwcap2.h
_USELESS_SIGNALS = (signal.SIGURG, signal.SIGWINCH, signal.SIGCHLD)  # ignored by default (signal(7))
_FRAME_TOKEN = 1 << 63  # on a shadow stack: here begins a signal handler (arch/x86/kernel/shstk.c)

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
        self._has_left = False
        self._space_at_end = 0

    def __enter__(self) -> RemoteThread:
        self._registers = ptrace.get_registers(self.tid)
        undisturbed(self._registers)
        self._extended = ptrace.get_extended_state(self.tid)
        self._mask = ptrace.get_signal_mask(self.tid)
        self._shadow_stack = ptrace.get_shadow_stack(self.tid) if has_shadow_stack(self.tid) else 0
        mappings = read_mappings(self.memory.pid)
        self._code = way_home.find_code(self.memory, mappings)
        self._ids, self._sign = self._find_sign()
        space = way_home.space_for(self._extended)
        self._frame = way_home.frame_below(self._registers, mappings, space)
        self._bottom = (self._registers.rsp - _RED_ZONE) & ~0xF
        if not self._frame:
            is_first = self.tid == self.memory.pid
            self._frame = way_home.frame_at_end(self.memory, self._registers, mappings, space, is_first=is_first)
            self._space_at_end = space if self._frame else 0
            self._own_stack = 0
        if self._frame:
            self._write_frame()
            self._bottom = self._frame - 64
            self._go_home()
        ptrace.set_signal_mask(self.tid, _ALL_SIGNALS & ~(1 << self._sign >> 1))
        if self._own_stack is not None:
            self._own_stack = self.system_call(_SYS_MMAP, 0, _STACK_SIZE, 3, _PRIVATE_ANONYMOUS, -1, 0)
            self._bottom = self._own_stack + _STACK_SIZE
        if not self._frame:  # from here on at least
            self._bottom = self._frame = (self._bottom - space) & ~63
            self._write_frame()
            self._go_home()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Put everything back, the registers last: what they are now leads home."""
        if self._has_left:
            return
        try:
            if self._own_stack:
                self.system_call(_SYS_MUNMAP, self._own_stack, _STACK_SIZE)
            if self._shadow_stack:
                ptrace.set_shadow_stack(self.tid, self._shadow_stack)
            ptrace.set_extended_state(self.tid, self._extended)
            ptrace.set_signal_mask(self.tid, self._mask)
            ptrace.set_registers(self.tid, self._registers)
            if self._space_at_end:
                with suppress(OSError):
                    way_home.forget_frame_at_end(self.memory, self._frame, self._space_at_end)
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

    @property
    def control_block(self) -> int:
        """The address of the thread control block."""
        return int(self._registers.fs_base)

    def call(self, function: int, *arguments: int) -> int:
        """Call a function with up to six integer arguments; returns rax."""
        ptrace.set_registers(self.tid, self._about_to_call(function, arguments))
        return self._run_to_end()

    def leave_calling(self, function: int) -> None:
        """Have the thread call a function once we let it go, and then find back by itself. The end of its borrowing."""
        registers = self._about_to_call(function, ())
        registers.r14 = 0  # nobody is to be told of the end
        ptrace.set_registers(self.tid, registers)
        self._has_left = True

    def _about_to_call(self, function: int, arguments: tuple[int, ...]) -> ptrace.Registers:
        registers = self._with_arguments(arguments)
        registers.rsp = self._bottom - 8
        registers.rip = function
        registers.eflags &= ~_DIRECTION_FLAG  # clear at a call (System V ABI, section 3.2.1)
        return_address = (self._code + way_home.RETURN).to_bytes(8, "little")
        self.memory.write(registers.rsp, return_address)
        if self._shadow_stack:  # its return must be to what a call has pushed
            self.memory.write(self._shadow_stack - 16, return_address)
            ptrace.set_shadow_stack(self.tid, self._shadow_stack - 16)
        return registers

    def system_call(self, number: int, *arguments: int) -> int:
        """Make a system call; returns its result, or raises OSError."""
        registers = self._with_arguments(arguments)
        registers.rip = self._code
        registers.rax = number
        registers.r10 = registers.rcx
        ptrace.set_registers(self.tid, registers)
        result = self._run_to_end()
        if result > 0xFFFF_FFFF_FFFF_F000:
            code = (1 << 64) - result
            raise OSError(code, os.strerror(code))
        return result

    # --- the way home ---

    def _find_sign(self) -> tuple[tuple[int, int], int]:
        """The thread as it knows itself, its process and its number, and the signal that tells of an end; 0: none."""
        process, thread = read_status(self.memory.pid) or {}, read_status(self.tid) or {}
        ids = [int(status.get("NSpid", "0").split()[-1]) for status in (process, thread)]
        taken = self._mask | int(thread.get("SigCgt", "0"), 16)
        sign = next((number for number in _USELESS_SIGNALS if not taken >> (number - 1) & 1), 0)
        return (ids[0], ids[1]), sign if all(ids) else 0

    def _write_frame(self) -> None:
        frame = way_home.make_frame(self._frame, self._code, self._registers, self._extended, self._mask)
        self.memory.write(self._frame, frame)
        if self._shadow_stack:
            self.memory.write(self._shadow_stack - 8, (self._shadow_stack | _FRAME_TOKEN).to_bytes(8, "little"))

    def _go_home(self) -> None:
        """From here on, whenever we die, the thread returns by its frame."""
        registers = self._registers.copy()
        way_home.lead_home(registers, self._code, self._frame)
        ptrace.set_registers(self.tid, registers)
        if self._shadow_stack:
            ptrace.set_shadow_stack(self.tid, self._shadow_stack - 8)

    def _with_arguments(self, arguments: tuple[int, ...]) -> ptrace.Registers:
        registers = self._registers.copy()
        way_home.lead_home(registers, self._code, self._frame)
        (registers.r12, registers.r13), registers.r14 = self._ids, self._sign
        for name, value in zip(("rdi", "rsi", "rdx", "rcx", "r8", "r9"), arguments, strict=False):
            setattr(registers, name, value & 0xFFFF_FFFF_FFFF_FFFF)
        return registers

    # --- to the end of a call ---

    def _run_to_end(self) -> int:
        deadline = None if self._seconds is None else time.monotonic() + self._seconds
        end, number = self._code + way_home.END, 0
        go_on = ptrace.cont if self._sign else ptrace.cont_to_system_call
        while True:
            go_on(self.tid, number)
            number = self._look_at(self._wait(deadline))
            registers = ptrace.get_registers(self.tid)
            if registers.rip == end and number == (self._sign or ptrace.SYSTEM_CALL_STOP):
                break
            if number == ptrace.SYSTEM_CALL_STOP:
                number = 0
            elif number not in (0, signal.SIGSTOP, self._sign) and not self._was_pending(number):
                self._fail(number)
        if not self._sign and registers.orig_rax == _SYS_TGKILL:
            self._leave_system_call(registers)
        return registers.rbp

    def _leave_system_call(self, registers: ptrace.Registers) -> None:
        """Make nothing of the system call that the thread is about to enter."""
        registers.orig_rax = _NO_SYSTEM_CALL
        ptrace.set_registers(self.tid, registers)
        ptrace.cont_to_system_call(self.tid)
        self._look_at(self._wait(None))

    def _look_at(self, status: int) -> int:
        """The signal that has stopped the thread; 0 for another stop."""
        if not os.WIFSTOPPED(status):
            raise StartError(f"process {self.memory.pid} ended while it was being entered")
        return os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0

    def _was_pending(self, number: int) -> bool:
        """Whether a signal is the program's own that was pending before: it goes back to wait until it is let through.

        A fault that the thread had just made when it was stopped is blocked while it is borrowed. But when a signal
        comes that is not, the kernel takes the first synchronous one of the queue, blocked or not
        (dequeue_synchronous_signal in kernel/signal.c); given back while it is blocked, it is queued again. The
        signal of a fault that is made now would have been unblocked by the kernel.
        """
        return bool(ptrace.get_signal_mask(self.tid) >> (number - 1) & 1)

    def _fail(self, number: int) -> NoReturn:
        # All signals are blocked, so this one was forced: the code that runs has failed.
        at = ptrace.get_registers(self.tid).rip
        raise StartError(f"process {self.memory.pid}: a function called in it failed at {at:#x} (signal {number})")

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
