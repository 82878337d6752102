"""Recording beside others: neither the recorder nor the users that were there before lose or gain a call."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.errors import UsageError
from tests.support.attached import Running
from tests.support.live import send, started, until
from tests.support.manners import program


def recorded(folder: Path) -> dict[str, list[int]]:
    """The starts of the calls in a trace, by function."""
    trace = sg.open(folder)
    names = {row["function"]: row["name"] for row in trace.functions.to_pylist()}
    found: dict[str, list[int]] = {}
    for row in trace.calls.to_pylist():
        found.setdefault(names[row["function"]], []).append(row["start_ns"])
    return found


def test_a_recorder_from_python_has_each_call_once_beside_a_counter(tmp_path: Path) -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        send(running, range(100))
        until(lambda: sum(counter.counts().values()) == 100)
        for round_number, calls in enumerate((50, 1, 300)):
            folder = tmp_path / f"{round_number}.sgt"
            recorder = target.register(live.Recorder(folder, ["gives_back"]))
            before = sum(counter.counts().values())
            send(running, range(calls))
            until(lambda before=before, calls=calls: sum(counter.counts().values()) == before + calls)
            recorder.unregister()
            starts = recorded(folder)["gives_back"]
            assert len(starts) == calls
            assert (np.diff(starts) > 0).all()
            send(running, range(10))  # nobody records these
            until(lambda before=before, calls=calls: sum(counter.counts().values()) == before + calls + 10)
        assert running.end("") == ["gives_back 481", "OK"]


def test_a_recorder_with_a_condition_has_what_fulfils_it(tmp_path: Path) -> None:
    folder = tmp_path / "some.sgt"
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        target.register(live.Recorder(folder, ["gives_back"], when="arg(0) % 3 == 1 and result < 50"))
        send(running, range(100))
        until(lambda: sum(counter.counts().values()) == 100)
    assert len(recorded(folder)["gives_back"]) == len([x for x in range(100) if x % 3 == 1 and x < 50])


def test_record_joins_a_process_that_is_being_counted_and_leaves_it_counted(tmp_path: Path) -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        send(running, range(100))
        until(lambda: sum(counter.counts().values()) == 100)
        folder = tmp_path / "beside.sgt"
        recorder = started("record", "--pid", str(running.pid), "-f", "gives_back", "-q", "-o", str(folder))
        until(lambda: any(row["kind"] == "recorder" for row in target.users))
        send(running, range(200))
        until(lambda: sum(counter.counts().values()) == 300)
        recorder.terminate()
        recorder.communicate(timeout=60)
        assert len(recorded(folder)["gives_back"]) == 200
        send(running, range(7))
        until(lambda: sum(counter.counts().values()) == 307)
        assert running.end("") == ["gives_back 307", "OK"]


def test_counting_begins_and_ends_while_a_process_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "first.sgt"
    with Running([program("live_values")]) as running:
        recorder = started("record", "--pid", str(running.pid), "-f", "gives_back", "-q", "-o", str(folder))
        until(lambda: recorder_is_there(running.pid))
        send(running, range(100))
        with live.attach(running.pid) as target:
            counter = target.register(live.Counter(["gives_back"]))
            histogram = target.register(live.Histogram(["gives_back"], value="result"))
            before = sum(counter.counts().values())
            send(running, range(50))
            until(lambda: sum(counter.counts().values()) >= before + 50)
            assert histogram.percentiles("gives_back")["max"] >= 49
        send(running, range(25))
        assert running.end("")[-1] == "OK"
        recorder.communicate(timeout=60)
        assert recorder.returncode == 0
    assert len(recorded(folder)["gives_back"]) == 175


def recorder_is_there(pid: int) -> bool:
    from shadowgraph.live.others import read_users

    return any(row["kind"] == "recorder" for row in read_users(pid).rows)


def test_what_cannot_be_recorded_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on_full: wait is none of block, drop, overwrite"):
        live.Recorder(tmp_path / "x.sgt", on_full="wait")
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        with pytest.raises(UsageError, match="no function"):
            target.register(live.Recorder(tmp_path / "x.sgt", ["no_such_function"]))
        assert not (tmp_path / "x.sgt").exists()
        assert running.end("")[-1] == "OK"


def test_where_the_trace_cannot_be_the_advice_is_for_python(tmp_path: Path) -> None:
    (tmp_path / "old.sgt").mkdir()
    (tmp_path / "old.sgt" / "manifest.json").write_text("{}")
    with Running([program("live_short")]) as running, live.attach(running.pid) as target:
        for path, said in (
            (tmp_path / "old.sgt", "the trace folder exists; replace it with force=True or choose another path"),
            (tmp_path / "no" / "new.sgt", f"there is no folder {tmp_path / 'no'}; choose another path"),
            (tmp_path, "is a folder, but not a trace; choose another path"),
        ):
            with pytest.raises(UsageError) as refused:
                target.register(live.Recorder(path, ["sum"]))
            assert str(refused.value).startswith(f"{path}: ") and str(refused.value).endswith(said)
        target.register(live.Recorder(tmp_path / "old.sgt", ["sum"], force=True))
        assert running.end("") == ["done", "OK"]
