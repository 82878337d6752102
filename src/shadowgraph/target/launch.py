"""Starting a program so that it stops at its entry point: loaded, relocated, and not one instruction of its own run.

Nothing of ours reaches the program: no environment variable, no file descriptor, no signal disposition.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import threading
from collections.abc import Callable, Mapping, Sequence

from shadowgraph.errors import StartError
from shadowgraph.target import ptrace
from shadowgraph.target.doorstep import Doorstep
from shadowgraph.target.limits import inherited_limits
from shadowgraph.target.memory import AT_ENTRY, Memory, read_auxiliary_vector
from shadowgraph.target.rights import WITHOUT_RIGHTS, rights_gained
from shadowgraph.target.signals import TrapDisposition, inherited_dispositions

__all__ = ["EndedBeforeEntry", "end_behind", "find_program", "launch", "original_environment", "run_to_entry"]

_BREAKPOINT = b"\xcc"
_COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")


def find_program(name: str) -> str:
    """Find a program as execvp(3) does; StartError in one sentence if it cannot be run."""
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(folder or ".", name) for folder in os.environ.get("PATH", os.defpath).split(":")]
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            rights = rights_gained(path)
            if rights:
                raise StartError(f"{path}: is {rights}; {WITHOUT_RIGHTS}. Run shadowgraph as root to trace it")
            return path
    shown = next((path for path in candidates if os.path.exists(path) and ("/" in name or os.path.isfile(path))), None)
    if shown is None:
        where = "" if "/" in name else " in PATH; give a path (./…) for a program in this folder"
        where = _why_all_in_quotes(name) or where
        raise StartError(f"{name or repr(name)}: no such program{where}")
    if os.path.isdir(shown):
        raise StartError(f"{shown}: is a folder, not a program")
    if not os.path.isfile(shown):
        raise StartError(f"{shown}: is not a regular file, so it cannot be run")
    raise StartError(f"{shown}: is not executable (chmod +x it, or name its interpreter first)")


def _why_all_in_quotes(name: str) -> str:
    """The end of a sentence about a name that is a command line; "" if it is none."""
    import shutil  # it loads much, and is needed for what is wrong

    first, *rest = name.split() or [""]
    if not rest or shutil.which(first) is None:
        return ""
    return f"; without quotes around all of it, {first} is the program and the rest its arguments"


def original_environment() -> list[bytes]:
    """The environment as it was given to us, entry by entry, unless it has been changed since.

    Entries that are no assignments or come twice, which Python's own picture of the environment lacks, are kept. The
    program must not see the LC_CTYPE that Python sets in the C locale (PEP 538).
    """
    now = dict(os.environb)
    try:
        with open("/proc/self/environ", "rb") as file:
            given = file.read().split(b"\0")[:-1]
    except OSError:
        return _entries(now)
    assignments = [entry.partition(b"=") for entry in given if b"=" in entry]
    first = {name: value for name, _, value in reversed(assignments)}
    if now.get(b"LC_CTYPE") in _COERCED:
        del now[b"LC_CTYPE"]
        now |= {name: value for name, value in first.items() if name == b"LC_CTYPE"}
    return given if first == now else _entries(now)


def _entries(environment: Mapping[bytes, bytes]) -> list[bytes]:
    return [name + b"=" + value for name, value in environment.items()]


def launch(path: str, arguments: Sequence[str], environment: Mapping[bytes, bytes] | None = None) -> int:
    """Start a program and return its pid, stopped and traced just after its exec.

    ``arguments`` includes argument 0. The child inherits stdin, stdout, stderr, folder, signal mask and dispositions.
    Should we be killed, it begins.
    """
    entries = original_environment() if environment is None else _entries(environment)
    become = _Become(path, [os.fsencode(argument) for argument in arguments], entries)
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the kernel would throw the exit status away
    go_read, go_write = os.pipe()
    error_read, error_write = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())  # our handlers are not the child's
    pid = os.fork()
    if pid == 0:
        os.close(go_write)
        become.run(mask, go_read, error_write)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.close(go_read)
    os.close(error_write)
    try:
        _seize_own(pid, path)
        os.write(go_write, b"g")
        status = ptrace.wait_stop(pid)
        while os.WIFSTOPPED(status) and ptrace.event_of(status) != ptrace.EVENT_EXEC:
            ptrace.cont(pid, os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0)
            status = ptrace.wait_stop(pid)
        if not os.WIFSTOPPED(status):
            raise StartError(_why_exec_failed(path, os.read(error_read, 16)))
        return pid
    finally:
        os.close(go_write)
        os.close(error_read)


def _seize_own(pid: int, path: str) -> None:
    """Seize our child; where even that is forbidden, the reason is not the child's."""
    try:
        ptrace.seize(pid, ptrace.OPTION_TRACE_EXEC | ptrace.OPTION_MARK_SYSTEM_CALLS)
    except StartError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise
        raise StartError(
            f"{path}: nothing may be traced here: a sandbox, the container's seccomp profile, or "
            "kernel.yama.ptrace_scope=3 forbids ptrace; allow it, or run shadowgraph where it is allowed"
        ) from None


class _Become:
    """What a forked child does to become the program; all that can be is prepared before the fork."""

    def __init__(self, path: str, arguments: list[bytes], environment: list[bytes]) -> None:
        self._path = os.fsencode(path)
        self._arguments = _vector(arguments)
        self._environment = _vector(environment)
        self._dispositions = inherited_dispositions()
        self._limits = inherited_limits()

    def run(self, mask: set[int | signal.Signals], go: int, error: int) -> None:
        """Wait to be seized, undo what Python and we have done to signals, exec. Never returns."""
        try:
            for number, disposition in self._dispositions.items():
                signal.signal(number, disposition)
            for kind, limits in self._limits.items():
                resource.setrlimit(kind, limits)
            if os.read(go, 1) == b"g":
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                # os.execve refuses environments that execve(2) does not.
                _libc.execve(self._path, self._arguments, self._environment)
                os.write(error, str(ctypes.get_errno()).encode())
        finally:
            os._exit(127)


_libc = ctypes.CDLL(None, use_errno=True)


def _vector(texts: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    """A null-terminated array of C strings."""
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


def _why_exec_failed(path: str, reported: bytes) -> str:
    number = int(reported or b"0")
    if number == errno.ENOEXEC:
        return f"{path}: is neither an ELF program nor a script with a #! line; name its interpreter first (sh {path})"
    if number == errno.ENOENT:
        return f"{path}: its interpreter (the #! line, or the dynamic loader it names) does not exist"
    reason = os.strerror(number).lower() if number else "it was killed before it began"
    return f"{path}: cannot be started: {reason}"


def run_to_entry(pid: int, expected: int = 0) -> int:
    """Let a program that has just been exec'ed load and stop at its entry point (AT_ENTRY); return that address.

    Signals that arrive on the way are delivered. EndedBeforeEntry if the program ends first. Should we be killed, it
    begins. Where other controllers are ``expected`` if we are, it stops at its doorstep, where it would wait for them.
    """
    memory = Memory(pid)
    try:
        door = Doorstep.lay(pid, memory, ptrace.get_registers(pid), expected)
        if door is None:
            with ptrace.dying_with_us(pid):
                return _run_to_breakpoint(pid, memory)
        ptrace.set_options(pid, ptrace.OPTION_MARK_SYSTEM_CALLS)
        registers = _run_to(pid, door.sign, door.is_reached)
        door.restore_entry()
        if not expected:
            ptrace.set_registers(pid, door.at_entry(registers))
        return door.entry
    finally:
        memory.close()


def _run_to_breakpoint(pid: int, memory: Memory) -> int:
    entry = read_auxiliary_vector(pid)[AT_ENTRY]
    kept = TrapDisposition(pid)
    original = memory.read(entry, 1)
    memory.write(entry, _BREAKPOINT)
    registers = _run_to(pid, signal.SIGTRAP, lambda registers: registers.rip == entry + 1)
    memory.write(entry, original)
    registers.rip = entry
    ptrace.set_registers(pid, registers)
    kept.restore(memory)
    return entry


def _run_to(pid: int, sign: int, is_reached: Callable[[ptrace.Registers], bool]) -> ptrace.Registers:
    """Let it run until a signal tells that a place is reached; the registers there."""
    number = 0
    while True:
        ptrace.cont(pid, number)
        status = ptrace.wait_stop(pid)
        if not os.WIFSTOPPED(status):
            raise EndedBeforeEntry(status)
        number = os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0
        if number == sign:
            registers = ptrace.get_registers(pid)
            if is_reached(registers):
                return registers


class EndedBeforeEntry(Exception):
    """The program ended while the loader was at work; ``status`` is its wait status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def end_behind(error: BaseException, pid: int) -> int | None:
    """The wait status of a process that was being entered, if its end is what is behind an error; else None.

    A kill ends a stopped process at once, and what is then asked of it fails in any way: its memory, its mappings, its
    registers are gone. A process that lives is in a ptrace stop, since nobody but us lets it go on.
    """
    if isinstance(error, EndedBeforeEntry | ptrace.TraceeEnded):
        return error.status
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b")")[2].split()[0] == b"t":
                return None
        status = ptrace.wait_stop(pid)
    except (OSError, IndexError):
        return None
    return None if os.WIFSTOPPED(status) else status
