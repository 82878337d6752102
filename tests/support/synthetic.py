"""Recordings that never happened: seeded simulations of calls, as the raw records an agent would write.

Each simulation is its own oracle: the calls it is made of are known, in the order of their starts.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from shadowgraph.agent import layout
from shadowgraph.trace.folder import SPOOL, create_folder
from shadowgraph.trace.spool_writer import SpoolWriter

START_MASK = (1 << layout.START_BITS) - 1
DURATION_LIMIT = 1 << layout.DURATION_BITS


class Call(NamedTuple):
    """One call of a simulation; times in ticks."""

    start: int
    depth: int
    duration: int
    function: int
    kind: int = layout.KIND_RETURNED

    @property
    def end(self) -> int:
        return self.start + self.duration


def raw_record(call: Call, values: bytes = b"") -> bytes:
    """A call as the agent writes it, with the escapes it needs."""
    words: list[bytes] = []
    if call.duration >= DURATION_LIMIT:
        words.append(struct.pack("<QQ", call.duration, layout.ESCAPE_LONG))
    if call.kind != layout.KIND_RETURNED:
        words.append(struct.pack("<QQ", 0, call.kind << layout.FUNCTION_BITS | layout.ESCAPE_KIND))
    if values:
        assert len(values) % layout.RECORD_SIZE == 0
        count = len(values) // layout.RECORD_SIZE
        words.append(struct.pack("<QQ", 0, count << layout.FUNCTION_BITS | layout.ESCAPE_VALUES) + values)
    place = (call.start + (call.depth << layout.START_BITS)) % (1 << 64)
    what = (call.duration % DURATION_LIMIT) << layout.FUNCTION_BITS | call.function
    words.append(struct.pack("<QQ", place, what))
    return b"".join(words)


def simulate_calls(
    seed: int,
    count: int,
    *,
    functions: int = 20,
    start: int = 1000,
    max_depth: int = 12,
    longest_gap: int = 300,
    root: bool = True,
) -> list[Call]:
    """About ``count`` properly nested calls of one thread, in the order of their starts.

    With ``root`` the whole is one call of function 1, which is what a main function looks like.
    """
    random_ = random.Random(seed)
    now = start
    open_calls: list[tuple[int, int]] = []
    finished: list[Call] = []

    def tick() -> int:
        nonlocal now
        now += random_.randrange(1, longest_gap)
        return now

    if root:
        open_calls.append((tick(), 1))
    while len(finished) + len(open_calls) < count:
        if len(open_calls) < max_depth and (len(open_calls) <= root or random_.random() < 0.55):
            open_calls.append((tick(), random_.randrange(1, functions + 1)))
        else:
            begin, function = open_calls.pop()
            finished.append(Call(begin, len(open_calls), tick() - begin, function))
    while open_calls:
        begin, function = open_calls.pop()
        finished.append(Call(begin, len(open_calls), tick() - begin, function))
    return sorted(finished)


def in_exit_order(calls: Sequence[Call]) -> list[Call]:
    """The order in which an agent writes them: by end, inner calls first."""
    return sorted(calls, key=lambda call: (call.end, -call.depth))


def raw_segments(calls: Sequence[Call], segment_records: int = 100) -> Iterator[bytes]:
    """The raw records of a thread's calls in segments."""
    ordered = in_exit_order(calls)
    for at in range(0, len(ordered), segment_records):
        yield b"".join(map(raw_record, ordered[at : at + segment_records]))


@dataclass
class Recording:
    """A simulated recording: calls by thread index, and what else a spool tells.

    ``ticks_per_ns`` is the speed of the counter; the first clock pair is at tick 0, the last at ``end``.
    """

    threads: dict[int, list[Call]]
    functions: dict[int, str] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)
    open_calls: dict[int, list[Call]] = field(default_factory=dict)
    counters: list[dict[str, Any]] = field(default_factory=list)
    thread_names: dict[int, str] = field(default_factory=dict)
    ticks_per_ns: float = 1.0
    end: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    finished: bool = True
    command: str = "simulated"

    def end_tick(self) -> int:
        """When the recording ended."""
        ends = [call.end for calls in self.threads.values() for call in calls]
        return self.end if self.end is not None else max(ends, default=0) + 1000

    def expected(self, thread: int) -> list[Call]:
        """The calls of a thread in the order of a trace, those in flight included."""
        end = self.end_tick()
        in_flight = [
            Call(call.start, call.depth, end - call.start, call.function, layout.KIND_OPEN)
            for call in self.open_calls.get(thread, [])
        ]
        return sorted([*self.threads.get(thread, []), *in_flight])

    def write(self, folder: Path, segment_records: int = 100, **options: Any) -> Path:
        """Write the spool of this recording into a new trace folder, threads taking turns."""
        create_folder(folder, {"program": "/bin/simulated", "arguments": ["simulated"]})
        writer = SpoolWriter(folder / SPOOL, **options)
        self.write_to(writer, segment_records)
        writer.close()
        return folder

    def write_to(self, writer: SpoolWriter, segment_records: int = 100) -> None:
        """Write everything a recorder would."""
        writer.append("metadata", {"program": "/bin/simulated", "arguments": ["simulated"], **self.metadata})
        writer.append("clock", {"tick": 0, "monotonic_ns": 5_000, "realtime_ns": 1_700_000_000_000_000_000})
        used = {call.function for calls in [*self.threads.values(), *self.open_calls.values()] for call in calls}
        ids = sorted(used | self.functions.keys())
        modules = sorted({self.modules.get(function, "simulated") for function in ids})
        writer.append("modules", [{"module": at, "path": f"/bin/{name}"} for at, name in enumerate(modules)])
        writer.append(
            "functions",
            {
                "id": ids,
                "name": [self.functions.get(function, f"f{function}") for function in ids],
                "module": [modules.index(self.modules.get(function, "simulated")) for function in ids],
                "address": [0x1000 + 16 * function for function in ids],
                "size": [16] * len(ids),
            },
        )
        pids = {thread: 100 + self.processes.get(thread, 0) for thread in self.threads}
        writer.append(
            "processes",
            [
                {"process": pid - 100, "pid": pid, "parent": 1, "command": self.command}
                for pid in sorted({*pids.values()})
            ],
        )
        writer.append(
            "threads",
            [
                {
                    "thread": thread,
                    "process": pid - 100,
                    "pid": pid,
                    "tid": 200 + thread,
                    "name": self.thread_names.get(thread, f"thread{thread}"),
                }
                for thread, pid in pids.items()
            ],
        )
        queues = {thread: raw_segments(calls, segment_records) for thread, calls in self.threads.items()}
        while queues:
            for thread, segments in list(queues.items()):
                data = next(segments, None)
                if data is None:
                    del queues[thread]
                else:
                    writer.append_records(thread, memoryview(data), self.processes.get(thread, 0))
        if self.counters:
            writer.append("counters", self.counters)
        if self.finished:
            self._write_end(writer)

    def _write_end(self, writer: SpoolWriter) -> None:
        """What a recorder says last."""
        rows = [
            {"thread": thread, "function": call.function, "start": call.start & START_MASK, "depth": call.depth}
            for thread, calls in self.open_calls.items()
            for call in calls
        ]
        end = self.end_tick()
        if rows:
            writer.append("open", rows)
        elapsed = int(end / self.ticks_per_ns)
        writer.append("clock", {"tick": end, "monotonic_ns": 5_000 + elapsed, "realtime_ns": 1_700_000_000_000_000_000})
        writer.append("end", {"tick": end, "reason": "exited", "status": 0})
