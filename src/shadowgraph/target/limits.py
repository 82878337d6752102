"""Resource limits: ours are raised without the program's being changed, the program's for a moment."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["inherited_limits", "lifted", "raise_own_limits"]

_OURS = (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_CPU)
_FILES = 65536  # more are refused by the kernel where fs.nr_open is small

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

    A file of shared memory is one, and the kernel sends SIGXFSZ for one that is too large (ftruncate(2)).
    """
    saved = {kind: resource.prlimit(pid, kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)}
    for kind, limits in saved.items():
        _raise(pid, kind, limits)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # and nothing else: what was raised meanwhile goes on
            for kind, limits in saved.items():
                resource.prlimit(pid, kind, limits)


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
