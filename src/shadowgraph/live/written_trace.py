"""The trace of a recorder: in however many programs it is, all that is recorded goes into one spool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shadowgraph.errors import UsageError
from shadowgraph.ops.choices import Chosen
from shadowgraph.ops.drain import Numbering, process_command
from shadowgraph.ops.function_ids import ArenaNumbers, FunctionIds
from shadowgraph.ops.result import end_of
from shadowgraph.trace.folder import SPOOL, FolderError, NewTrace
from shadowgraph.trace.spool_writer import SpoolWriter
from shadowgraph.trace.ticks import clock_pair, read_ticks

__all__ = ["WrittenTrace"]


class WrittenTrace:
    """A trace that is being written. Its times count from ``tick_base``, as in all arenas that it has records of.

    ``writing`` is held by whoever writes to the spool, or gives numbers: each program has a thread that does.
    """

    def __init__(self, path: Path, metadata: dict[str, Any], tick_base: int, *, force: bool) -> None:
        try:
            self._new = NewTrace(path, metadata, force=force)
        except FolderError as error:
            raise UsageError(error.in_python) from None
        self.writing = threading.Lock()
        self.tick_base = tick_base
        self.ids = FunctionIds()
        self.numbering = Numbering()
        self.is_kept = False
        self._is_left_running = False
        try:
            self.spool = SpoolWriter(self._new.folder / SPOOL)
        except UsageError:
            self._new.undo()
            raise
        self.note_clock()

    def keep(self) -> None:
        """There is something to be recorded."""
        self.is_kept = True
        self._new.keep()

    def undo(self) -> None:
        """There is not."""
        self.spool.close()
        self._new.undo()

    def now(self) -> int:
        """Ticks since the base."""
        return read_ticks() - self.tick_base

    def note_clock(self) -> None:
        """What time it is; if we are killed, the last note counts."""
        self.spool.append("clock", clock_pair(self.tick_base))

    def new_process_of(self, pid: int) -> Callable[[int, int, int], int]:
        """What notes the processes of a program that a process runs now."""
        command = process_command(pid)

        def new_process(process: int, parent: int, start: int) -> int:
            number = self.numbering.processes
            self.numbering.processes += 1
            row = {"process": number, "pid": process, "parent": parent, "command": command, "start": start}
            self.spool.append("processes", [row])
            return number

        return new_process

    def tell_functions(self, numbers: ArenaNumbers, chosen: Chosen) -> None:
        """Have the names of functions in the trace before there are calls of them."""
        for choice in chosen.choices.values():
            table, path = choice.known.functions, choice.module.path
            numbers.module(path, choice.module.name)
            for row, number in choice.numbers.items():
                name = choice.names.get(row) or table.name(row)
                numbers.adopt(number, path, int(table.start[row]), name, int(table.size[row]))
        self.ids.append_new(self.spool)

    def leave_running(self) -> None:
        """Something of what is recorded goes on without us."""
        self._is_left_running = True

    def write(self) -> dict[str, Any]:
        """Nothing is recorded any more: write the tables. Returns the manifest."""
        self.spool.append("end", end_of(self.spool, self.now(), None, stopped=self._is_left_running))
        self.spool.close()
        from shadowgraph.trace.convert import convert

        return convert(self._new.folder)
