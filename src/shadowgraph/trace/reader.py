"""Opening a trace and reading it, table by table or in streamed batches.

trace = shadowgraph.open("app.sgt")
trace.functions            # pyarrow Tables: functions, threads, processes
trace.calls                # all calls as one Table (needs memory for all of them)
for batch in trace.batches(columns=["function", "duration_ns"]):
    ...                    # RecordBatches, in the order of thread and start; memory does not grow with the trace
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shadowgraph.errors import UsageError
from shadowgraph.trace import folder as names
from shadowgraph.trace.calls_file import CallsFile
from shadowgraph.trace.convert import Progress, convert, convert_spool
from shadowgraph.trace.salvage import functions_in, threads_in
from shadowgraph.trace.spool_reader import Spool
from shadowgraph.trace.tables import FUNCTIONS_SCHEMA, PROCESSES_SCHEMA, THREADS_SCHEMA

__all__ = ["Trace", "open_trace"]


class Trace:
    """An opened trace.

    ``metadata`` is the manifest; ``problems`` are sentences about what could not be read whole. Use it as a context
    manager, or close it, where it was recovered to a temporary place (``temporary``).
    """

    def __init__(self, path: Path, metadata: dict[str, Any], data: Path, temporary: Any = None) -> None:
        self.path = path
        self.metadata = metadata
        self.problems: list[str] = list(metadata.get("problems", []))
        self._data = data
        self._temporary = temporary

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back files and what was recovered to a temporary place."""
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    @cached_property
    def functions(self) -> pa.Table:
        """One row a function: id, name as in the file, module, address, size, source line, number of calls."""
        table = self._table(names.FUNCTIONS, FUNCTIONS_SCHEMA, "functions have numbers instead of names")
        return functions_in(self.calls_file) if table is None else table

    @cached_property
    def threads(self) -> pa.Table:
        """One row a thread: index, process, pid, tid, name, times, what was lost, and where its calls lie."""
        table = self._table(names.THREADS, THREADS_SCHEMA, "threads have no names, and processes are not told apart")
        return threads_in(self.calls_file) if table is None else table

    @cached_property
    def processes(self) -> pa.Table:
        """One row a process: index, pid, parent, command, times, exit status."""
        table = self._table(names.PROCESSES, PROCESSES_SCHEMA, "processes have no names")
        return PROCESSES_SCHEMA.empty_table() if table is None else table

    def check_tables(self) -> None:
        """Read all tables but that of calls, so that ``problems`` tells of each."""
        _ = self.functions, self.threads, self.processes

    @cached_property
    def calls_file(self) -> CallsFile:
        """The file of calls, for passes that choose their row groups themselves."""
        return CallsFile(self._data / names.CALLS, self.problems)

    @property
    def calls(self) -> pa.Table:
        """All calls, in the order of thread and start; read anew each time."""
        return pa.Table.from_batches(self.batches(), schema=self.calls_file.schema)

    @property
    def counters(self) -> dict[str, int]:
        """How many calls were ``missed``, ``dropped`` and ``filtered`` in the whole trace."""
        return {name: self.metadata.get(name, 0) for name in ("missed", "dropped", "filtered")}

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        thread: int | None = None,
        time: tuple[int | None, int | None] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Calls in batches, in the order of thread and start.

        ``thread`` is a thread index; ``time`` is (from, to) in nanoseconds since the start of the trace, None for no
        bound: calls that were in flight at some moment of it. Raises UsageError for a column that does not exist.
        """
        unknown = sorted(set(columns or []) - set(self.calls_file.schema.names))
        if unknown:
            raise UsageError(f"{self.path}: calls have no column {unknown[0]!r}")
        wanted = list(columns) if columns is not None else self.calls_file.schema.names
        first, last = self._rows_of(thread)
        needed = wanted if time is None else list(dict.fromkeys([*wanted, "start_ns", "duration_ns"]))
        for batch in self.calls_file.batches(needed, first, last, time):
            chosen = batch if time is None else batch.filter(_in_flight(batch, *time))
            if chosen.num_rows:
                yield chosen.select(wanted)

    def _rows_of(self, thread: int | None) -> tuple[int, int]:
        """First row and last row + 1 of a thread, or of all."""
        if thread is None:
            return 0, self.calls_file.rows
        at = np.flatnonzero(self.threads["thread"].to_numpy() == thread)
        if not len(at):
            raise UsageError(f"{self.path}: there is no thread {thread}")
        first = self.threads["first_row"][int(at[0])].as_py()
        return first, first + self.threads["calls"][int(at[0])].as_py()

    def _table(self, name: str, schema: pa.Schema, otherwise: str) -> pa.Table | None:
        """A small table; where it is damaged, None and a problem that says what is done ``otherwise``."""
        try:
            # Not read_table, which takes half a second to import what it needs.
            file = pq.ParquetFile(self._data / name, page_checksum_verification=True)
            table = file.read(use_threads=False)
        except (OSError, pa.ArrowException) as error:
            self.problems.append(f"{name} {_what_is_wrong(error)}; {otherwise}")
            return None
        if any(field.name not in table.schema.names or table.schema.field(field.name) != field for field in schema):
            self.problems.append(f"{name} is of another kind than its name says; {otherwise}")
            return None
        return table


def open_trace(path: Path | str, *, progress: Progress | None = None) -> Trace:
    """Open a trace folder.

    A trace whose recorder died is recovered first, in place or, where the folder cannot be written, in a temporary
    place; a recording that still goes on is read as far as it has come. UsageError where the folder is not a trace, or
    one of a newer version.
    """
    folder = Path(path)
    metadata = names.read_manifest(folder)
    if metadata.get("state") != names.RECORDING and (folder / names.CALLS).exists():
        return Trace(folder, metadata, folder)
    if not (folder / names.SPOOL).exists():
        raise UsageError(f"{folder}: the trace has lost its calls ({names.CALLS} is missing, and there is no spool)")
    return _recover(folder, metadata, progress)


def _recover(folder: Path, metadata: dict[str, Any], progress: Progress | None) -> Trace:
    """Read a trace from its spool."""
    spool = Spool(folder / names.SPOOL)
    try:
        if not spool.live and os.access(folder, os.W_OK):
            try:
                return Trace(folder, convert(folder, progress, state=names.RECOVERED), folder)
            except UsageError:
                pass  # no space for the tables beside the spool, perhaps: try elsewhere
        temporary = tempfile.TemporaryDirectory(prefix="shadowgraph-")
        state = names.RECORDING if spool.live else names.RECOVERED
        try:
            manifest = convert_spool(spool, Path(temporary.name), metadata, progress, state=state)
        except BaseException:
            temporary.cleanup()
            raise
        return Trace(folder, manifest, Path(temporary.name), temporary)
    finally:
        spool.close()


def _in_flight(batch: pa.RecordBatch, begin: int | None, end: int | None) -> Any:
    """Which calls of a batch were in flight between two times."""
    import pyarrow.compute as pc

    start, duration = batch.column("start_ns"), batch.column("duration_ns")
    before = pc.less(start, end) if end is not None else pa.scalar(True)
    after = pc.greater_equal(pc.add(start, duration), begin) if begin is not None else pa.scalar(True)
    chosen = pc.and_(before, after)
    return chosen if isinstance(chosen, pa.Array) else pa.array(np.full(batch.num_rows, chosen.as_py()))


def _what_is_wrong(error: BaseException) -> str:
    """Why a file cannot be read, as the end of a sentence."""
    if isinstance(error, FileNotFoundError):
        return "is missing"
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"cannot be read ({reason.rstrip('.')})"
