"""Full buffers, a full disk, the size limit: what is promised of each, and the program runs on in all of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import shadowgraph
from tests.support.commands import run as outcome
from tests.support.manners import Ended, prepared, program, recorder, run

OPEN = 3
ROUNDS, THREADS, STATUS = 3000, 4, 42
LEAVES = ROUNDS * THREADS * 100
IN_PROGRAM = {"main": 1, "work": THREADS, "middle": ROUNDS * THREADS, "leaf": LEAVES}
OURS = ["-f", "re:^(main|work|middle|leaf)$"]  # so that the number of all calls is known


def counted() -> list[str]:
    return [program("manners_counted", "o1", "-pthread"), str(ROUNDS), str(THREADS), str(STATUS)]


def record(trace: Path, *options: str, setup: str = "") -> Ended:
    """Record the program, with the summary; its output and status are right in any case."""
    command = [argument for argument in recorder(*OURS, *options, trace=trace) if argument != "-q"]
    ended = run(prepared(setup, [*command, *counted()]))
    plain = run(counted())
    assert (ended.output, ended.status) == (plain.output, plain.status), ended.errors
    assert plain.status == STATUS
    return ended


def counts(trace: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Calls by name, and the counters."""
    with shadowgraph.open(trace) as opened:
        assert not opened.problems
        rows = zip(*(opened.functions[name].to_pylist() for name in ("name", "calls")), strict=True)
        return {name: calls for name, calls in rows if calls}, opened.counters


def test_block_loses_nothing_however_small_the_buffer(tmp_path: Path) -> None:
    record(tmp_path / "t.sgt", "--on-full", "block", "--buffer", "512K")
    assert counts(tmp_path / "t.sgt") == (IN_PROGRAM, {"missed": 0, "dropped": 0, "filtered": 0})


def test_drop_counts_each_call_that_it_drops(tmp_path: Path) -> None:
    ended = record(tmp_path / "t.sgt", "--on-full", "drop", "--buffer", "512K")
    calls, counters = counts(tmp_path / "t.sgt")
    assert counters["missed"] == 0 and counters["dropped"] > 0  # more than is drained in the meantime
    assert sum(calls.values()) + counters["dropped"] == sum(IN_PROGRAM.values())
    assert f"{counters['dropped']:,} dropped" in ended.errors


def test_overwrite_keeps_the_newest_and_counts_the_rest(tmp_path: Path) -> None:
    """Also of a thread that needs its first room when all is taken: here the first one, whose calls end last."""
    record(tmp_path / "t.sgt", "--on-full", "overwrite", "--buffer", "2M")
    calls, counters = counts(tmp_path / "t.sgt")
    assert sum(calls.values()) + counters["dropped"] == sum(IN_PROGRAM.values())
    assert 0 < sum(calls.values()) * 16 <= 2 << 20
    assert (calls["main"], calls["work"]) == (1, THREADS)  # they end last
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        names = dict(zip(*(trace.functions[name].to_pylist() for name in ("function", "name")), strict=True))
        for thread in trace.threads["thread"].to_pylist():
            rows = [names[row["function"]] for batch in trace.batches(thread=thread) for row in batch.to_pylist()]
            whole = max(rows.count("middle") - 1, 0)  # nothing is missing behind the first
            assert 100 * whole <= rows.count("leaf") <= 100 * (whole + 1)


@pytest.mark.parametrize("size", ["0", "1K", "3M"])
def test_at_its_size_limit_a_recording_stops_and_says_so(size: str, tmp_path: Path) -> None:
    ended = record(tmp_path / "t.sgt", "--max-size", size)
    calls, counters = counts(tmp_path / "t.sgt")
    assert sum(calls.values()) + counters["dropped"] == sum(IN_PROGRAM.values())
    assert counters["dropped"] > 0
    assert (
        "the recording stopped when the trace had reached its size limit (--max-size); the program ran on"
        in ended.errors
    )
    manifest = json.loads((tmp_path / "t.sgt" / "manifest.json").read_text())
    assert manifest["end"] == {"reason": "size limit", "status": STATUS}


def test_calls_in_flight_at_the_size_limit_are_open_and_end_there(tmp_path: Path) -> None:
    """With a buffer this small, the program cannot have run ahead of the recorder by more than half a megabyte."""
    trace = tmp_path / "t.sgt"
    options = ["-f", "re:^(main|returns|leaf|late)$", "--max-size", "1M", "--buffer", "512K"]
    ended = run([*recorder(*options, trace=trace), program("stopped_in_flight", "o1")])
    assert (ended.output, ended.status) == ("200000\n", 3)
    with shadowgraph.open(trace) as opened:
        names = dict(zip(*(opened.functions[name].to_pylist() for name in ("function", "name")), strict=True))
        rows = opened.calls.to_pylist()
        stop, end = opened.metadata["duration_ns"], opened.processes["end_ns"][0].as_py()
        assert len(rows) + opened.counters["dropped"] == 200_003
    in_flight = [(names[row["function"]], row["start_ns"] + row["duration_ns"]) for row in rows if row["kind"] == OPEN]
    assert in_flight[:2] == [("main", stop), ("returns", stop)]
    assert {name for name, _ in in_flight[2:]} <= {"leaf"}  # one of them may have been in flight, too
    assert max(row["start_ns"] + row["duration_ns"] for row in rows) == stop < end
    for view in ("report", "graph", "replay"):
        said = outcome(view, trace).output
        assert (
            f"{opened.counters['dropped']:,} calls not in here, traced but not recorded, because the recording had"
            in said
        )
        assert "the recording stopped when the trace had reached its size limit (--max-size)" in said
        assert "buffers" not in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(place: Path, leave: int) -> None:
    """Leave so many bytes free."""
    free = os.statvfs(place)
    (place / "ballast").write_bytes(bytes(free.f_bavail * free.f_bsize - leave))


def test_on_a_full_disk_a_recording_stops_and_says_so(small_disk: Path) -> None:
    ended = record(small_disk / "t.sgt")
    calls, counters = counts(small_disk / "t.sgt")
    assert 0 < calls["leaf"] < LEAVES
    assert sum(calls.values()) + counters["dropped"] == sum(IN_PROGRAM.values())
    assert "the recording stopped when the disk was full; the program ran on" in ended.errors


def test_a_disk_without_room_for_the_tables_keeps_what_was_written_and_the_status(small_disk: Path) -> None:
    fill(small_disk, 16 << 10)
    ended = record(small_disk / "t.sgt")
    assert "the tables of the trace cannot be written" in ended.errors and "Traceback" not in ended.errors
    assert "is kept in" in ended.errors
    calls, _ = counts(small_disk / "t.sgt")  # in a temporary place
    assert set(calls) <= set(IN_PROGRAM)
    (small_disk / "ballast").unlink()
    counts(small_disk / "t.sgt")
    assert not (small_disk / "t.sgt" / "calls.spool").exists()


def test_a_disk_without_room_for_a_folder_is_refused_and_left_as_it_was(small_disk: Path) -> None:
    fill(small_disk, 0)
    ended = run([*recorder(trace=small_disk / "t.sgt"), *counted()])
    assert (ended.status, ended.output) == (2, "")
    assert ended.sentence.startswith(f"{small_disk / 't.sgt'}") and "no space left on device" in ended.sentence.lower()
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


def test_at_the_limit_on_the_size_of_files_a_recording_stops_and_says_so(tmp_path: Path) -> None:
    ended = record(tmp_path / "t.sgt", setup="ulimit -S -f 4096")
    calls, counters = counts(tmp_path / "t.sgt")
    assert 0 < calls["leaf"] < LEAVES
    assert sum(calls.values()) + counters["dropped"] == sum(IN_PROGRAM.values())
    assert "the recording stopped when the trace had reached the limit on the size of files (ulimit -f)" in ended.errors
