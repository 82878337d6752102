"""Looking at a process that runs already: what can never be attached to is refused in one sentence."""

from __future__ import annotations

import os
from collections.abc import Mapping

from shadowgraph.errors import StartError
from shadowgraph.target.permission import may_trace, why_forbidden
from shadowgraph.target.status import read_status
from shadowgraph.target.vet import vet_process

__all__ = ["refuse_ended", "vet_running"]

_PF_KTHREAD = 0x00200000  # include/linux/sched.h


def vet_running(pid: int) -> None:
    """StartError if there is no such process, or it is of a kind that cannot be traced."""
    status = read_status(pid)
    if status is None:
        raise StartError(f"there is no process {pid}")
    group = int(status.get("Tgid", pid))
    if group != pid:
        raise StartError(f"{pid} is a thread of process {group}; attach to that (--pid {group})")
    if pid == os.getpid():
        raise StartError(f"process {pid} is this very one; in Python, attach_self() traces the process that calls it")
    refuse_ended(pid, status)
    if _flags(pid) & _PF_KTHREAD:
        raise StartError(f"process {pid} ({status.get('Name', '')}) is a thread of the kernel, not a program")
    tracer = int(status.get("TracerPid", 0))
    if tracer:
        name = (read_status(tracer) or {}).get("Name", "unknown")
        raise StartError(f"process {pid} is traced by process {tracer} ({name}) already; end that first")
    if not may_trace(pid):
        raise StartError(why_forbidden(pid))
    vet_process(pid)
    if int(status.get("Seccomp_filters", 0)) > int((read_status(os.getpid()) or {}).get("Seccomp_filters", 0)):
        raise StartError(
            f"process {pid} is confined by a seccomp filter of its own, which might end it for a system call made in it"
        )


def refuse_ended(pid: int, status: Mapping[str, str]) -> None:
    """StartError if a process has ended, or its first thread, through which it is looked at."""
    if status.get("State", "")[:1] in ("Z", "X"):
        if _threads(pid) < 2:
            raise StartError(f"process {pid} has ended already (it is a zombie waiting for its parent)")
        raise StartError(f"the first thread of process {pid} has ended before the others: nothing can be attached then")


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def _flags(pid: int) -> int:
    """The kernel's flags of a process (field 9 of proc(5), stat)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b") ")[2].split()[6])
    except (OSError, IndexError):
        return 0
