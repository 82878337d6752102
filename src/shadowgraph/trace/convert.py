"""From the spool of a recording to the tables of a trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from shadowgraph.agent import layout
from shadowgraph.errors import UsageError
from shadowgraph.trace import folder as names
from shadowgraph.trace.call_writer import CallWriter
from shadowgraph.trace.clock import fit_clock
from shadowgraph.trace.columns import CALL_DTYPE, library
from shadowgraph.trace.depths import Depths
from shadowgraph.trace.sorting import BLOCK, ThreadSorter
from shadowgraph.trace.spool_reader import Spool
from shadowgraph.trace.spool_tables import dropped_by_others, function_rows, merge_by, process_rows, thread_rows
from shadowgraph.trace.tables import FUNCTIONS_SCHEMA, PROCESSES_SCHEMA, THREADS_SCHEMA, rehearse, write_table

__all__ = ["Progress", "convert", "convert_spool", "prepare"]

# Called with (bytes done, bytes in all), often enough for a progress bar.
Progress = Callable[[int, int], None]

_UNTOLD = 1 << 40  # ticks, some minutes: so long a recorder may have gone on after it last noted the time


@dataclass
class _ThreadRows:
    """Where the calls of each thread lie in the table of calls."""

    first: dict[int, int] = field(default_factory=dict)
    count: dict[int, int] = field(default_factory=dict)
    start: dict[int, int | None] = field(default_factory=dict)


def prepare() -> None:
    """Load all that convert() will need, for those who have time now and will not have it then."""
    import numpy.ma  # noqa: F401  (pyarrow asks whether an array is a masked one)

    library()
    rehearse()


def convert(folder: Path | str, progress: Progress | None = None, *, state: str = names.COMPLETE) -> dict[str, Any]:
    """Turn the spool of a trace folder into its tables, and remove the spool; the manifest that was written.

    Nothing is lost if this is interrupted: the spool goes last.
    """
    path = Path(folder)
    manifest = names.read_manifest(path)
    spool = Spool(path / names.SPOOL)
    try:
        manifest = convert_spool(spool, path, manifest, progress, state=state)
    finally:
        spool.close()
    (path / names.SPOOL).unlink()
    return manifest


def convert_spool(
    spool: Spool, destination: Path, manifest: dict[str, Any], progress: Progress | None = None, *, state: str
) -> dict[str, Any]:
    """Write the tables of a spool and then the manifest into ``destination``; the manifest."""
    try:
        return _Conversion(spool, destination, progress).run(manifest, state)
    except OSError as error:
        (destination / (names.CALLS + ".part")).unlink(missing_ok=True)
        raise UsageError(
            f"{destination}: the tables of the trace cannot be written ({error.strerror or error}); "
            f"what was recorded is kept in {spool.path} and is read when the trace is opened"
        ) from None


class _Conversion:
    """One conversion, from spool to manifest."""

    def __init__(self, spool: Spool, destination: Path, progress: Progress | None) -> None:
        self._spool = spool
        self._destination = destination
        self._progress = progress
        self._done = 0
        # A thread of more than one block is read twice: see sorting.py.
        sizes = [sum(length for _, length in pieces) for pieces in spool.pieces.values()]
        self._all = sum(size * (2 if size > BLOCK * layout.RECORD_SIZE else 1) for size in sizes)
        metadata = _merged(spool.contents("metadata"))
        self._clock = fit_clock(_rows(spool.contents("clock")), metadata.get("tick_hz"), metadata.pop("begin", None))
        self._metadata = metadata

    def run(self, manifest: dict[str, Any], state: str) -> dict[str, Any]:
        """Convert; the manifest, which is written last."""
        threads, writer, sorter = self._write_calls()
        spool, clock, problems = self._spool, self._clock, list(self._spool.problems)
        functions = function_rows(spool, writer.calls_of_function)
        processes = process_rows(spool, clock)
        rows = thread_rows(spool, clock, threads.first, threads.count, threads.start)
        write_table(self._destination / names.FUNCTIONS, FUNCTIONS_SCHEMA, functions)
        write_table(self._destination / names.PROCESSES, PROCESSES_SCHEMA, processes)
        write_table(self._destination / names.THREADS, THREADS_SCHEMA, rows)
        pq.read_metadata(self._destination / (names.CALLS + ".part")).write_metadata_file(
            self._destination / names.CALLS_FOOTER
        )
        os.replace(self._destination / (names.CALLS + ".part"), self._destination / names.CALLS)
        if sorter.damaged:
            problems.append(f"{sorter.damaged} records are damaged and were left out")
        known = self._metadata | {key: value for key, value in manifest.items() if key not in ("state", "problems")}
        end = _merged(spool.contents("end"))
        result = known | {
            "state": state,
            "start_realtime_ns": clock.start_realtime_ns,
            "start_monotonic_ns": clock.start_monotonic_ns,
            "duration_ns": max(writer.last_end, clock.nanoseconds(self._end_tick())),
            "clock": {"origin": clock.origin, "multiplier": clock.multiplier},
            "end": {key: value for key, value in end.items() if key != "tick"},
            "calls": writer.rows,
            "threads": len(rows["thread"]),
            "processes": len(processes["process"]),
            "tids": len(set(zip(rows["pid"], rows["tid"], strict=True))),
            "pids": len(set(processes["pid"])),
            "functions": len(functions["function"]),
            "called": int(np.count_nonzero(functions["calls"])),
            "missed": sum(rows["missed"]) + sum(processes["missed"]),
            "dropped": sum(rows["dropped"]) + dropped_by_others(spool),
            "filtered": sum(rows["filtered"]),
            "problems": problems,
        }
        names.write_manifest(self._destination, result)
        return result

    def _write_calls(self) -> tuple[_ThreadRows, CallWriter, ThreadSorter]:
        """Sort and write the calls of all threads, in the order of their indexes."""
        spool, rows = self._spool, _ThreadRows()
        starts = {row["thread"]: row["start"] for row in _rows(spool.contents("threads")) if row.get("start")}
        calls_in_flight = self._open_calls()
        depths = Depths() if self._metadata.get("beside_others") else None
        writer = CallWriter(self._destination / (names.CALLS + ".part"), self._clock, _rows(spool.contents("values")))
        try:
            sorter = ThreadSorter(spool.fd, self._advance)
            for thread in sorted(spool.pieces.keys() | calls_in_flight.keys()):
                rows.first[thread] = writer.rows
                start = starts.get(thread, self._clock.origin)
                open_calls = calls_in_flight.get(thread, np.empty(0, CALL_DTYPE))
                if depths is not None:
                    depths.clear()
                for block in sorter.sort(spool.pieces.get(thread, []), start, open_calls):
                    if depths is not None:
                        depths.close_gaps(block)
                    writer.add(thread, block)
                    if thread not in rows.start and writer.rows > rows.first[thread]:
                        rows.start[thread] = int(block.calls["start"][block.order[0]])
                rows.count[thread] = writer.rows - rows.first[thread]
        finally:
            writer.close()
        return rows, writer, sorter

    def _end_tick(self) -> int:
        """The tick at which the recording ended, as far as anybody knows: the first one, that of a stop at a limit."""
        ends = [end["tick"] for end in self._spool.contents("end") if end.get("tick")]
        return int(ends[0]) if ends else self._clock.last

    def _last_tick(self) -> int:
        """The last tick that anybody knows of."""
        return max(self._clock.last, *(int(end.get("tick") or 0) for end in self._spool.contents("end")), 0)

    def _open_calls(self) -> dict[int, np.ndarray[Any, Any]]:
        """The calls in flight by thread: the last word on each process counts.

        They end with their thread or process, if it is known when that ended, or else with the recording.
        """
        last_word: dict[int, list[dict[str, Any]]] = dict(self._spool.chunks.get("open", []))
        ends, end, last = self._ends_of_threads(), self._end_tick(), self._last_tick()
        turn = 1 << layout.START_BITS
        by_thread: dict[int, list[tuple[Any, ...]]] = {}
        for row in (row for content in last_word.values() for row in content):
            # Of the times with these 48 bits, the last one that is not to come. A recorder that was killed may have
            # noted a call that has begun since anybody looked at the clock.
            start = last + (int(row["start"]) - last) % turn
            start -= turn if start > last + _UNTOLD else 0
            duration = max(ends.get(row["thread"], end) - start, 0)
            call = (start, duration, row["function"], row["depth"], layout.KIND_OPEN, 0, 0, 0)
            by_thread.setdefault(row["thread"], []).append(call)
        return {thread: np.array(calls, CALL_DTYPE) for thread, calls in by_thread.items()}

    def _ends_of_threads(self) -> dict[int, int]:
        """The ticks at which threads ended, by themselves or with their process, where that is known."""
        processes = merge_by(self._spool, "processes", "process")
        ends = {}
        for thread, row in merge_by(self._spool, "threads", "thread").items():
            process = processes.get(row.get("process", self._spool.thread_process.get(thread, 0)), {})
            known = [int(end) for end in (row.get("end"), process.get("end")) if end]
            if known:
                ends[thread] = min([*known, self._end_tick()])
        return ends

    def _advance(self, amount: int) -> None:
        """Tell how far we are."""
        self._done += amount
        if self._progress is not None:
            self._progress(self._done, self._all)


def _rows(contents: list[Any]) -> list[dict[str, Any]]:
    """The rows of several chunks, each a row or a list of rows."""
    return [row for content in contents for row in (content if isinstance(content, list) else [content])]


def _merged(contents: list[dict[str, Any]]) -> dict[str, Any]:
    """Several chunks of the same kind, later ones adding to earlier ones."""
    result: dict[str, Any] = {}
    for content in contents:
        result |= content
    return result
