"""Starting a program so that it stops at its entry point: loaded, relocated, and not one instruction of its own run.

Nothing of ours reaches the program: no environment variable, no file descriptor, no signal disposition.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Sequence

from shadowgraph.errors import StartError
from shadowgraph.target import ptrace
from shadowgraph.target.memory import AT_ENTRY, Memory, read_auxiliary_vector

__all__ = ["EndedBeforeEntry", "find_program", "launch", "original_environment", "run_to_entry"]

_BREAKPOINT = b"\xcc"


def find_program(name: str) -> str:
    """Find a program as execvp(3) does; StartError in one sentence if it cannot be run."""
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(folder or ".", name) for folder in os.environ.get("PATH", os.defpath).split(":")]
    for path in candidates:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            _refuse_setuid(path)
            return path
    shown = next((path for path in candidates if os.path.exists(path)), None)
    if shown is None:
        where = "" if "/" in name else " in PATH; give a path (./…) for a program in this folder"
        raise StartError(f"{name}: no such program{where}")
    if os.path.isdir(shown):
        raise StartError(f"{shown}: is a folder, not a program")
    if not os.path.isfile(shown):
        raise StartError(f"{shown}: is not a regular file, so it cannot be run")
    raise StartError(f"{shown}: is not executable (chmod +x it, or name its interpreter first)")


def _refuse_setuid(path: str) -> None:
    status = os.stat(path)
    foreign_user = status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid()
    foreign_group = status.st_mode & stat.S_ISGID and status.st_gid != os.getegid()
    if (foreign_user or foreign_group) and os.geteuid() != 0:
        raise StartError(
            f"{path}: is setuid or setgid; the kernel would run it without those rights while it is traced. "
            "Run shadowgraph as root to trace it"
        )


def original_environment() -> dict[bytes, bytes]:
    """The environment as it was given to us, plus what has been changed since.

    Python adds LC_CTYPE in the C locale (PEP 538); the program must not see that.
    """
    environment = dict(os.environb)
    if environment.get(b"LC_CTYPE") == b"C.UTF-8":
        try:
            with open("/proc/self/environ", "rb") as file:
                if not any(entry.startswith(b"LC_CTYPE=") for entry in file.read().split(b"\0")):
                    del environment[b"LC_CTYPE"]
        except OSError:
            pass
    return environment


def launch(path: str, arguments: Sequence[str], environment: dict[bytes, bytes] | None = None) -> int:
    """Start a program and return its pid, stopped and traced just after its exec.

    ``arguments`` includes argument 0. The child inherits stdin, stdout, stderr, folder and signal mask.
    """
    if environment is None:
        environment = original_environment()
    go_read, go_write = os.pipe()
    error_read, error_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(path, arguments, environment, go_read, go_write, error_write)
    os.close(go_read)
    os.close(error_write)
    try:
        ptrace.seize(pid, ptrace.OPTION_TRACE_EXEC | ptrace.OPTION_MARK_SYSTEM_CALLS)
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


def _become(
    path: str,
    arguments: Sequence[str],
    environment: dict[bytes, bytes],
    go_read: int,
    go_write: int,
    error_write: int,
) -> None:
    """The child: waits to be seized, undoes what Python does to signals, and becomes the program. Never returns."""
    try:
        os.close(go_write)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python at its start
            signal.signal(number, signal.SIG_DFL)
        if os.read(go_read, 1) == b"g":
            os.execve(path, list(arguments), environment)
    except OSError as error:
        os.write(error_write, str(error.errno or 0).encode())
    finally:
        os._exit(127)


def _why_exec_failed(path: str, reported: bytes) -> str:
    number = int(reported or b"0")
    if number == errno.ENOEXEC:
        return f"{path}: is neither an ELF program nor a script with a #! line; name its interpreter first (sh {path})"
    if number == errno.ENOENT:
        return f"{path}: its interpreter (the #! line, or the dynamic loader it names) does not exist"
    reason = os.strerror(number).lower() if number else "it was killed before it began"
    return f"{path}: cannot be started: {reason}"


def run_to_entry(pid: int) -> int:
    """Let a program that has just been exec'ed load and stop at its entry point (AT_ENTRY); return that address.

    Signals that arrive on the way are delivered. EndedBeforeEntry if the program ends first.
    """
    entry = read_auxiliary_vector(pid)[AT_ENTRY]
    memory = Memory(pid)
    original = memory.read(entry, 1)
    memory.write(entry, _BREAKPOINT)
    signal_number = 0
    try:
        while True:
            ptrace.cont(pid, signal_number)
            status = ptrace.wait_stop(pid)
            if not os.WIFSTOPPED(status):
                raise EndedBeforeEntry(status)
            signal_number = os.WSTOPSIG(status) if ptrace.event_of(status) == 0 else 0
            if signal_number == signal.SIGTRAP:
                registers = ptrace.get_registers(pid)
                if registers.rip == entry + 1:
                    break
        memory.write(entry, original)
        registers.rip = entry
        ptrace.set_registers(pid, registers)
        return entry
    finally:
        memory.close()


class EndedBeforeEntry(Exception):
    """The program ended while the loader was at work; ``status`` is its wait status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status
