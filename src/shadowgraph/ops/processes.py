"""Processes as /proc shows them: whether they live, whether they share an arena, and which one a number means."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shadowgraph.errors import StartError
from shadowgraph.target.running import vet_running

__all__ = [
    "alone_with",
    "end_told",
    "filters_of",
    "find_process",
    "find_thread",
    "gone_with_it",
    "just_now",
    "runs",
    "sharers",
    "shares",
    "start_time",
    "vet_alone",
]

_LOCK_SECONDS = 60.0
_MOMENT_SECONDS = 5.0
_ARENA = b"memfd:shadowgraph"
_PF_EXITING = 4  # include/linux/sched.h


def runs(pid: int) -> bool:
    """Whether a process runs: any of its threads. The first one is a zombie when it has ended before the others."""
    return start_time(pid) is not None


@contextmanager
def alone_with(pid: int) -> Iterator[None]:
    """Keep others from changing a process's hooks. Who comes meanwhile waits; StartError if that takes too long.

    The lock is on its folder in /proc: it ends with who holds it, however that ends.
    """
    try:
        folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise StartError(f"process {pid} has ended") from None
    try:
        _wait_for_lock(folder, pid)
        yield
    finally:
        os.close(folder)  # and with it the lock


@contextmanager
def alone_if_free(pid: int) -> Iterator[bool]:
    """As :func:`alone_with`, for who must not wait: whether nobody else changes a process's hooks at this moment."""
    try:
        folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise StartError(f"process {pid} has ended") from None
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(folder)


def vet_alone(pid: int) -> None:
    """StartError if a process cannot be attached to.

    A controller that is attaching at this moment is no reason: it is waited for.
    """
    try:
        vet_running(pid)
    except StartError:
        if not runs(pid):
            raise
        with alone_with(pid):
            vet_running(pid)


def _wait_for_lock(folder: int, pid: int) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise StartError(
                    f"process {pid}: another controller has been changing its hooks for {_LOCK_SECONDS:g} seconds"
                ) from None
        time.sleep(0.005)


@contextmanager
def end_told(pid: int) -> Iterator[None]:
    """If the process ends in here, say so: whatever was to be done with it finds no such process, or no such file."""
    try:
        yield
    except (StartError, OSError) as error:
        if runs(pid) and not isinstance(error, ProcessLookupError) and not _is_dying(pid):
            raise
        raise StartError(f"process {pid} ended before it could be attached to") from None


@contextmanager
def gone_with_it(pid: int) -> Iterator[None]:
    """If the process ends in here, what was to be taken out of it has gone with it."""
    try:
        yield
    except (StartError, OSError) as error:
        if runs(pid) and not isinstance(error, ProcessLookupError) and not _is_dying(pid):
            raise


def _is_dying(pid: int) -> bool:
    """Whether a process has been killed and is about to be gone: SIGKILL is pending, or it is leaving (PF_EXITING)."""
    fields = _stat(f"/proc/{pid}/stat")
    if fields is None or int(fields[6]) & _PF_EXITING:
        return True
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            pending = [int(line.split()[1], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return any(mask & 1 << signal.SIGKILL - 1 for mask in pending)


def just_now() -> int:
    """The kernel's ticks a moment ago (see start_time()): who began since may have been forked while we worked."""
    return int((time.clock_gettime(time.CLOCK_BOOTTIME) - _MOMENT_SECONDS) * os.sysconf("SC_CLK_TCK"))


def start_time(pid: int) -> int | None:
    """When a process began, in the kernel's ticks: with its number it says who it is. None if it has ended."""
    fields = _stat(f"/proc/{pid}/stat")
    if fields is None:
        return None
    if fields[0] in b"ZX" and not any(True for _ in _living_threads(pid)):
        return None
    return int(fields[19])


def _stat(path: str) -> list[bytes] | None:
    """The fields behind the name: state, parent ... (proc(5))."""
    try:
        with open(path, "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def _living_threads(pid: int) -> Iterator[int]:
    try:
        tids = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return
    for tid in tids:
        fields = _stat(f"/proc/{pid}/task/{tid}/stat")
        if fields is not None and fields[0] not in b"ZX":
            yield tid


def sharers(inode: int, since: int) -> list[int]:
    """All processes whose agent has the arena with this inode. None began before ``since`` (see start_time())."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and shares(int(name), inode, since)]


def shares(pid: int, inode: int, since: int = 0) -> bool:
    """Whether a process's agent has the arena with this inode; never for ourselves, nor if it began before ``since``.

    Other controllers map the arena, too, from its beginning; the agent alone has another mapping of a part of it.
    """
    fields = _stat(f"/proc/{pid}/stat")
    if fields is None or pid == os.getpid() or int(fields[19]) < since:
        return False
    # A first thread that has ended shows no memory any more.
    tid = pid if fields[0] not in b"ZX" else next(_living_threads(pid), None)
    try:
        with open(f"/proc/{pid}/task/{tid}/maps", "rb") as file:
            parts = [line.split(None, 5) for line in file if _ARENA in line]
        return any(inode_of == b"%d" % inode and int(offset, 16) for _, _, offset, _, inode_of, _ in parts)
    except OSError:
        return False


def find_process(number: int, inode: int) -> int | None:
    """The process that calls itself ``number`` and shares an arena; None if it has ended.

    A process in a PID namespace of its own (a sandbox, a container) has another number for itself than we have.
    """
    if _own_number(f"/proc/{number}") == number and shares(number, inode):
        return number
    for name in os.listdir("/proc"):
        if name.isdigit() and _own_number(f"/proc/{name}") == number and shares(int(name), inode):
            return int(name)
    return None


def find_thread(pid: int, number: int) -> int | None:
    """The thread of a process that calls itself ``number``."""
    if _own_number(f"/proc/{pid}/task/{number}") == number:
        return number
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return None
    return next((int(tid) for tid in tids if _own_number(f"/proc/{pid}/task/{tid}") == number), None)


def _own_number(folder: str) -> int | None:
    """What the process or thread of a folder in /proc calls itself."""
    numbers = _status(folder, "NSpid")
    return int(numbers.split()[-1]) if numbers else None


def filters_of(pid: int) -> int:
    """How many seccomp filters hold a process; 0 where the kernel does not tell (before Linux 5.9)."""
    return int(_status(f"/proc/{pid}", "Seccomp_filters") or 0)


def _status(folder: str, name: str) -> str | None:
    try:
        with open(f"{folder}/status", errors="replace") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith(name + ":")), None)
    except OSError:
        return None
