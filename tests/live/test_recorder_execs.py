"""A recorder goes along into programs that a process, or a child of it, executes: all of them are in its trace."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.live.others import read_users
from tests.live.test_execs import STEP, WAYS, executing
from tests.support.attached import Running
from tests.support.live import until


def calls_by_process(folder: Path) -> list[Counter[str]]:
    """How often each function was called, for each process in the order of their numbers."""
    trace = sg.open(folder)
    assert not trace.problems
    assert trace.counters == {"missed": 0, "dropped": 0, "filtered": 0}
    names = {row["function"]: row["name"] for row in trace.functions.to_pylist()}
    process_of = {row["thread"]: row["process"] for row in trace.threads.to_pylist()}
    found: dict[int, Counter[str]] = {row["process"]: Counter() for row in trace.processes.to_pylist()}
    for row in trace.calls.to_pylist():
        found[process_of[row["thread"]]][names[row["function"]]] += 1
    return [found[process] for process in sorted(found)]


@pytest.mark.parametrize(("words", "calls"), WAYS.values(), ids=WAYS)
def test_all_programs_are_in_the_trace(
    words: list[str], calls: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with live.launch(executing(*words), follow=True) as target:
        recorder = target.register(live.Recorder(tmp_path / "run.sgt", ["step", "main"]))
        counter = target.register(live.Counter(["step"]))
        assert target.wait() == 0
        recorder.unregister()
    assert capfd.readouterr().out.splitlines()[-1] == "OK"
    assert target.notes == []
    found = calls_by_process(tmp_path / "run.sgt")
    executed = words.count("exec") + words.count("thread") + words.count("spawn") + words.count("fork")
    assert len(found) == 1 + executed
    assert sum(row["step"] for row in found) == counter.counts()[STEP] == calls
    trace = sg.open(tmp_path / "run.sgt")
    assert trace.metadata["end"] == {"reason": "exited"}
    rows = trace.functions.to_pylist()
    assert len({(row["module_path"], row["address"]) for row in rows}) == len(rows)  # one number for each function


def test_programs_of_which_each_has_other_functions_are_told_apart(tmp_path: Path) -> None:
    with live.launch(executing("2", "other", "/usr/bin/env", *executing("3")), follow=True) as target:
        target.register(live.Counter(["step"]))  # its functions have the first numbers here
        recorder = target.register(live.Recorder(tmp_path / "run.sgt"))
        assert target.wait() == 0
        recorder.unregister()
    first, env, last = calls_by_process(tmp_path / "run.sgt")
    assert (first["step"], last["step"], env["step"]) == (2, 3, 0)
    assert env["main"] <= 1 == first["main"] == last["main"]
    assert (first["execv"], env["execvp"]) == (1, 1)


def test_a_recorder_that_is_taken_off_halfway_has_all_until_then(tmp_path: Path) -> None:
    with Running(executing("line", "3", "exec", "line", "5", "spawn", "7", "line", "9", "line")) as running:
        with live.attach(running.pid, follow=True) as target:
            recorder = target.register(live.Recorder(tmp_path / "run.sgt", ["step", "puts"]))
            assert running.say("") == "ready"
            assert len([row for row in read_users(running.pid).rows if row["kind"] == "recorder"]) == 1
            assert [running.say(""), running.line()] == ["OK", "ready"]
            recorder.unregister()
            assert running.say("") == "ready"
        assert running.end("") == ["OK"]
    assert [row["step"] for row in calls_by_process(tmp_path / "run.sgt")] == [3, 5, 7]
    assert sg.open(tmp_path / "run.sgt").metadata["end"]["reason"] == "stopped"


def test_what_was_in_flight_when_a_program_was_executed_is_open(tmp_path: Path) -> None:
    with live.launch(executing("2", "exec", "3"), follow=True) as target:
        recorder = target.register(live.Recorder(tmp_path / "run.sgt", ["main", "step"]))
        assert target.wait() == 0
        recorder.unregister()
    trace = sg.open(tmp_path / "run.sgt")
    names = {row["function"]: row["name"] for row in trace.functions.to_pylist()}
    rows = sorted(trace.calls.to_pylist(), key=lambda row: row["start_ns"])
    kinds = [(row["kind"], row["depth"]) for row in rows if names[row["function"]] == "main"]
    assert kinds == [(3, 0), (0, 0)]
    first, second = (row for row in rows if names[row["function"]] == "main")
    assert first["start_ns"] + first["duration_ns"] <= second["start_ns"]


def test_other_functions_go_along_as_well(tmp_path: Path) -> None:
    with Running(executing("line", "3", "exec", *["line", "5"] * 2, "exec", "line", "7", "line")) as running:
        with live.attach(running.pid, follow=True) as target:
            recorder = target.register(live.Recorder(tmp_path / "run.sgt", ["puts"]))
            running.say("")
            recorder.replace_functions(["step"])
            running.say("")
            running.say("")
            running.say("")
            recorder.unregister()
            until(lambda: not read_users(running.pid).rows)
        assert running.end("") == ["OK"]
    found = calls_by_process(tmp_path / "run.sgt")
    assert [(row["step"], row["puts"]) for row in found] == [(10, 1), (7, 0)]  # in the first one none was called
