"""Signal dispositions of the program: what it would have inherited without us, and what a breakpoint takes from it."""

from __future__ import annotations

import os
import signal

from shadowgraph.target import ptrace
from shadowgraph.target.memory import Memory
from shadowgraph.target.remote import RemoteThread

__all__ = ["TrapDisposition", "inherited_dispositions"]

_SYS_RT_SIGACTION = 13
_TRAP_BIT = 1 << (signal.SIGTRAP - 1)
_IGNORED = (1).to_bytes(8, "little") + bytes(24)  # the kernel's struct sigaction with SIG_IGN


def inherited_dispositions() -> dict[int, signal.Handlers]:
    """The dispositions that a program started by us should have instead of ours.

    Signals that we catch are set back by the exec (to their default, or so they would have been for us: handlers are
    installed for signals that are not ignored alone). SIGPIPE and SIGXFSZ are ignored by Python at its start, without
    a word of what was before; there our parent's dispositions tell, since they are inherited. A parent that ignores
    both is a Python itself, which gives its children the defaults back.
    """
    result: dict[int, signal.Handlers] = {
        number: signal.SIG_DFL for number in signal.valid_signals() if callable(signal.getsignal(number))
    }
    pair = (signal.SIGPIPE, signal.SIGXFSZ)
    ignored = _ignored_signals(os.getppid())
    one_alone = sum(bool(ignored >> (number - 1) & 1) for number in pair) == 1
    for number in pair:
        if signal.getsignal(number) == signal.SIG_IGN:
            keep = one_alone and ignored >> (number - 1) & 1
            result[number] = signal.SIG_IGN if keep else signal.SIG_DFL
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        result[signal.SIGCHLD] = signal.SIG_IGN
    return result


class TrapDisposition:
    """SIGTRAP of a traced process before a breakpoint is set in it.

    The kernel forces the signal of a breakpoint: where the program ignores or blocks SIGTRAP, it is unblocked and set
    to its default (kernel/signal.c: force_sig_info_to_task). :meth:`restore` puts that right.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._mask = ptrace.get_signal_mask(pid)
        self._ignored = bool(_ignored_signals(pid) & _TRAP_BIT)

    def restore(self, memory: Memory) -> None:
        """Call this in a stop behind the breakpoint."""
        if self._mask & _TRAP_BIT:
            ptrace.set_signal_mask(self._pid, self._mask)
        if self._ignored:
            with RemoteThread(self._pid, memory) as thread:
                thread.system_call(_SYS_RT_SIGACTION, signal.SIGTRAP, thread.push(_IGNORED), 0, 8)


def _ignored_signals(pid: int) -> int:
    """The set of ignored signals of a process, bit 0 for signal 1; 0 if that cannot be told."""
    try:
        with open(f"/proc/{pid}/status") as file:
            line = next(line for line in file if line.startswith("SigIgn:"))
    except (OSError, StopIteration):
        return 0
    return int(line.split()[1], 16)
