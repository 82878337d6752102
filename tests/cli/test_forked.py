"""What a forked child loads by itself is recorded as what the process itself loads, wherever it comes to lie."""

from __future__ import annotations

import importlib.util
import signal
import sys
from pathlib import Path

import pytest

import shadowgraph
from shadowgraph.target import ptrace
from shadowgraph.target.memory import Memory, read_mappings
from tests.support.attached import Running
from tests.support.forked import forked
from tests.support.live import started, wait_for_users
from tests.support.manners import program, recorder, run


def record(trace: Path, lines: list[str], *options: str) -> list[int]:
    """What the program answered to each line while its libraries were recorded."""
    start = [argument for argument in recorder(*(options or ("-m", "libforked*")), trace=trace) if argument != "-q"]
    ended = run([*start, *forked()], stdin="".join(f"{line}\n" for line in lines))
    first, *answers, last = ended.lines
    assert (first, last, ended.status) == ("ready", "OK", 0), ended.errors
    assert "not followed" not in ended.errors and "by itself" not in ended.errors, ended.errors
    return [int(answer) for answer in answers]


def calls(trace: Path) -> dict[str, dict[int, int]]:
    """How many calls of each function of the libraries each process has made."""
    with shadowgraph.open(trace) as opened:
        columns = (opened.functions[name].to_pylist() for name in ("function", "name", "module", "address"))
        functions = {number: place for number, *place in zip(*columns, strict=True)}
        assert len(set(map(tuple, functions.values()))) == len(functions), "a function has several rows"
        threads = dict(zip(*(opened.threads[name].to_pylist() for name in ("thread", "pid")), strict=True))
        rows = zip(*(opened.calls[name].to_pylist() for name in ("function", "thread")), strict=True)
        found: dict[str, dict[int, int]] = {}
        for function, thread in rows:
            name, pid = functions[function][0], threads[thread]
            if name.startswith(("count_", "inner_")):
                found.setdefault(name, {}).setdefault(pid, 0)
                found[name][pid] += 1
    return found


def test_two_libraries_at_one_address_in_parent_and_child_are_kept_apart(tmp_path: Path) -> None:
    lines = ["here", "fork", "open 1", "child open 2", "call 1 5", "child call 2 7", "call 1 3", "child call 2 1"]
    parent, child, one, two, *_ = record(tmp_path / "t.sgt", lines)
    assert one == two, "the case that this is about: the same address in both"
    assert calls(tmp_path / "t.sgt") == {
        "count_1": {parent: 8},
        "inner_1": {parent: 8},
        "count_2": {child: 8},
        "inner_2": {child: 8},
    }


def test_a_library_at_the_same_place_in_several_processes_is_one(tmp_path: Path) -> None:
    lines = ["here", "fork", "child open 1", "child call 1 2", "open 1", "call 1 3", "fork", "child call 1 4"]
    parent, child, there, _, here, _, second, _ = record(tmp_path / "t.sgt", lines)
    assert there == here
    counted = {child: 2, parent: 3, second: 4}
    assert calls(tmp_path / "t.sgt") == {"count_1": counted, "inner_1": counted}


def test_a_library_at_different_places_is_one_function_in_the_trace(tmp_path: Path) -> None:
    lines = ["here", "fork", "child open 2", "child open 1", "open 1", "call 1 3", "child call 1 4", "child call 2 1"]
    parent, child, _, there, here, *_ = record(tmp_path / "t.sgt", lines)
    assert there != here
    assert calls(tmp_path / "t.sgt") == {
        "count_1": {parent: 3, child: 4},
        "inner_1": {parent: 3, child: 4},
        "count_2": {child: 1},
        "inner_2": {child: 1},
    }


def test_a_child_of_the_child_has_what_that_had_loaded_and_loads_more(tmp_path: Path) -> None:
    lines = ["here", "fork", "child open 1", "child fork", "child child call 1 4", "child child open 2"]
    lines += ["child child call 2 2", "child open 3", "child call 3 1", "child call 1 1"]
    _, child, _, grandchild, _, two, _, three, *_ = record(tmp_path / "t.sgt", lines)
    assert two == three
    assert calls(tmp_path / "t.sgt") == {
        "count_1": {grandchild: 4, child: 1},
        "inner_1": {grandchild: 4, child: 1},
        "count_2": {grandchild: 2},
        "inner_2": {grandchild: 2},
        "count_3": {child: 1},
        "inner_3": {child: 1},
    }


def test_what_comes_again_elsewhere_in_the_parent_stays_where_it_is_in_the_child(tmp_path: Path) -> None:
    """The records of functions are the same for both: one that the child goes by is not written anew."""
    lines = ["here", "open 1", "fork", "close 1", "open 2", "open 1", "call 1 2", "child call 1 3", "call 2 1"]
    parent, before, child, _, two, after, *_ = record(tmp_path / "t.sgt", lines)
    assert two == before != after
    assert calls(tmp_path / "t.sgt") == {
        "count_1": {parent: 2, child: 3},
        "inner_1": {parent: 2, child: 3},
        "count_2": {parent: 1},
        "inner_2": {parent: 1},
    }


def test_what_a_child_loads_again_at_its_place_is_hooked_again(tmp_path: Path) -> None:
    lines = ["here", "open 1", "fork", "child close 1", "child open 1", "child call 1 2"]
    lines += ["child close 1", "child open 2", "child call 2 3", "call 1 1"]
    parent, before, child, _, again, _, _, two, *_ = record(tmp_path / "t.sgt", lines)
    assert before == again == two
    assert calls(tmp_path / "t.sgt") == {
        "count_1": {child: 2, parent: 1},
        "inner_1": {child: 2, parent: 1},
        "count_2": {child: 3},
        "inner_2": {child: 3},
    }


def test_all_records_what_a_child_loads_too(tmp_path: Path) -> None:
    lines = ["here", "fork", "child open 1", "child call 1 2"]
    _, child, *_ = record(tmp_path / "t.sgt", lines, "--all")
    found = calls(tmp_path / "t.sgt")
    assert found["count_1"] == found["inner_1"] == {child: 2}


def code_is_changed(pid: int, name: str) -> bool:
    """Whether the code of a library of a process is not as in its file."""
    mapping = next(m for m in read_mappings(pid) if m.path.endswith(name) and "x" in m.permissions)
    code = Path(mapping.path).read_bytes()[mapping.offset : mapping.offset + mapping.end - mapping.start]
    memory = Memory(pid)
    try:
        return memory.read(mapping.start, len(code)) != code
    finally:
        memory.close()


def test_when_the_recording_ends_each_process_has_the_code_of_its_libraries_back(tmp_path: Path) -> None:
    trace = tmp_path / "t.sgt"
    with Running(forked()) as running:
        recording = started("record", "--pid", str(running.pid), "-o", str(trace), "-m", "libforked*")
        wait_for_users(running.pid, 1)
        child = int(running.say("fork"))
        assert running.say("child open 2") == running.say("open 1")
        grandchild = int(running.say("child fork"))
        running.say("child child open 3")
        processes = {running.pid: "libforked1.so", child: "libforked2.so", grandchild: "libforked3.so"}
        assert [code_is_changed(*process) for process in processes.items()] == [True] * 3
        assert code_is_changed(grandchild, "libforked2.so")
        recording.send_signal(signal.SIGINT)
        _, errors = recording.communicate(timeout=120)
        assert recording.returncode == 0, errors
        assert [code_is_changed(*process) for process in processes.items()] == [False] * 3
        assert not code_is_changed(grandchild, "libforked2.so")
        for line in ("call 1 2", "child call 2 2", "child child call 3 2", "child child call 2 1"):
            assert running.say(line)
        assert running.end() == ["OK"]
    assert calls(trace) == {}


def test_what_a_child_loads_while_a_debugger_is_at_it_is_not_seen_and_that_is_said(tmp_path: Path) -> None:
    trace = tmp_path / "t.sgt"
    with Running(forked()) as running:
        recording = started("record", "--pid", str(running.pid), "-o", str(trace), "-m", "libforked*")
        wait_for_users(running.pid, 1)
        child = int(running.say("fork"))
        ptrace.seize(child)
        for line in ("child open 2", "child call 2 3", "open 1", "call 1 1"):
            assert running.say(line)
        ptrace.interrupt(child)
        ptrace.wait_stop(child)
        ptrace.detach(child)
        assert running.say("child open 1") and running.say("child call 1 2")
        assert running.end() == ["OK"]
        _, errors = recording.communicate(timeout=120)
    assert recording.returncode == 0, errors
    said = "a forked child has loaded libforked2.so by itself; calls there are not seen: "
    assert errors.count("by itself") == errors.count(said) == 1, errors
    assert calls(trace) == {"count_1": {running.pid: 1, child: 2}, "inner_1": {running.pid: 1, child: 2}}


def test_nobody_waits_for_a_recorder_that_was_killed(tmp_path: Path) -> None:
    with Running(forked()) as running:
        recording = started("record", "--pid", str(running.pid), "-o", str(tmp_path / "t.sgt"), "-m", "libforked*")
        wait_for_users(running.pid, 1)
        running.say("fork")
        running.say("child open 1")
        recording.kill()
        recording.communicate()
        for line in ("child open 2", "child call 1 2", "child call 2 2", "open 1", "call 1 1"):
            assert running.say(line)
        assert running.end() == ["OK"]


_PYTHON = """
import multiprocessing, os
def work(number):
    import _decimal
    return os.getpid(), str(_decimal.Decimal(number).sqrt())
with multiprocessing.get_context("fork").Pool(3) as pool:
    results = pool.map(work, range(40), chunksize=1)
print(*sorted({pid for pid, _ in results}))
print(*(root for _, root in results))
"""


def test_workers_of_multiprocessing_import_modules_that_are_recorded(tmp_path: Path) -> None:
    specification = importlib.util.find_spec("_decimal")
    if specification is None or not str(specification.origin).endswith(".so"):
        pytest.skip("this interpreter has the module built in")
    plain = run([sys.executable, "-c", _PYTHON])
    start = [one for one in recorder("-m", "_decimal*", trace=tmp_path / "t.sgt") if one != "-q"]
    ended = run([*start, sys.executable, "-c", _PYTHON], timeout=300)
    assert (ended.status, ended.lines[1]) == (0, plain.lines[1])
    assert "by itself" not in ended.errors and "not followed" not in ended.errors
    workers = set(map(int, ended.lines[0].split()))
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        rows = zip(*(trace.functions[name].to_pylist() for name in ("name", "calls")), strict=True)
        counted = dict(rows)
        threads = dict(zip(*(trace.threads[name].to_pylist() for name in ("thread", "pid")), strict=True))
        assert {threads[thread] for thread in trace.calls["thread"].to_pylist()} == workers
    assert counted["PyInit__decimal"] == len(workers)


def test_a_process_that_forks_on_is_one_process_when_its_recording_is_over(tmp_path: Path) -> None:
    with Running([program("forks_on")]) as running:
        command = started(
            "record", "--pid", str(running.pid), "-f", "leaf", "--for", "200ms", "-o", str(tmp_path / "t.sgt")
        )
        _, errors = command.communicate(timeout=120)
        assert command.returncode == 0, errors
        assert running.end("") == ["OK"]
    assert "executed" not in errors
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        rows = {name: trace.processes[name].to_pylist() for name in ("pid", "end_ns")}
    assert len(set(rows["pid"])) == len(rows["pid"]) > 1
    assert None not in rows["end_ns"]
