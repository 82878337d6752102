"""What functions, threads and processes are called in a view."""

from __future__ import annotations

from functools import cached_property

from shadowgraph.trace.reader import Trace
from shadowgraph.view.table import short_command

__all__ = ["Names"]


class Names:
    """Names of one trace. Only functions that were called are demangled, and all at once.

    ``raw`` leaves names as they are in the file; ``lines`` adds the source line where it is known.
    """

    def __init__(self, trace: Trace, *, raw: bool = False, lines: bool = False) -> None:
        self._trace = trace
        self._raw = raw
        self._lines = lines

    @cached_property
    def _rows(self) -> dict[int, tuple[str, str, str | None, str]]:
        """Name, module, source line and name in the file of each function that was called, by id."""
        table = self._trace.functions
        columns = ["function", "name", "module", "file", "line"]
        called = [
            row for row in zip(*(table[name].to_pylist() for name in [*columns, "calls"]), strict=True) if row[-1]
        ]
        names = [row[1] for row in called]
        shown = names if self._raw else _demangled(names)
        lines = self._source_lines()
        return {
            row[0]: (name, row[2], f"{row[3]}:{row[4]}" if row[3] else lines.get(row[0]), row[1])
            for row, name in zip(called, shown, strict=True)
        }

    def _source_lines(self) -> dict[int, str]:
        """Source lines of the functions that were called, if they are to be shown."""
        if not self._lines:
            return {}
        from shadowgraph.view.source_lines import find_lines

        table = self._trace.functions
        columns = [table[name].to_pylist() for name in ("function", "module_path", "address", "calls")]
        rows = [(function, path, address) for function, path, address, calls in zip(*columns, strict=True) if calls]
        return find_lines(rows, self._trace.metadata.get("build_ids") or {})

    @cached_property
    def _own_module(self) -> str:
        """The module whose functions need no module beside their name: the program that was recorded."""
        metadata = self._trace.metadata
        return str(metadata.get("executable") or metadata.get("program", "")).rsplit("/", 1)[-1]

    @property
    def ids(self) -> list[int]:
        """The ids of all functions that were called."""
        return list(self._rows)

    def function(self, function: int) -> str:
        """The name alone."""
        row = self._rows.get(function)
        return row[0] if row else f"function_{function}"

    def raw(self, function: int) -> str:
        """The name as it is in the file."""
        row = self._rows.get(function)
        return row[3] if row else f"function_{function}"

    def module(self, function: int) -> str:
        """The short name of the module."""
        row = self._rows.get(function)
        return row[1] if row else "?"

    def line(self, function: int) -> str | None:
        """FILE:LINE, if it is known."""
        row = self._rows.get(function)
        return row[2] if row else None

    def shown_line(self, function: int) -> str | None:
        """FILE:LINE, if it is known and asked for."""
        return self.line(function) if self._lines else None

    def label(self, function: int, *, line: bool = True) -> str:
        """The name as text views show it: with the module of a library in brackets, and the line if asked for."""
        text = self.function(function)
        if self.module(function) != self._own_module:
            text += f" [{self.module(function)}]"
        place = self.shown_line(function) if line else None
        return f"{text}  {place}" if place else text

    @cached_property
    def _threads(self) -> dict[int, tuple[str, int, int]]:
        """Name, tid and pid of each thread by index."""
        table = self._trace.threads
        rows = zip(*(table[name].to_pylist() for name in ("thread", "name", "tid", "pid")), strict=True)
        return {thread: (name, tid, pid) for thread, name, tid, pid in rows}

    def thread(self, thread: int) -> tuple[str, int, int]:
        """Name, tid and pid of a thread."""
        return self._threads.get(thread, ("", thread, 0))

    def thread_label(self, thread: int) -> str:
        """NAME-TID, as the kernel's tracer writes it."""
        name, tid, _ = self.thread(thread)
        return f"{name or 'thread'}-{tid}"

    @cached_property
    def _processes(self) -> dict[int, tuple[str, int]]:
        """Command and pid of each process by index."""
        table = self._trace.processes
        rows = zip(*(table[name].to_pylist() for name in ("process", "command", "pid")), strict=True)
        return {process: (command, pid) for process, command, pid in rows}

    def process(self, process: int) -> tuple[str, int]:
        """Command and pid of a process."""
        return self._processes.get(process, ("", 0))

    def process_label(self, process: int) -> str:
        """The command line, if it is not too long, and the pid set apart from its last word."""
        command, pid = self.process(process)
        return f"{short_command(command) or 'process'} (pid {pid})"


def _demangled(names: list[str]) -> list[str]:
    """Names as their programmers wrote them."""
    if not any(name.startswith(("_Z", "_R")) for name in names):
        return names
    from shadowgraph.image.demangle import demangle

    return demangle(names)
