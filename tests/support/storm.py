"""The program live_storm, seen from outside while its threads call: how many calls there were, what handlers saw."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shadowgraph.target.memory import Memory
from tests.attach.conftest import built
from tests.support.attached import Running

__all__ = ["USERS", "Span", "Storm"]

USERS = 8
_NUMBERS = [("begun", "i8"), ("ended", "i8"), ("last_entry", "i8"), ("last_exit", "i8"), ("wrong_order", "i8")]
_PAGE = np.dtype({
    "names": [*(name for name, _ in _NUMBERS), "entries", "exits"],
    "formats": [*(kind for _, kind in _NUMBERS), ("i8", USERS), ("i8", USERS)],
    "offsets": [0, 8, 16, 24, 32, 40, 40 + 8 * USERS],
    "itemsize": 512,
})  # fmt: skip


class Storm:
    """A running live_storm with so many threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.running = Running([built("live_storm"), str(threads)], ready=None)
        assert self.running.process.stdout is not None
        self.pages_at, self.sequence_at = (int(word, 16) for word in self.running.process.stdout.readline().split())
        self.pid = self.running.pid
        self._memory = Memory(self.pid)
        self._sequence = 0

    def __enter__(self) -> Storm:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.close()
        self.running.__exit__()

    def pages(self) -> npt.NDArray[np.void]:
        """What the threads have counted."""
        content = self._memory.read(self.pages_at, self.threads * _PAGE.itemsize)
        return np.frombuffer(content, _PAGE)

    def comes(self, user: int) -> None:
        """Say that a user of handlers is about to come, behind all that came before."""
        self._sequence += 1
        self._memory.write(self.sequence_at + 8 * user, self._sequence.to_bytes(8, "little"))


class Span:
    """How many calls a user that comes and goes must have seen, and how many it may have."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self.least = self.most = 0

    def coming(self) -> None:
        """It is about to be on."""
        self._first_possible = self._storm.pages()["ended"]

    def has_come(self) -> None:
        """It is on."""
        self._first_certain = self._storm.pages()["begun"]

    def going(self) -> None:
        """It is about to be off."""
        certain = self._storm.pages()["ended"] - self._first_certain
        self.least += int(np.maximum(certain, 0).sum())

    def has_gone(self) -> None:
        """It is off."""
        self.most += int((self._storm.pages()["begun"] - self._first_possible).sum())
