"""Opening a trace: whole, recovered, damaged, or not one at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import shadowgraph
from shadowgraph.agent import layout
from shadowgraph.errors import UsageError
from shadowgraph.trace import call_writer
from shadowgraph.trace.convert import convert
from shadowgraph.trace.folder import CALLS, FUNCTIONS, MANIFEST, SPOOL, create_folder, newest_trace
from shadowgraph.trace.spool_writer import SpoolWriter
from tests.support.synthetic import Call, Recording, simulate_calls


def recording() -> Recording:
    return Recording(
        {0: simulate_calls(1, 300), 1: simulate_calls(2, 200, start=5000), 5: simulate_calls(3, 50)},
        processes={5: 1},
        counters=[
            {"thread": 0, "missed": 1, "dropped": 0, "filtered": 0},
            {"thread": 0, "missed": 3, "dropped": 4, "filtered": 5},
            {"thread": None, "process": 0, "missed": 10},
        ],
        functions={1: "main", 90: "never_called"},
        modules={2: "libtwo.so"},
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = recording().write(tmp_path / "a.sgt")
    convert(path)
    return path


def rows(batches: Any) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def test_tables_say_what_was_recorded(folder: Path) -> None:
    trace = shadowgraph.open(folder)
    functions = {row["function"]: row for row in trace.functions.to_pylist()}
    assert functions[1]["name"] == "main"
    assert functions[2]["module"] == "libtwo.so" and functions[2]["module_path"] == "/bin/libtwo.so"
    assert functions[90]["calls"] == 0
    calls = [call for thread in (0, 1, 5) for call in recording().expected(thread)]
    assert functions[3]["calls"] == sum(call.function == 3 for call in calls)
    threads = {row["thread"]: row for row in trace.threads.to_pylist()}
    assert threads[0]["missed"] == 3 and threads[0]["dropped"] == 4 and threads[0]["filtered"] == 5
    assert threads[5]["process"] == 1 and threads[5]["pid"] == 101 and threads[5]["tid"] == 205
    assert [threads[thread]["first_row"] for thread in (0, 1, 5)] == [0, 300, 500]
    assert [row["pid"] for row in trace.processes.to_pylist()] == [100, 101]
    assert trace.counters == {"missed": 13, "dropped": 4, "filtered": 5}
    assert trace.metadata["program"] == "/bin/simulated"
    assert trace.metadata["calls"] == 550


def test_batches_are_all_calls_in_order(folder: Path) -> None:
    trace = shadowgraph.open(folder)
    assert rows(trace.batches()) == trace.calls.to_pylist()
    assert len(trace.calls) == 550
    only = rows(trace.batches(columns=["depth", "thread"]))
    assert only == [{"depth": row["depth"], "thread": row["thread"]} for row in trace.calls.to_pylist()]


@pytest.mark.parametrize("group", [64, 1 << 18])
def test_batches_of_a_thread_and_of_a_time(tmp_path: Path, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_writer, "ROW_GROUP", group)
    path = recording().write(tmp_path / "a.sgt")
    convert(path)
    trace = shadowgraph.open(path)
    everything = trace.calls.to_pylist()
    assert rows(trace.batches(thread=1)) == [row for row in everything if row["thread"] == 1]
    for begin, end in [(20_000, 30_000), (None, 9_000), (25_000, None), (10**12, None)]:
        expected = [
            row
            for row in everything
            if (end is None or row["start_ns"] < end)
            and (begin is None or row["start_ns"] + row["duration_ns"] >= begin)
        ]
        assert rows(trace.batches(time=(begin, end))) == expected
        assert rows(trace.batches(["depth"], time=(begin, end))) == [{"depth": row["depth"]} for row in expected]


def test_a_wrong_column_or_thread_is_named(folder: Path) -> None:
    trace = shadowgraph.open(folder)
    with pytest.raises(UsageError, match="no column 'dpeth'"):
        next(trace.batches(["dpeth"]))
    with pytest.raises(UsageError, match="no thread 2"):
        next(trace.batches(thread=2))


def test_a_trace_whose_recorder_was_killed_is_recovered_in_place(tmp_path: Path) -> None:
    left = recording()
    left.finished = False
    path = left.write(tmp_path / "a.sgt")
    with shadowgraph.open(path) as trace:
        assert trace.metadata["state"] == "recovered"
        assert trace.metadata["calls"] == 550
    assert not (path / SPOOL).exists()
    assert json.loads((path / MANIFEST).read_text())["state"] == "recovered"
    with shadowgraph.open(path) as trace:
        assert len(trace.calls) == 550


def test_a_recording_that_goes_on_is_read_and_left_alone(tmp_path: Path) -> None:
    path = create_folder(tmp_path / "a.sgt", {"program": "/bin/x"})
    writer = SpoolWriter(path / SPOOL)
    left = recording()
    left.finished = False
    left.write_to(writer)
    with shadowgraph.open(path) as trace:
        assert trace.metadata["state"] == "recording"
        assert len(trace.calls) == 550
        assert trace.problems == []
    assert sorted(item.name for item in path.iterdir()) == sorted([MANIFEST, SPOOL])
    assert writer.append_records(9, b"\1" * 16)
    writer.close()


def test_a_trace_that_cannot_be_written_to_is_recovered_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recording().write(tmp_path / "a.sgt")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with shadowgraph.open(path) as trace:
        assert len(trace.calls) == 550
        data = trace.calls_file.path
        assert not data.is_relative_to(path)
    assert (path / SPOOL).exists()
    assert not data.exists()


def test_a_killed_recording_without_any_clock_still_opens(tmp_path: Path) -> None:
    path = create_folder(tmp_path / "a.sgt", {})
    writer = SpoolWriter(path / SPOOL)
    writer.append_records(0, bytes.fromhex("0100000000000000") + (5 << layout.FUNCTION_BITS | 7).to_bytes(8, "little"))
    writer.close()
    (path / MANIFEST).unlink()
    with shadowgraph.open(path) as trace:
        assert trace.calls.to_pylist()[0] | {"start_ns": 0} == {
            "thread": 0, "function": 7, "start_ns": 0, "duration_ns": 5, "depth": 0, "kind": 0,
        }  # fmt: skip
        assert trace.functions["name"].to_pylist() == ["function_7"]


def test_damaged_calls_cost_only_their_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_writer, "ROW_GROUP", 100)
    path = recording().write(tmp_path / "a.sgt")
    convert(path)
    trace = shadowgraph.open(path)
    whole = trace.calls.to_pylist()
    data = bytearray((path / CALLS).read_bytes())
    place = trace.calls_file.offset_of(2)
    data[place + 40 : place + 60] = b"\xff" * 20
    (path / CALLS).write_bytes(data)
    damaged = shadowgraph.open(path)
    assert damaged.calls.to_pylist() == whole[:200] + whole[300:]
    assert len(damaged.problems) == 1 and "calls 200 to 299" in damaged.problems[0]


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_cut_off_calls_are_read_as_far_as_they_go(
    tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_writer, "ROW_GROUP", 100)
    path = recording().write(tmp_path / "a.sgt")
    convert(path)
    trace = shadowgraph.open(path)
    whole = trace.calls.to_pylist()
    ends = [trace.calls_file.offset_of(number) for number in range(1, 6)]
    cut = int(ends[-1] * share)
    os.truncate(path / CALLS, cut)
    damaged = shadowgraph.open(path)
    assert damaged.calls.to_pylist() == whole[: 100 * sum(end <= cut for end in ends)]
    assert damaged.problems


def test_a_damaged_small_table_does_not_hide_the_rest(folder: Path) -> None:
    (folder / FUNCTIONS).write_bytes(b"PAR1 and then nothing")
    trace = shadowgraph.open(folder)
    assert len(trace.calls) == 550
    functions = {row["function"]: (row["name"], row["calls"]) for row in trace.functions.to_pylist()}
    assert functions[1] == ("function_1", trace.calls["function"].to_pylist().count(1))
    assert sum(calls for _, calls in functions.values()) == 550
    assert any(FUNCTIONS in problem for problem in trace.problems)


def test_what_is_not_a_trace_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such trace"):
        shadowgraph.open(tmp_path / "nothing.sgt")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is not a trace"):
        shadowgraph.open(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="is not a trace"):
        shadowgraph.open(tmp_path / "empty")
    (tmp_path / "empty" / MANIFEST).write_text('{"name": "a web app"}')
    with pytest.raises(UsageError, match="is not a trace"):
        shadowgraph.open(tmp_path / "empty")
    (tmp_path / "empty" / MANIFEST).write_text("{")
    with pytest.raises(UsageError, match="damaged"):
        shadowgraph.open(tmp_path / "empty")


def test_a_newer_trace_is_refused(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"version": 99}))
    with pytest.raises(UsageError, match="newer version"):
        shadowgraph.open(folder)


def test_missing_calls_are_named(folder: Path) -> None:
    (folder / CALLS).unlink()
    with pytest.raises(UsageError, match=CALLS):
        shadowgraph.open(folder)


def test_the_newest_trace_is_found(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no trace"):
        newest_trace(tmp_path)
    for age, name in enumerate(["b.sgt", "a.sgt", "c.sgt"]):
        path = create_folder(tmp_path / name, {})
        os.utime(path, ns=(10**18 - age, 10**18 - age))
    assert newest_trace(tmp_path) == tmp_path / "b.sgt"


def test_a_trace_is_replaced_only_by_force_and_nothing_else_ever(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match="--force"):
        create_folder(folder, {})
    create_folder(folder, {"program": "new"}, force=True)
    assert sorted(item.name for item in folder.iterdir()) == [MANIFEST]
    (folder / "precious.txt").write_text("")
    with pytest.raises(UsageError, match=r"precious\.txt"):
        create_folder(folder, {}, force=True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("")
    with pytest.raises(UsageError, match="not a trace"):
        create_folder(other, {}, force=True)
    with pytest.raises(UsageError, match="not a trace"):
        create_folder(other / "file", {}, force=True)
    assert (other / "file").exists()


def test_an_open_call_ends_with_its_thread_or_process(tmp_path: Path) -> None:
    calls = Recording({0: [], 1: [], 2: []}, open_calls={n: [Call(10, 0, 0, 1)] for n in range(3)}, end=10_000)
    path = create_folder(tmp_path / "a.sgt", {})
    writer = SpoolWriter(path / SPOOL)
    writer.append("threads", [{"thread": 1, "end": 500}, {"thread": 2, "process": 4}])
    writer.append("processes", [{"process": 4, "end": 700}])
    calls.write_to(writer)
    writer.append("threads", [{"thread": 2, "process": 4}])
    writer.close()
    convert(path)
    assert shadowgraph.open(path).calls["duration_ns"].to_pylist() == [9990, 490, 690]
