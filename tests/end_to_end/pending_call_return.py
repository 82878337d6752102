"""Traced programs keep every call and return in balance: a hardware shadow stack would let them run (R16).

The program stops itself before its first round, when the recorder has long let go of it; the checker attaches, steps
through every instruction of the program and of the agent, and holds each ret against its model.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.build import PROGRAMS, scratch_folder
from tests.support.call_return import CallReport, attach_command, check_calls, read_report
from tests.support.graphs import differences, read_graph
from tests.support.recording import built, environment, recorder_command, refused_names
from tests.support.traces import read_trace

# Rounds are few: each instruction costs some 22 microseconds.
CASES = {
    "coroutines": 10,
    "coroutines_abandoned": 12,
    "coroutines_across_threads": 8,
    "leaving_always_throws": 3,
    "leaving_destructor_throw": 1,
    "leaving_exit": 1,
    "leaving_longjmp": 100,
    "leaving_pthread_exit": 2,
    "leaving_segv_longjmp": 5,
    "processes_fork": 1,
    "scale_many_threads": 1,
    "shapes_first_call": 5,
    "shapes_first_jump": 5,
    "shapes_rep_ret": 5,
    "shapes_tiny": 5,
    "tail_chain": 2,
    "tail_mutual": 1000,
    "tail_short": 10,
    "values_all_registers": 5,
    "values_big_struct": 2,
    "values_structs": 5,
}


def descendants(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        for child in (thread / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def stopped_descendant(pid: int) -> int:
    """The process below ``pid`` that has stopped itself; waits for it."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for child in descendants(pid):
            if "State:\tT (stopped)" in Path(f"/proc/{child}/status").read_text():
                return child
        time.sleep(0.01)
    raise AssertionError("the program never stopped itself")


def check_traced(program: Path, rounds: int, trace: Path, options: list[str]) -> tuple[CallReport, list[str], int]:
    """Record a program and check it from its own stop on: the report, its output, and the recorder's status."""
    output = Path(tempfile.mkdtemp(dir=scratch_folder())) / "report.json"
    command = recorder_command([str(program), str(rounds), "stop"], trace, tuple(options))
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), cwd=scratch_folder()) as recorder:
        pid = stopped_descendant(recorder.pid)
        subprocess.run(attach_command(pid, output), check=True, timeout=240)
        text, _ = recorder.communicate(timeout=60)
    return read_report(output), text.decode().splitlines(), recorder.returncode


@pytest.mark.parametrize("name", CASES)
def test_no_return_of_a_traced_program_goes_elsewhere(name: str) -> None:
    graph, rounds = read_graph(PROGRAMS / f"{name}.graph"), CASES[name]
    program = built(graph, "o2")
    trace = Path(tempfile.mkdtemp(dir=scratch_folder())) / "run.sgt"
    report, lines, status = check_traced(program, rounds, trace, graph.record)
    assert [str(mismatch) for mismatch in report.mismatches] == []
    assert report.mismatch_count == 0
    assert (graph.output_differs(lines), status) == ("", graph.status)
    content = read_trace(trace, program)
    assert report.calls > len(
        content.function
    )  # the agent's own calls, one for each traced call, were among those seen
    refusals = refused_names(program)
    found = differences(graph, content, graph.variables(lines, rounds), refusals.__contains__)
    assert not found, "\n".join(found)


def test_a_program_unlawful_by_itself_is_no_worse_when_traced() -> None:
    """The checker sees through the agent: what the program does wrong is found, and nothing else."""
    graph = read_graph(PROGRAMS / "callcheck_pushed_return.graph")
    program = built(graph, "o2")
    trace = Path(tempfile.mkdtemp(dir=scratch_folder())) / "run.sgt"
    plain, _ = check_calls(program, "3")
    report, lines, _ = check_traced(program, 3, trace, graph.record)
    assert lines == ["OK"]
    assert {Path(mismatch.file).name for mismatch in report.mismatches} == {program.name}
    assert report.mismatch_count == plain.mismatch_count
