"""Programs that run with other rights than their user's: the kernel takes these away while a program is traced."""

from __future__ import annotations

import os
import stat

__all__ = ["WITHOUT_RIGHTS", "rights_gained"]

WITHOUT_RIGHTS = "the kernel would run it without these rights while it is traced"

_CAP_SYS_PTRACE = 1 << 19


def rights_gained(path: str, pid: int | None = None) -> str:
    """What rights a program would lose by being traced by us (execve(2), "Effect on program execution"), or "".

    ``pid`` is the process that is about to execute it, if it is not we. With CAP_SYS_PTRACE nothing is lost.
    """
    if _may_trace_anything():
        return ""
    owner = os.stat(f"/proc/{pid or os.getpid()}")
    status = os.stat(path)
    if status.st_mode & stat.S_ISUID and status.st_uid != owner.st_uid:
        return "setuid"
    if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and status.st_gid != owner.st_gid:
        return "setgid"
    try:
        os.getxattr(path, "security.capability")
    except OSError:
        return ""
    return "given capabilities by its file"


def _may_trace_anything() -> bool:
    with open("/proc/self/status") as file:
        line = next((line for line in file if line.startswith("CapEff:")), "CapEff: 0")
    return bool(int(line.split()[1], 16) & _CAP_SYS_PTRACE)
