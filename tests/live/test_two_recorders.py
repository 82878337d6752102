"""Several recorders on one process: each has a complete trace of its own functions, whatever befalls the others."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import shadowgraph as sg
from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.errors import StartError
from shadowgraph.live.others import read_users
from tests.support.attached import Running
from tests.support.build import PROGRAMS, compile_files, scratch_folder
from tests.support.live import send, started, until
from tests.support.manners import program


def calls_in(folder: Path) -> Counter[str]:
    """How often each function was called, as a trace has it."""
    trace = sg.open(folder)
    names = {row["function"]: row["name"] for row in trace.functions.to_pylist()}
    return Counter(names[number] for number in trace.calls["function"].to_pylist())


def recorders_on(pid: int) -> int:
    """How many recorders are on functions of a process."""
    return sum(row["kind"] == "recorder" and row["functions"] > 0 for row in read_users(pid).rows)


def test_two_recorders_have_the_same_calls_and_each_its_own_end(tmp_path: Path) -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))

        def call(count: int) -> None:
            before = sum(counter.counts().values())
            send(running, range(count))
            until(lambda: sum(counter.counts().values()) == before + count)

        first = target.register(live.Recorder(tmp_path / "first.sgt", ["gives_back"]))
        call(100)
        second = target.register(live.Recorder(tmp_path / "second.sgt", ["gives_back"]))
        call(1000)
        first.unregister()
        call(10)
        second.unregister()
        call(1)
        assert calls_in(tmp_path / "first.sgt") == {"gives_back": 1100}
        assert calls_in(tmp_path / "second.sgt") == {"gives_back": 1010}
        assert running.end("") == ["gives_back 1111", "OK"]


def test_as_many_recorders_as_there_can_be_and_the_next_one_is_told_so(tmp_path: Path) -> None:
    with Running([program("live_values")]) as running, live.attach(running.pid) as target:
        counter = target.register(live.Counter(["gives_back"]))
        recorders = []
        for number in range(layout.RECORDERS):
            recorders.append(target.register(live.Recorder(tmp_path / f"{number}.sgt", ["gives_back"], buffer=1 << 19)))
        with pytest.raises(StartError, match=f"{layout.RECORDERS} recorders are in this process, and no more can be"):
            target.register(live.Recorder(tmp_path / "more.sgt", ["gives_back"]))
        assert not (tmp_path / "more.sgt").exists()
        send(running, range(500))
        until(lambda: sum(counter.counts().values()) == 500)
        recorders[3].unregister()
        again = target.register(live.Recorder(tmp_path / "again.sgt", ["gives_back"]))
        send(running, range(40))
        until(lambda: sum(counter.counts().values()) == 540)
        for recorder in [*recorders, again]:
            recorder.unregister()
        expected = [500 if number == 3 else 540 for number in range(layout.RECORDERS)]
        assert [calls_in(recorder.path)["gives_back"] for recorder in recorders] == expected
        assert calls_in(again.path) == {"gives_back": 40}
        assert running.end("") == ["gives_back 540", "OK"]


def test_two_record_commands_work_side_by_side(tmp_path: Path) -> None:
    folders = [tmp_path / "one.sgt", tmp_path / "two.sgt"]
    with Running([program("live_values")]) as running:
        commands = [record(running.pid, folder, "-f", "gives_back") for folder in folders]
        send(running, range(2000))
        assert running.end("") == ["gives_back 2000", "OK"]
        for command in commands:
            _, errors = command.communicate(timeout=60)
            assert command.returncode == 0, errors
    assert [calls_in(folder) for folder in folders] == [{"gives_back": 2000}] * 2


def test_a_recorder_that_is_killed_leaves_the_other_one_alone(tmp_path: Path) -> None:
    with Running([program("live_values")]) as running:
        commands = {}
        for name in ("first", "killed", "last"):
            commands[name] = record(running.pid, tmp_path / f"{name}.sgt", "-f", "gives_back")
        send(running, range(300))
        commands["killed"].kill()
        commands["killed"].communicate()
        commands["first"].send_signal(signal.SIGINT)
        commands["first"].communicate(timeout=60)
        send(running, range(700))
        assert running.end("") == ["gives_back 1000", "OK"]
        _, errors = commands["last"].communicate(timeout=60)
        assert commands["last"].returncode == 0, errors
    assert calls_in(tmp_path / "last.sgt") == {"gives_back": 1000}
    assert 0 < calls_in(tmp_path / "first.sgt")["gives_back"] <= 1000


@pytest.mark.parametrize(
    ("name", "arguments", "last"), [("live_threads", ["400"], "work 400 step 800"), ("live_forks", ["40"], "")]
)
def test_threads_and_forked_children_are_in_both_traces(
    tmp_path: Path, name: str, arguments: list[str], last: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with live.launch([program(name, "o2", "-pthread"), *arguments]) as target:
        both = target.register(live.Recorder(tmp_path / "both.sgt", ["work", "step"]))
        some = target.register(live.Recorder(tmp_path / "some.sgt", ["step"], buffer=1 << 19))
        assert target.wait() == 0
        both.unregister()
        some.unregister()
    line = capfd.readouterr().out.splitlines()[-2]
    assert line.startswith(last)
    words = line.split()
    printed = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert calls_in(tmp_path / "both.sgt") == printed
    assert calls_in(tmp_path / "some.sgt") == {"step": printed["step"]}
    traces = [sg.open(tmp_path / "both.sgt"), sg.open(tmp_path / "some.sgt")]
    assert [len(set(trace.threads["tid"].to_pylist())) for trace in traces] == [len(trace.threads) for trace in traces]
    assert [trace.counters for trace in traces] == [{"missed": 0, "dropped": 0, "filtered": 0}] * 2


def test_each_has_its_own_policy_and_counts_its_own_losses(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with live.launch([program("live_busy", "o2", "-pthread"), "2"]) as target:
        recorders = {
            name: target.register(live.Recorder(tmp_path / f"{name}.sgt", ["step"], on_full=name, buffer=1 << 19))
            for name in ("block", "drop", "overwrite")
        }
        counter = target.register(live.Counter(["step"]))
        until(lambda: sum(counter.counts().values()) > 400_000)
        os.kill(target.pid, signal.SIGTERM)
        assert target.wait() == 0
        for recorder in recorders.values():
            recorder.unregister()
    steps = int(capfd.readouterr().out.splitlines()[-2].split()[1])
    lost = {name: sg.open(recorder.path).counters["dropped"] for name, recorder in recorders.items()}
    found = {name: calls_in(recorder.path)["step"] for name, recorder in recorders.items()}
    assert {name: found[name] + lost[name] for name in found} == dict.fromkeys(found, steps)
    assert lost["block"] == 0 < lost["overwrite"]


def test_each_captures_what_it_was_asked_for(tmp_path: Path) -> None:
    specifications = ["gives_back(i64 first)", "gives_back(u8 low) -> i64", None]
    with Running([program("live_values")]) as running:
        commands = []
        for number, text in enumerate(specifications):
            words = ["--args", text] if text else []
            commands.append(record(running.pid, tmp_path / f"{number}.sgt", "-f", "gives_back", *words))
        send(running, [300, 5])
        assert running.end("") == ["gives_back 2", "OK"]
        for command in commands:
            _, errors = command.communicate(timeout=60)
            assert command.returncode == 0, errors
    rows = [sg.open(tmp_path / f"{number}.sgt").calls.to_pylist() for number in range(3)]
    assert [row["arguments"] for row in rows[0]] == ["first=300", "first=5"]
    assert [(row["arguments"], row["result"]) for row in rows[1]] == [("low=44", "300"), ("low=5", "5")]
    assert "arguments" not in rows[2][0] or rows[2][0]["arguments"] is None


def test_each_has_its_own_limits_of_depth_and_time(tmp_path: Path) -> None:
    with Running([program("live_recursion")], ready=None) as running:
        options = {"three": ["--depth", "3"], "all": [], "five": ["--depth", "5"], "none": ["--min-time", "10s"]}
        commands = []
        for name, words in options.items():
            commands.append(record(running.pid, tmp_path / f"{name}.sgt", "-f", "down", *words))
        for number in (0, 2, 100, 1000):
            running.say(str(number))
        with live.attach(running.pid) as target:
            histogram = target.register(live.Histogram(["down"]))
            running.say("50")
            assert histogram.percentiles("down")["count"] == 51
        assert running.end("") == ["OK"]
        for command in commands:
            _, errors = command.communicate(timeout=60)
            assert command.returncode == 0, errors
    calls = [1, 3, 101, 1001, 51]
    expected = {
        "three": sum(min(count, 3) for count in calls),
        "all": sum(calls),
        "five": sum(min(count, 5) for count in calls),
        "none": 0,
    }
    assert {name: calls_in(tmp_path / f"{name}.sgt")["down"] for name in options} == expected
    filtered = {name: sg.open(tmp_path / f"{name}.sgt").counters["filtered"] for name in options}
    assert filtered == {name: sum(calls) - count for name, count in expected.items()}


def test_nesting_is_right_whoever_has_hooked_functions_in_between(tmp_path: Path) -> None:
    with Running([program("live_nested")]) as running, live.attach(running.pid) as target:
        first = target.register(live.Recorder(tmp_path / "ends.sgt", ["outer", "inner"]))
        running.say("1")
        target.register(live.Histogram(["between"]))
        second = target.register(live.Recorder(tmp_path / "middle.sgt", ["between", "inner"]))
        running.say("2")
        first.unregister()
        second.unregister()
        assert running.end("") == ["OK"]
    assert depths_in(tmp_path / "ends.sgt") == 2 * [("outer", 0), ("inner", 1), ("inner", 1), ("inner", 1)]
    assert depths_in(tmp_path / "middle.sgt") == [("between", 0), ("inner", 1), ("inner", 1), ("inner", 0)]


def depths_in(folder: Path) -> list[tuple[str, int]]:
    """The functions of the calls in a trace and their depths, in the order of their starts."""
    trace = sg.open(folder)
    names = {row["function"]: row["name"] for row in trace.functions.to_pylist()}
    return [(names[row["function"]], row["depth"]) for row in trace.calls.to_pylist()]


def record(pid: int, folder: Path, *words: str) -> subprocess.Popen[str]:
    """A `record --pid` that has begun."""
    before = recorders_on(pid)
    command = started("record", "--pid", str(pid), "-o", str(folder), *words)
    until(lambda: recorders_on(pid) == before + 1)
    return command


def test_both_have_the_functions_of_libraries_that_are_loaded_later(tmp_path: Path) -> None:
    library = scratch_folder() / "two_recorders.shared.so"
    compile_files("gcc", [PROGRAMS / "library_in_loop.shared.c"], library, ("-shared", "-fPIC", "-O2"))
    with Running([program("live_opens"), str(library)]) as running:
        commands = {}
        for name, words in {"first": ["-f", "main"], "all": [], "inner": ["-n", "library_function"]}.items():
            options = ["-o", str(tmp_path / f"{name}.sgt"), "-m", library.name, *words]
            commands[name] = started("record", "--pid", str(running.pid), *options)
            until(lambda: rows_of_recorders(running.pid) == len(commands))
        assert [running.say("open") for _ in range(3)] == ["42"] * 3
        assert running.end() == ["OK"]
        for command in commands.values():
            _, errors = command.communicate(timeout=60)
            assert command.returncode == 0, errors
    every = dict.fromkeys(("library_function", "library_inner", "library_start", "library_end"), 3)
    found = {name: calls_in(tmp_path / f"{name}.sgt") for name in commands}
    assert found["first"] == found["all"]
    assert {name: count for name, count in found["all"].items() if name.startswith("library_")} == every
    assert found["all"] - found["inner"] == {"library_function": 3}


def rows_of_recorders(pid: int) -> int:
    """How many recorders have a place, and answer events."""
    return sum(row["kind"] == "recorder" and row["state"] == "on" for row in read_users(pid).rows)
