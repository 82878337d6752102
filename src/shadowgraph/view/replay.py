"""`shadowgraph replay`: the function graph in the order of time, laid out as the kernel's tracer of that name does."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shadowgraph.analysis.threads import ThreadCalls, ThreadSpan, thread_spans
from shadowgraph.trace.calls_file import column_address
from shadowgraph.trace.columns import NativeBatch, NativeTexts, ReplayNames, ReplayOptions, address, library, new_array
from shadowgraph.trace.reader import Trace
from shadowgraph.view.loss import loss_lines
from shadowgraph.view.names import Names
from shadowgraph.view.terminal import Output

__all__ = ["Choice", "write_replay"]

_EVER = 1 << 62
_MOST_NAMES = 5
_FIRST_BUFFER = 64 << 10
_BUFFER = 4 << 20
_DONE, _NEEDS_BATCH, _BUFFER_FULL = range(3)

_HEADER = ["# tracer: function_graph", "#"]
_TIME_COLUMN = ["#       SECONDS   ", "#          |      "]
_COLUMNS_HEADER = [
    "#    TID      DURATION                  FUNCTION CALLS",
    "#     |        |   |                     |   |   |   |",
]


@dataclass(frozen=True)
class Choice:
    """What of a trace is shown: times in nanoseconds, None for no bound; ``depth`` levels; these threads or all.

    ``timestamps`` begins each line with its time, in seconds since the start of the trace. ``limit`` is how many lines
    are shown at most, 0 for all. Of ``functions`` the calls are shown, and what lies below them; None for all.
    """

    begin: int | None = None
    end: int | None = None
    depth: int | None = None
    threads: frozenset[int] | None = None
    switches: bool = True
    timestamps: bool = False
    limit: int = 0
    functions: frozenset[int] | None = None


def write_replay(output: Output, trace: Trace, names: Names, choice: Choice) -> None:
    """Write all lines, the first ones as soon as they are known; memory does not grow with the trace."""
    for line in loss_lines(trace):
        output.line(f"# {line}")
    titles = _COLUMNS_HEADER
    if choice.timestamps:
        titles = [time + title.replace("#", " ") for time, title in zip(_TIME_COLUMN, titles, strict=True)]
    for line in [*_HEADER, *titles]:
        output.line(line)
    output.flush()
    told, is_empty = len(trace.problems), True
    left = choice.limit
    with _Replay(trace, names, choice) as replay:
        for piece in replay.pieces():
            is_empty = False
            if choice.limit and not left:  # there is more
                output.line(f"# ... and so on (--limit {choice.limit})")
                break
            shown = _first_lines(piece, left) if choice.limit else piece
            left -= bytes(shown).count(b"\n") if choice.limit else 0
            output.write(shown)
            output.flush()
            if len(shown) < len(piece):
                output.line(f"# ... and so on (--limit {choice.limit})")
                break
    spans = thread_spans(trace)
    if is_empty and spans:  # of a trace without any call that has been said
        output.line(
            f"# {_no_calls(choice) or _in_flight(trace, names, choice) or _why_nothing(trace, spans, choice.threads)}"
        )
    for problem in trace.problems[told:]:
        output.line(f"# damaged: {problem}")


def _no_calls(choice: Choice) -> str:
    """What to say where none of the functions that were chosen is shown."""
    if choice.functions is None:
        return ""
    is_part = choice.threads is not None or choice.begin is not None or choice.end is not None
    return "no call of these functions" + (" is in the part that was chosen" if is_part else "")


def _first_lines(piece: memoryview, count: int) -> memoryview:
    """So many lines of a text, or all of it."""
    text, at = bytes(piece), 0
    for _ in range(count):
        found = text.find(b"\n", at)
        if found < 0:
            return piece
        at = found + 1
    return piece[:at]


def _in_flight(trace: Trace, names: Names, choice: Choice) -> str:
    """What to say where nothing began or ended: which calls were going on all the time, each thread's innermost."""
    begin = -_EVER if choice.begin is None else choice.begin
    end = _EVER if choice.end is None else choice.end
    reader = ThreadCalls(trace.calls_file, ["function", "start_ns", "duration_ns"])
    found = []
    for span in thread_spans(trace):
        if choice.threads is not None and span.thread not in choice.threads:
            continue
        innermost = -1
        for batch in reader.batches(span, begin, end):
            start, duration = batch.column("start_ns").to_numpy(), batch.column("duration_ns").to_numpy()
            around = np.flatnonzero((start < begin) & (start + duration >= end))
            if len(around):  # calls are in the order of their starts
                innermost = int(batch.column("function")[int(around[-1])].as_py())
        if innermost >= 0:
            found.append(f"{names.label(innermost, line=False)} ({names.thread_label(span.thread)})")
    if not found:
        return ""
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return f"no call began or ended in this time; in flight all the while: {', '.join(found[:_MOST_NAMES])}{more}"


def _why_nothing(trace: Trace, spans: list[ThreadSpan], threads: frozenset[int] | None) -> str:
    """What to say where nothing was shown: what there is."""
    wanted = [span for span in spans if threads is None or span.thread in threads]
    if not wanted:
        return "no call of this thread was recorded"
    first, last = min(span.first_start for span in wanted), int(trace.metadata.get("duration_ns") or 0)
    whose = "" if threads is None else " of this thread"
    end = f", and the trace ends at {last / 1e9:.9f} s" if last else ""
    return f"nothing happened in this time: the first call{whose} begins at {first / 1e9:.9f} s{end}"


class _Replay:
    """The native merge, and the batches it asks for."""

    def __init__(self, trace: Trace, names: Names, choice: Choice) -> None:
        calls = trace.calls_file
        self._begin = -_EVER if choice.begin is None else choice.begin
        self._end = _EVER if choice.end is None else choice.end
        self._texts = [name for name in ("arguments", "result") if name in calls.schema.names]
        spans = [span for span in thread_spans(trace) if choice.threads is None or span.thread in choice.threads]
        reader = ThreadCalls(calls, ["function", "start_ns", "duration_ns", "depth", "kind", *self._texts])
        self._batches = [reader.batches(span, self._begin, self._end) for span in spans]
        self._alive: list[pa.RecordBatch | None] = [None] * len(spans)
        self._tables = _name_tables(names)
        self._native = library()
        depth = (1 << 31) if choice.depth is None else choice.depth
        options = ReplayOptions(self._begin, self._end, depth, choice.switches, choice.timestamps)
        if choice.functions is not None:
            self._chosen = np.zeros(max(choice.functions, default=0) + 1, "u1")
            self._chosen[list(choice.functions)] = 1
            options.chosen, options.functions = address(self._chosen), len(self._chosen)
        native_names = ReplayNames(*(address(table) for table in self._tables), len(self._tables[1]) - 1)
        self._state = self._native.sg_replay_create(ctypes.byref(native_names), ctypes.byref(options), len(spans))
        if not self._state:
            raise MemoryError
        for number, span in enumerate(spans):
            self._add(number, span, names)

    def __enter__(self) -> _Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self._native.sg_replay_destroy(self._state)

    def pieces(self) -> Iterator[memoryview]:
        """Pieces of text, each valid until the next is asked for; the first one is small, to be there soon."""
        buffer = new_array(_BUFFER, "u1")
        written, wanted = ctypes.c_int64(), ctypes.c_int32()
        size = _FIRST_BUFFER
        at = 0
        while True:
            status = self._native.sg_replay_run(
                self._state, address(buffer, at), size - at, ctypes.byref(written), ctypes.byref(wanted)
            )
            at += written.value
            if status == _NEEDS_BATCH:
                self._feed(wanted.value)
                continue
            if status not in (_DONE, _BUFFER_FULL):
                raise MemoryError
            if at:
                yield buffer[:at].data
            elif size == _BUFFER and status == _BUFFER_FULL:
                raise MemoryError
            if status == _DONE:
                return
            at, size = 0, _BUFFER

    def _add(self, number: int, span: ThreadSpan, names: Names) -> None:
        """Tell the merge about a thread."""
        label, full = f"{names.thread(span.thread)[1]:7d}) ", names.thread_label(span.thread)
        start = max(span.first_start, self._begin)
        arguments = (start, label.encode(), full.encode("utf-8", "replace"))
        if not self._native.sg_replay_add(self._state, number, *arguments):
            raise MemoryError

    def _feed(self, number: int) -> None:
        """Give a thread its next batch, an empty one if it has no more."""
        rows = next(self._batches[number], None)
        batch, texts = NativeBatch(), NativeTexts()
        if rows is not None:
            batch.count = rows.num_rows
            for field, column in _COLUMNS.items():
                setattr(batch, field, column_address(rows, column))
            for name in self._texts:
                _set_text(texts, "argument" if name == "arguments" else "result", rows.column(name))
        if not self._native.sg_replay_feed(self._state, number, ctypes.byref(batch), ctypes.byref(texts)):
            raise MemoryError
        self._alive[number] = rows


_COLUMNS = {"function": "function", "start": "start_ns", "duration": "duration_ns", "depth": "depth", "kind": "kind"}


def _set_text(texts: NativeTexts, name: str, column: Any) -> None:
    """Where the parts of an Arrow string column lie."""
    valid, offsets, data = column.buffers()
    setattr(texts, f"{name}_offsets", offsets.address)
    setattr(texts, f"{name}_data", data.address if data is not None else 0)
    setattr(texts, f"{name}_valid", valid.address if valid is not None else 0)
    setattr(texts, f"{name}_row", column.offset)


def _name_tables(names: Names) -> list[np.ndarray[Any, Any]]:
    """Names and source lines of functions by id, as text and offsets each; the last entry is for all others."""
    size = max(names.ids, default=0) + 2
    labels, places = [b"?"] * size, [b""] * size
    for function in names.ids:
        labels[function] = names.label(function, line=False).encode("utf-8", "surrogateescape")
        places[function] = (names.shown_line(function) or "").encode("utf-8", "surrogateescape")
    return [*_joined(labels), *_joined(places)]


def _joined(texts: list[bytes]) -> list[np.ndarray[Any, Any]]:
    """Texts behind each other, and where each begins."""
    offsets = np.zeros(len(texts) + 1, "<u4")
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return [np.frombuffer(b"".join(texts) + b"\0", "u1"), offsets]
