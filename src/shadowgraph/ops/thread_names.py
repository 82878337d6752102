"""What threads are called, read again while they live: few have their name already when they make their first call."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["ThreadNames"]

# A thread is looked at again after this time in seconds, then after twice as long, and so on: most that get a name of
# their own get it at once, and a thousand threads must not keep the recorder from draining.
_FIRST_PAUSE = 0.001
_LONGEST_PAUSE = 8.0

# What tells a thread from another one with its tid, and from itself when it has executed another program, which takes
# its name away: starttime, startcode and startstack of /proc/PID/stat (proc(5), fields 22, 26 and 28), counted from the
# state behind the name. The kernel gives an exec'ing process its new memory before its new name (fs/exec.c).
_IDENTITY = (19, 23, 25)


@dataclass
class _Known:
    path: str
    name: str
    identity: list[bytes]  # empty: it has ended
    pause: float = _FIRST_PAUSE


class ThreadNames:
    """The names of threads by their numbers in the trace; ``tell`` is called with a number and a name that is new."""

    def __init__(self, tell: Callable[[int, str], None]) -> None:
        self._tell = tell
        self._known: dict[int, _Known] = {}
        self._due: list[tuple[float, int]] = []

    def meet(self, number: int, pid: int, tid: int, first: str, is_here: Callable[[], bool], now: float) -> str:
        """The name of a thread that has appeared: what it is now, or else what it was at its ``first`` call.

        ``is_here`` tells whether its process runs the program in which it made that call.
        """
        path = f"/proc/{pid}/task/{tid}/stat"
        name, identity = _read(path)
        if identity and name != first and not is_here():
            identity = []
        known = self._known[number] = _Known(path, name if identity else first, identity)
        if identity:
            heapq.heappush(self._due, (now + known.pause, number))
        return known.name

    def look(self, now: float) -> None:
        """Look again at those whose time has come."""
        while self._due and self._due[0][0] <= now:
            number = heapq.heappop(self._due)[1]
            known = self._known.get(number)
            if known is not None and self._read_again(number, known):
                known.pause = min(2 * known.pause, _LONGEST_PAUSE)
                heapq.heappush(self._due, (now + known.pause, number))

    def end(self, number: int) -> None:
        """The thread is over, or the recording: a last look, if it is still there."""
        known = self._known.pop(number, None)
        if known is not None:
            self._read_again(number, known)

    def _read_again(self, number: int, known: _Known) -> bool:
        """False where the thread has ended, or its program has."""
        name, identity = _read(known.path)
        if not identity or identity != known.identity:
            return False
        if name != known.name:
            known.name = name
            self._tell(number, name)
        return True


def _read(path: str) -> tuple[str, list[bytes]]:
    """The name of a thread and what identifies it; nothing if it has ended."""
    try:
        with open(path, "rb") as file:
            text = file.read()
    except OSError:
        return "", []
    before, _, behind = text.rpartition(b")")
    fields = behind.split()
    return before.partition(b"(")[2].decode(errors="replace"), [fields[at] for at in _IDENTITY]
