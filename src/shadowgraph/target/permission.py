"""Whether we may trace a process, and what to do if not: asked before anything of it is read."""

from __future__ import annotations

import os

from shadowgraph.target.status import read_status

__all__ = ["may_trace", "why_forbidden"]

_SCOPE = "/proc/sys/kernel/yama/ptrace_scope"
# Documentation/admin-guide/LSM/Yama.rst of the kernel
_SCOPES = {
    1: "lets a user trace only what the tracer has started",
    2: "lets nobody trace but who has CAP_SYS_PTRACE",
    3: "lets nobody trace, until the next boot",
}


def may_trace(pid: int) -> bool:
    """Whether the kernel would let us: opening a process's memory asks the same as attaching does (mm_access())."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:
        pass  # it ends just now, or has no memory: others will say so
    return True


def why_forbidden(pid: int) -> str:
    """Why not, in a sentence, with a remedy."""
    refused = f"process {pid} may not be traced by this user"
    owner, ours = _owner(read_status(pid)), _owner(read_status(os.getpid()))
    if None not in (owner, ours) and owner != ours:
        whose = f"{refused}: it belongs to {_name(owner)}, and we are {_name(ours)}"
        if ours == 0:
            return f"{whose} without CAP_SYS_PTRACE; in a container, that is given by --cap-add SYS_PTRACE"
        return f"{whose}; run shadowgraph as that user (sudo -u '#{owner}' …) or as root (sudo …)"
    scope = _scope()
    if scope in _SCOPES:
        advice = "restart the machine with another value" if scope == 3 else "run shadowgraph as root (sudo …)"
        also = ", or set it to 0 (sudo sysctl kernel.yama.ptrace_scope=0)" if scope < 3 else ""
        start = ", or let shadowgraph start the program" if scope == 1 else ""
        return f"{refused}: kernel.yama.ptrace_scope is {scope}, which {_SCOPES[scope]}; {advice}{start}{also}"
    remedy = "a sandbox may forbid it even to root" if ours == 0 else "run shadowgraph as root (sudo …)"
    return (
        f"{refused}: it has rights that we have not (setuid, capabilities, another user namespace), or forbids it "
        f"(prctl PR_SET_DUMPABLE); {remedy}"
    )


def _owner(status: dict[str, str] | None) -> int | None:
    """The effective user of a process."""
    words = (status or {}).get("Uid", "").split()
    return int(words[1]) if len(words) > 1 else None


def _name(user: int | None) -> str:
    import pwd

    try:
        return f"{pwd.getpwuid(user or 0).pw_name} (uid {user})"
    except KeyError:
        return f"uid {user}"


def _scope() -> int:
    try:
        with open(_SCOPE) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
