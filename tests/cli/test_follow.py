"""Programs that a program executes are followed or left alone, and what was not followed is said."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import shadowgraph
from tests.support.live import SHADOWGRAPH
from tests.support.manners import Ended, program, recorder, run

STATUS = 9


def counted() -> str:
    return program("manners_counted", "o1", "-pthread")


def record(trace: Path, *options: str, command: list[str]) -> Ended:
    start = [argument for argument in recorder(*options, trace=trace) if argument != "-q"]
    return run([*start, *command])


def processes(trace: Path) -> list[str]:
    """The last word of the first part of each command."""
    with shadowgraph.open(trace) as opened:
        return [command.split()[0].rsplit("/", 1)[-1] for command in opened.processes["command"].to_pylist()]


def leaves(trace: Path) -> int:
    with shadowgraph.open(trace) as opened:
        rows = zip(*(opened.functions[name].to_pylist() for name in ("name", "calls")), strict=True)
        return sum(calls for name, calls in rows if name == "leaf")


@pytest.mark.parametrize(
    "command",
    [["env"], ["env", "env"], ["sh", "-c", '"$0" "$@"; exit $?']],
    ids=["exec", "exec twice", "fork and exec"],
)
def test_executed_programs_are_followed_by_default(command: list[str], tmp_path: Path) -> None:
    ended = record(tmp_path / "t.sgt", command=[*command, counted(), "10", "2", str(STATUS)])
    plain = run([counted(), "10", "2", str(STATUS)])
    assert (ended.status, ended.output) == (STATUS, plain.output)
    assert leaves(tmp_path / "t.sgt") == 10 * 2 * 100
    assert processes(tmp_path / "t.sgt")[-1] == "manners_counted"
    assert "not followed" not in ended.errors


def test_no_follow_records_the_first_program_alone(tmp_path: Path) -> None:
    ended = record(tmp_path / "t.sgt", "--no-follow", command=["env", counted(), "10", "2", str(STATUS)])
    assert (ended.status, ended.output) == (STATUS, run([counted(), "10", "2"]).output)
    assert leaves(tmp_path / "t.sgt") == 0
    assert processes(tmp_path / "t.sgt") == ["env"]
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        assert len(trace.calls) > 0


def test_a_static_program_that_is_executed_runs_untraced_and_that_is_said(tmp_path: Path) -> None:
    static = tmp_path / "static"
    source = tmp_path / "s.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("static"); return 4; }\n')
    if subprocess.run(["gcc", "-static", source, "-o", static], capture_output=True).returncode:
        pytest.skip("the C library has no files for -static")
    ended = record(tmp_path / "t.sgt", command=["env", str(static)])
    assert (ended.status, ended.output) == (4, "static\n")
    assert f"shadowgraph: not followed: {static}: is statically linked" in ended.errors


def test_an_exec_that_fails_is_nothing_to_speak_of(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    for missing in (str(tmp_path / "missing"), str(tmp_path)):
        plain = run(["env", missing])
        ended = record(tmp_path / "t.sgt", "--force", command=["env", missing])
        assert (ended.status, ended.output) == (plain.status, plain.output)
        assert ended.errors.startswith(plain.errors)
        assert "not followed" not in ended.errors


def test_the_same_thing_is_noted_once(tmp_path: Path) -> None:
    static = tmp_path / "static"
    source = tmp_path / "s.c"
    source.write_text("int main(void) { return 0; }\n")
    if subprocess.run(["gcc", "-static", source, "-o", static], capture_output=True).returncode:
        pytest.skip("the C library has no files for -static")
    shutil.copy(static, tmp_path / "other")
    script = f"for i in 1 2 3; do {static}; {tmp_path}/other; done"
    ended = record(tmp_path / "t.sgt", command=["sh", "-c", script])
    assert ended.status == 0
    (said,) = [line for line in ended.errors.splitlines() if "not followed" in line]
    which = f"2 programs ({static}, {tmp_path}/other), each of which is statically linked; "
    assert said.startswith(f"shadowgraph: not followed: {which}")
    command = [*SHADOWGRAPH, "count", "--json", "-f", "libc.so*!malloc", "--", "sh", "-c", script]
    problems = json.loads(run(command).lines[-1])["problems"]
    assert [problem for problem in problems if "followed" in problem] == [said.removeprefix("shadowgraph: ")]
