"""Traced programs keep every call and return in balance: a hardware shadow stack would let them run (R16).

The program stops itself before its first round, when the recorder has long let go of it; the checker attaches, steps
through every instruction of the program and of the agent, and holds each ret against its model.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import pytest

from shadowgraph.image.reasons import SENTENCES, Reason
from tests.support.build import PROGRAMS, scratch_folder
from tests.support.call_return import CallReport, attach_command, check_calls, read_report
from tests.support.graphs import differences, read_graph
from tests.support.recording import built, environment, functions_of, refused_names
from tests.support.traces import read_trace

ROOT = Path(__file__).resolve().parents[2]

# Rounds are few: each instruction costs some 22 microseconds.
CASES = {
    "coroutines": 2,
    "coroutines_abandoned": 6,
    "coroutines_across_threads": 2,
    "imports": 1,
    "leaving_always_throws": 1,
    "leaving_destructor_throw": 1,
    "leaving_exit": 1,
    "leaving_longjmp": 10,
    "leaving_pthread_exit": 1,
    "leaving_segv_longjmp": 5,
    "processes_fork": 1,
    "scale_short_threads": 4,
    "shapes_first_call": 5,
    "shapes_first_jump": 5,
    "shapes_rep_ret": 5,
    "shapes_tiny": 5,
    "tail_mutual": 50,
    "tail_short": 5,
    "tail_true_return": 3,
    "values_all_registers": 5,
    "values_big_struct": 2,
    "values_structs": 5,
}
# Programs of which a shadow stack would not allow all.
UNLAWFUL = {"callcheck_pushed_return": 3, "leaving_builtin_setjmp": 2}


def descendants(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended has no children
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def stopped_descendant(pid: int) -> int:
    """The process below ``pid`` that has stopped itself; waits for it."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for child in descendants(pid):
            with suppress(FileNotFoundError, ProcessLookupError):
                if "State:\tT (stopped)" in Path(f"/proc/{child}/status").read_text():
                    return child
        time.sleep(0.01)
    raise AssertionError("the program never stopped itself")


@dataclass(frozen=True)
class Checked:
    """A recorded program that was checked from its own stop on, and what its recorder said."""

    report: CallReport
    lines: list[str]
    status: int
    remarks: str
    trace: Path


def check_traced(program: Path, rounds: int, options: list[str], *, shadow_stack: bool = False) -> Checked:
    """Record a program with a few rounds and check it, ``shadow_stack``: as if it had one."""
    folder = Path(tempfile.mkdtemp(dir=scratch_folder()))
    output, trace = folder / "report.json", folder / "run.sgt"
    command = [sys.executable, "-m", "tests.support.checked_recorder", *(["--shadow-stack"] if shadow_stack else [])]
    command += ["record", "-o", str(trace), *options, "--", str(program), str(rounds), "stop"]
    variables = environment()
    variables["PYTHONPATH"] += os.pathsep + str(ROOT)
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=variables, cwd=folder, text=True) as process:
        try:
            pid = stopped_descendant(process.pid)
            subprocess.run(attach_command(pid, output), check=True, timeout=240)
            text, remarks = process.communicate(timeout=60)
        except BaseException:
            for child in [*descendants(process.pid), process.pid]:  # or leaving the block would wait for them
                os.kill(child, signal.SIGKILL)
            raise
    return Checked(read_report(output), text.splitlines(), process.returncode, remarks, trace)


@cache
def refusals_of(program: Path) -> dict[str, str]:
    return refused_names(program)


def is_refused(program: Path, name: str) -> bool:
    return name in refusals_of(program)


@pytest.mark.parametrize("name", CASES)
def test_no_return_of_a_traced_program_goes_elsewhere(name: str) -> None:
    graph, rounds = read_graph(PROGRAMS / f"{name}.graph"), CASES[name]
    program = built(graph, "o2")
    checked = check_traced(program, rounds, graph.record)
    assert [str(mismatch) for mismatch in checked.report.mismatches] == []
    assert checked.report.mismatch_count == 0
    assert (graph.output_differs(checked.lines), checked.status) == ("", graph.status)
    content = read_trace(checked.trace, program)
    # The agent's own calls, one for each traced call, were among those seen.
    assert checked.report.calls > len(content.function)
    found = differences(graph, content, graph.variables(checked.lines, rounds), partial(is_refused, program))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", UNLAWFUL)
def test_a_program_unlawful_by_itself_is_no_worse_when_traced(name: str) -> None:
    """The checker sees through the agent: what the program does wrong is found, and nothing else."""
    graph, rounds = read_graph(PROGRAMS / f"{name}.graph"), UNLAWFUL[name]
    program = built(graph, "o2")
    plain, _ = check_calls(program, str(rounds))
    checked = check_traced(program, rounds, graph.record)
    assert checked.lines == ["OK"]
    assert checked.report.mismatch_count == plain.mismatch_count > 0
    places = [{(Path(m.file).name, m.offset) for m in report.mismatches} for report in (plain, checked.report)]
    assert places[0] == places[1]


def address_of(program: Path, name: str) -> int:
    return next(int(str(row["address"])) for row in functions_of(program) if row["function"] == name)


def test_calls_that_can_only_be_pushed_for_are_these_and_no_others() -> None:
    """What docs/limits.md says of them: nothing but a shadow stack can tell.

    A program at a fixed address has no place below it for trampolines, so a call at a function's very first byte cannot
    be made from its place.
    """
    graph = read_graph(PROGRAMS / "shapes_first_call.graph")
    program = built(graph, "nopie")
    checked = check_traced(program, 5, graph.record)
    behind_the_call = address_of(program, "calls_near") + 5
    assert [mismatch.actual for mismatch in checked.report.mismatches] == [behind_the_call] * 5
    assert checked.report.mismatch_count == 5
    assert (checked.lines, checked.status) == (["OK"], 0)
    found = differences(graph, read_trace(checked.trace, program), {"N": 5}, partial(is_refused, program))
    assert not found, "\n".join(found)


def test_with_a_shadow_stack_such_functions_are_left_out_with_the_reason() -> None:
    graph = read_graph(PROGRAMS / "shapes_first_call.graph")
    program = built(graph, "nopie")
    chosen = ["-f", "calls_near", "-f", "calls_memory", "-f", "reads_own_address"]
    checked = check_traced(program, 5, chosen, shadow_stack=True)
    assert checked.report.mismatches == []
    assert checked.report.mismatch_count == 0
    assert (checked.lines, checked.status) == (["OK"], 0)
    content = read_trace(checked.trace, program)
    assert {content.names[number] for number in content.function.tolist()} == {"calls_memory", "reads_own_address"}
    assert f"1 function could not be hooked, because {SENTENCES[Reason.PUSHED_CALL]}" in checked.remarks
