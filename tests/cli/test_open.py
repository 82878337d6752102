"""`shadowgraph.open` on a recording: what a program in Python is promised."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import shadowgraph
from shadowgraph.errors import ShadowgraphError
from tests.support.manners import program, recorded

ROUNDS, THREADS, STATUS = 30, 3, 6
LEAVES = ROUNDS * THREADS * 100


def command() -> list[str]:
    return [program("manners_counted", "o1", "-pthread"), str(ROUNDS), str(THREADS), str(STATUS)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = tmp_path_factory.mktemp("open") / "t.sgt"
    assert recorded(command(), trace=trace).status == STATUS
    return trace


def test_the_module_offers_open_and_the_class_of_what_it_returns(path: Path) -> None:
    assert {"open", "Trace"} <= set(shadowgraph.__all__)
    assert isinstance(shadowgraph.open(path), shadowgraph.Trace)
    assert isinstance(shadowgraph.open(str(path)), shadowgraph.Trace)


def test_functions_threads_and_processes_are_tables(path: Path) -> None:
    with shadowgraph.open(path) as trace:
        assert all(isinstance(table, pa.Table) for table in (trace.functions, trace.threads, trace.processes))
        functions = {row["name"]: row for row in trace.functions.to_pylist()}
        assert functions["leaf"]["calls"] == LEAVES and functions["leaf"]["size"] > 0
        assert functions["leaf"]["module"] == "manners_counted" and functions["leaf"]["module_path"] == command()[0]
        assert functions["pthread_create"]["module"].startswith("libc")
        threads = trace.threads.to_pylist()
        assert len(threads) == THREADS + 1 and len({row["tid"] for row in threads}) == THREADS + 1
        assert {row["name"] for row in threads} == {"manners_counted"}
        assert sum(row["calls"] for row in threads) == len(trace.calls)
        (process,) = trace.processes.to_pylist()
        assert process["pid"] == threads[0]["pid"] and process["exit_status"] == STATUS
        assert process["command"].split()[1:] == [str(ROUNDS), str(THREADS), str(STATUS)]
        assert 0 <= process["start_ns"] <= process["end_ns"] <= trace.metadata["duration_ns"]


def test_calls_are_a_table_or_batches_of_the_same_rows(path: Path) -> None:
    with shadowgraph.open(path) as trace:
        calls = trace.calls
        assert calls.schema.names == ["thread", "function", "start_ns", "duration_ns", "depth", "kind"]
        assert pa.Table.from_batches(trace.batches()).equals(calls)
        number = {row["name"]: row["function"] for row in trace.functions.to_pylist()}
        assert pc.sum(pc.equal(calls["function"], number["leaf"])).as_py() == LEAVES
        durations = list(trace.batches(columns=["duration_ns"]))
        assert all(batch.schema.names == ["duration_ns"] for batch in durations)
        assert sum(batch.num_rows for batch in durations) == len(calls)
        for thread in trace.threads["thread"].to_pylist():
            mine = pa.Table.from_batches(trace.batches(thread=thread), calls.schema)
            assert mine.equals(calls.filter(pc.field("thread") == thread))
        end = trace.metadata["duration_ns"] // 2
        early = pa.Table.from_batches(trace.batches(time=(None, end)), calls.schema)
        assert early.equals(calls.filter(pc.field("start_ns") < end))


def test_a_work_function_holds_what_it_called(path: Path) -> None:
    with shadowgraph.open(path) as trace:
        number = {row["name"]: row["function"] for row in trace.functions.to_pylist()}
        for thread in trace.threads["thread"].to_pylist()[1:]:
            rows = [row for batch in trace.batches(thread=thread) for row in batch.to_pylist()]
            (work,) = [row for row in rows if row["function"] == number["work"]]
            inner = [row for row in rows if row["function"] in (number["middle"], number["leaf"])]
            assert len(inner) == ROUNDS * 101
            assert all(work["depth"] < row["depth"] and work["start_ns"] <= row["start_ns"] for row in inner)
            ends = [row["start_ns"] + row["duration_ns"] for row in inner]
            assert max(ends) <= work["start_ns"] + work["duration_ns"]


def test_metadata_and_counters_say_what_was_recorded_and_lost(path: Path, tmp_path: Path) -> None:
    with shadowgraph.open(path) as trace:
        assert trace.counters == {"missed": 0, "dropped": 0, "filtered": 0}
        assert trace.problems == []
        metadata = trace.metadata
        assert metadata["program"] == command()[0] and metadata["arguments"] == command()
        assert metadata["state"] == "complete" and metadata["version"] == 1
        assert metadata["end"] == {"reason": "exited", "status": STATUS}
        assert metadata["calls"] == len(trace.calls)
    assert recorded(command(), "--depth", "1", "-f", "middle", "-f", "leaf", trace=tmp_path / "d.sgt").status == STATUS
    with shadowgraph.open(tmp_path / "d.sgt") as trace:
        assert len(trace.calls) == ROUNDS * THREADS
        assert trace.counters == {"missed": 0, "dropped": 0, "filtered": LEAVES}


def test_what_does_not_exist_is_an_exception_with_a_sentence(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ShadowgraphError, match="there is no such trace"):
        shadowgraph.open(tmp_path / "missing.sgt")
    with shadowgraph.open(path) as trace:
        with pytest.raises(ShadowgraphError, match="calls have no column 'colour'"):
            list(trace.batches(columns=["colour"]))
        with pytest.raises(ShadowgraphError, match="there is no thread 99"):
            list(trace.batches(thread=99))
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        _ = shadowgraph.close
