"""What was recorded is what the trace says: every call once, in the order of thread and start."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import shadowgraph
from shadowgraph.agent import layout
from shadowgraph.trace import convert as conversion
from shadowgraph.trace import sorting
from shadowgraph.trace.folder import SPOOL, create_folder
from shadowgraph.trace.spool_writer import SpoolWriter
from tests.support.commands import run
from tests.support.synthetic import Call, Recording, simulate_calls

HOUR = 3_000_000_000 * 3600  # ticks at 3 GHz


def calls_of(table: pa.Table, thread: int) -> list[Call]:
    rows = [row for row in table.to_pylist() if row["thread"] == thread]
    return [Call(row["start_ns"], row["depth"], row["duration_ns"], row["function"], row["kind"]) for row in rows]


def converted(recording: Recording, folder: Path, **options: Any) -> shadowgraph.Trace:
    recording.write(folder, **options)
    conversion.convert(folder)
    assert not (folder / SPOOL).exists()
    return shadowgraph.open(folder)


@pytest.mark.parametrize("block", [64, 100, 1 << 20])
@pytest.mark.parametrize("seed", range(4))
def test_calls_come_out_in_the_order_of_thread_and_start(
    tmp_path: Path, seed: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sorting.ThreadSorter.__init__, "__defaults__", (block,))
    recording = Recording({thread: simulate_calls(seed * 10 + thread, 200 * thread) for thread in (1, 2, 3)})
    calls = converted(recording, tmp_path / "a.sgt", segment_records=37).calls
    assert calls["thread"].to_pylist() == sorted(calls["thread"].to_pylist())
    for thread in recording.threads:
        assert calls_of(calls, thread) == recording.expected(thread)


def test_calls_longer_than_a_record_can_say_are_kept_whole(tmp_path: Path) -> None:
    inner = [Call(10 * HOUR + 10 * n, 1, 5, 2) for n in range(10)]
    calls = [Call(5, 0, 20 * HOUR, 1), *inner]
    recording = Recording({0: calls})
    assert calls_of(converted(recording, tmp_path / "a.sgt").calls, 0) == calls


def test_starts_are_unwrapped_over_weeks(tmp_path: Path) -> None:
    calls = [Call(20 * HOUR * n + 7, 1, 100 + n, 2) for n in range(40)]
    calls.insert(0, Call(3, 0, 20 * HOUR * 40, 1))
    recording = Recording({0: calls})
    assert calls_of(converted(recording, tmp_path / "a.sgt").calls, 0) == calls


def test_kinds_and_values_do_not_disturb_their_neighbours(tmp_path: Path) -> None:
    calls = [Call(100 * n, 0, 50, n % 5 + 1, n % 3) for n in range(300)]
    recording = Recording({0: calls})
    assert calls_of(converted(recording, tmp_path / "a.sgt").calls, 0) == calls


def test_calls_in_flight_are_open_and_counted_once(tmp_path: Path) -> None:
    calls = simulate_calls(3, 100, root=False, start=1000)
    returned_since = calls[7]
    in_flight = [Call(500, 0, 0, 9), Call(600, 1, 0, 8)]
    recording = Recording({0: calls}, open_calls={0: [*in_flight, returned_since]})
    trace = converted(recording, tmp_path / "a.sgt")
    end = recording.end_tick()
    expected = [Call(500, 0, end - 500, 9, layout.KIND_OPEN), Call(600, 1, end - 600, 8, layout.KIND_OPEN), *calls]
    assert calls_of(trace.calls, 0) == expected


def test_a_thread_with_nothing_but_calls_in_flight_is_there(tmp_path: Path) -> None:
    recording = Recording({0: [], 1: simulate_calls(1, 50)}, open_calls={0: [Call(5, 0, 0, 3)]})
    trace = converted(recording, tmp_path / "a.sgt")
    assert calls_of(trace.calls, 0) == recording.expected(0)
    assert calls_of(trace.calls, 1) == recording.expected(1)


def test_a_call_that_began_after_the_last_word_on_the_time_is_open_from_then_on(tmp_path: Path) -> None:
    """The last thing that a killed recorder noted may be a call in flight."""
    calls = simulate_calls(4, 50)
    recording = Recording({0: calls})
    late = Call(recording.end_tick() + 3000, 0, 0, 9)
    recording.open_calls[0] = [late]
    trace = converted(recording, tmp_path / "a.sgt")
    assert calls_of(trace.calls, 0) == [*calls, Call(late.start, 0, 0, 9, layout.KIND_OPEN)]


def test_nanoseconds_are_rounded_so_that_calls_still_nest(tmp_path: Path) -> None:
    recording = Recording({0: simulate_calls(5, 2000, longest_gap=4)}, ticks_per_ns=2.7)
    calls = calls_of(converted(recording, tmp_path / "a.sgt").calls, 0)
    stack: list[Call] = []
    for call in calls:
        del stack[call.depth :]
        assert len(stack) == call.depth
        if stack:
            assert stack[-1].start <= call.start and call.end <= stack[-1].end
        stack.append(call)
    exact = recording.expected(0)
    assert all(abs(call.start - other.start / 2.7) <= 2 for call, other in zip(calls, exact, strict=True))


def test_records_that_are_nobodys_or_never_written_are_skipped(tmp_path: Path) -> None:
    calls = simulate_calls(8, 60)
    recording = Recording({0: calls})
    nobody = Call(50, 3, 17, layout.FUNCTION_NONE)
    from tests.support import synthetic

    original = synthetic.raw_segments

    def with_holes(calls: Any, size: int) -> Any:
        for data in original(calls, size):
            yield bytes(32) + data + synthetic.raw_record(nobody) + bytes(16 * 5)

    synthetic.raw_segments = with_holes
    try:
        trace = converted(recording, tmp_path / "a.sgt", segment_records=10)
    finally:
        synthetic.raw_segments = original
    assert calls_of(trace.calls, 0) == calls
    assert trace.problems == []


def test_progress_reaches_its_end(tmp_path: Path) -> None:
    folder = Recording({0: simulate_calls(1, 500)}).write(tmp_path / "a.sgt")
    seen: list[tuple[int, int]] = []
    conversion.convert(folder, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == 500 * layout.RECORD_SIZE
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


@pytest.mark.parametrize("seed", range(5))
def test_garbage_for_records_breaks_nothing(tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    folder = create_folder(tmp_path / "a.sgt", {})
    writer = SpoolWriter(folder / SPOOL)
    writer.append("values", [{"function": n, "arguments": [{"type": "str"}], "results": []} for n in range(200)])
    for thread in range(3):
        pieces = [noise.randbytes(16) for _ in range(500)]
        for at in range(0, 500, 3):
            function = noise.choice([layout.ESCAPE_LONG, layout.ESCAPE_KIND, layout.ESCAPE_VALUES, at % 200])
            word = noise.randrange(4) << layout.FUNCTION_BITS | function
            pieces[at] = noise.randbytes(8) + word.to_bytes(8, "little")
        writer.append_records(thread, b"".join(pieces))
    writer.close()
    conversion.convert(folder)
    with shadowgraph.open(folder) as trace:
        assert len(trace.calls) > 100
        assert min(trace.calls["duration_ns"].to_pylist()) >= 0
    for view in ("report", "replay", "graph"):
        assert run(view, folder).output
