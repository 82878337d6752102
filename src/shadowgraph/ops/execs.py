"""Whether a process that is about to execute another program may be followed without harm to it."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from shadowgraph.agent import layout
from shadowgraph.errors import StartError
from shadowgraph.ops.processes import filters_of
from shadowgraph.target.memory import Memory
from shadowgraph.target.rights import WITHOUT_RIGHTS, rights_gained

__all__ = ["only_executes", "refuse_confined", "refuse_rights"]

_ONLY_EXECUTE = frozenset(
    ("chrt", "env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time", "timeout", "xargs")
)


def only_executes(program: str) -> bool:
    """Whether a program is there to execute another one, as `env` is that begins most scripts: that one is meant."""
    return os.path.basename(program) in _ONLY_EXECUTE


def refuse_confined(pid: int) -> None:
    """StartError for a process that has put itself into a seccomp sandbox that we are not in.

    A system call made in it for our sake might be what its filter ends it for.
    """
    if filters_of(pid) > filters_of(os.getpid()):
        raise StartError(
            f"process {pid} is confined by a seccomp filter of its own; what it loads and executes is not traced"
        )


def refuse_rights(pid: int, arguments: npt.NDArray[np.uint64]) -> None:
    """StartError if the program that a process is about to execute would lose rights by being traced.

    ``arguments`` are those of the event (native/agent/event.c).
    """
    try:
        path, shown = _program(pid, *(int(word) for word in arguments[:3]))
        rights = rights_gained(path, pid)
    except OSError:
        return  # the exec will fail as well, or it will be seen then
    if rights:
        raise StartError(f"{shown}: is {rights}; {WITHOUT_RIGHTS}")


def _program(pid: int, variant: int, first: int, second: int) -> tuple[str, str]:
    """Where we find the file that an exec function is called for, and how to call it."""
    if variant == layout.EXEC_FEXECVE:
        link = f"/proc/{pid}/fd/{first}"
        return link, os.readlink(link)
    memory = Memory(pid)
    try:
        name = memory.read_string(first if variant == layout.EXEC_EXECVE else second)
    finally:
        memory.close()
    if name.startswith("/"):
        return os.path.join(f"/proc/{pid}", "root", name[1:]), name
    folder = "cwd" if variant == layout.EXEC_EXECVE or np.uint32(first & 0xFFFFFFFF) == 0xFFFFFF9C else f"fd/{first}"
    return f"/proc/{pid}/{folder}/{name}", name
