"""Whether a process that is looked at does anything: where it does not, it is no wonder that nothing is called."""

from __future__ import annotations

import os
import time

__all__ = ["Idleness"]

# What little a process does that waits, as to look at a clock now and then, and to wait again after we have stopped it.
_LEAST_NS = 500_000
_SHARE = 1000


class Idleness:
    """Of one process, since this was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = time.monotonic_ns()
        self._before = _run_time(pid)

    def sentence(self) -> str:
        """What there is to say of a process that has hardly run; "" if it has, or where that is not known."""
        passed, now = time.monotonic_ns() - self._began, _run_time(self._pid)
        if now is None or self._before is None:
            return ""
        ran = now - self._before
        if not 0 <= ran <= _LEAST_NS + passed // _SHARE:  # of threads that have ended nothing is known
            return ""
        return f"the process waits, it has {'hardly' if ran else 'not'} run meanwhile"


def _run_time(pid: int) -> int | None:
    """Nanoseconds that the threads of a process have run (proc(5), schedstat); None where the kernel does not tell."""
    total = 0
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/schedstat") as file:
                total += int(file.read().split()[0])
    except (OSError, IndexError):
        return None
    return total
