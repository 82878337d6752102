"""Resource limits: ours are raised without the program's being changed, the program's for a moment."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shadowgraph.errors import StartError

__all__ = ["inherited_limits", "lifted", "raise_own_limits"]

_OURS = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CPU)
_FILES = 65536  # more are refused by the kernel where fs.nr_open is small
_FILES_NEEDED = 8
_LARGE = 1 << 40

Limits = dict[int, tuple[int, int]]

_inherited: Limits = {}


def raise_own_limits() -> None:
    """Raise the limits that a user sets for the program, and that we do not need to keep: files, memory, time."""
    for kind in _OURS:
        limits = resource.getrlimit(kind)
        _inherited.setdefault(kind, limits)
        _raise(0, kind, limits)


def inherited_limits() -> Limits:
    """The limits that we had before they were raised: those of a program that we start."""
    return dict(_inherited)


@contextmanager
def lifted(pid: int) -> Iterator[None]:
    """While this holds, a process may open files and make them as large as they need to be.

    A file of shared memory is one, and the kernel sends SIGXFSZ for one that is too large (ftruncate(2)). Limits of
    another user's process are changed with CAP_SYS_RESOURCE alone (prlimit(2)): without it they must be high enough.
    """
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE)
    except PermissionError:
        _require_room(pid)
        yield
        return
    saved = {kind: resource.prlimit(pid, kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)}
    for kind, limits in saved.items():
        _raise(pid, kind, limits)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # and nothing else: what was raised meanwhile goes on
            for kind, limits in saved.items():
                resource.prlimit(pid, kind, limits)


def _require_room(pid: int) -> None:
    """StartError if a process may not open some more files, or not make them as large as they are going to be."""
    with open(f"/proc/{pid}/limits") as file:
        soft = {line[:26].strip(): line[26:].split()[0] for line in file}
    needed = {"Max open files": len(os.listdir(f"/proc/{pid}/fd")) + _FILES_NEEDED, "Max file size": _LARGE}
    for name, least in needed.items():
        if soft[name] != "unlimited" and int(soft[name]) < least:
            raise StartError(
                f"process {pid}: its limit of {name.removeprefix('Max ')}, {soft[name]}, is too low and cannot be "
                "raised without the capability CAP_SYS_RESOURCE; run as the user that it belongs to"
            )


def _raise(pid: int, kind: int, limits: tuple[int, int]) -> None:
    """As high as we may: without limit for the superuser, else to the hard limit."""
    soft, hard = limits
    most = resource.RLIM_INFINITY
    if kind == resource.RLIMIT_NOFILE:
        most = max(_FILES, soft, hard) if resource.RLIM_INFINITY not in limits else _FILES
    for wanted in ((most, most), (hard, hard)):
        try:
            resource.prlimit(pid, kind, wanted)
            return
        except (PermissionError, ValueError):
            continue
