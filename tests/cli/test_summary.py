"""What `record` says in the end: what was called, what was hooked, and why the rest was not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import shadowgraph
from shadowgraph.cli._summary import summary_lines
from shadowgraph.image import SENTENCES, Reason
from shadowgraph.ops.refusals import Refusals, Refused
from shadowgraph.ops.result import Result
from tests.support.build import compile_files, scratch_folder
from tests.support.manners import recorder, run
from tests.support.recording import functions_of

PROGRAM = """
#include <unistd.h>
__attribute__((noipa)) int twice(int x) { return 2 * x; }
__attribute__((noipa)) int never(int x) { return 3 * x; }
int main(int argc, char **argv)
{
    if (twice(argc) == 2)
        execl(argv[0], argv[0], "again", (char *)0);
    return twice(2) == 4 ? 0 : never(1);
}
"""


def lines(calls: int = 3, called: int = 2, hooked: int = 2, **reasons: int) -> list[str]:
    manifest = {
        "calls": calls,
        "called": called,
        "functions": hooked,
        "threads": 1,
        "processes": 1,
        "tids": 1,
        "pids": 1,
    }
    refused = Refusals("/bin/app")
    names = [name for name, count in reasons.items() for _ in range(count)]
    refused.update(Refused("/bin/app", row, Reason[name], f"f{row}") for row, name in enumerate(names))
    return summary_lines(Path("a.sgt"), Result(0, False, hooked, refused, [], None), manifest)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((3, 2, 120), "3 calls of 2 functions (120 hooked) in 1 thread of 1 process"),
        ((1, 1, 1), "1 call of 1 function in 1 thread of 1 process"),
        ((4321, 1, 3), "4,321 calls of 1 function (3 hooked) in 1 thread of 1 process"),
    ],
)
def test_functions_that_were_called_are_told_from_those_that_were_hooked(
    numbers: tuple[int, int, int], said: str
) -> None:
    assert lines(*numbers)[0] == said


def test_a_function_is_counted_once_in_however_many_processes_it_is() -> None:
    folder = Path(scratch_folder())
    (folder / "again.c").write_text(PROGRAM)
    compile_files("gcc", [folder / "again.c"], folder / "again", ("-O2",))
    command = [word for word in recorder("-f", "re:^(main|twice|never)$") if word != "-q"]
    ended = run([*command, str(folder / "again")])
    assert ended.status == 0
    # main, twice, and when it has executed itself main, twice, twice
    assert (
        "shadowgraph: 5 calls of 2 functions (3 hooked) in 1 thread of 1 process, which has executed another program\n"
        in ended.errors
    )


def test_processes_are_told_from_the_programs_that_they_have_executed(tmp_path: Path) -> None:
    script = "for i in 1 2; do (exec env env true); done; env true"
    ended = run([*(word for word in recorder("--all", trace=tmp_path / "t.sgt") if word != "-q"), "sh", "-c", script])
    said = r" in (\d+) threads of (\d+) processes, which have executed (\d+) other programs\n"
    found = re.search(said, ended.errors)
    assert found is not None, ended.errors
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        pids, processes = trace.processes["pid"].to_pylist(), len(trace.processes)
    assert [int(number) for number in found.groups()] == [len(set(pids)), len(set(pids)), processes - len(set(pids))]
    assert len(set(pids)) == 4 and processes >= 8


def test_reasons_fit_the_number_of_functions() -> None:
    reason, other = "RETURNS_TWICE", "LOOKS_AT_RETURN_ADDRESS"
    sentence = SENTENCES[Reason[reason]]
    for counts, said in (
        ({reason: 1}, f"1 function could not be hooked, because {sentence}; it is f0"),
        ({reason: 4}, f"4 functions could not be hooked, all for this reason: {sentence}; they are f0, f1, f2, f3"),
        (
            {other: 2, reason: 6},
            f"8 functions could not be hooked, 6 of them for this reason: {sentence}; "
            "they are f2, f3, f4, f5, f6 and 3 more",
        ),
    ):
        assert lines(**counts)[1] == f"{said} (shadowgraph functions --refused /bin/app)"


@pytest.mark.parametrize(
    ("status", "runs_on", "said"),
    [
        (None, True, []),
        (None, False, ["the program has ended; whether by a signal, its parent alone knows"]),
        (0, False, ["the program has ended with status 0"]),
        (3 << 8, False, ["the program has ended with status 3"]),
        (9, False, ["the program was ended by SIGKILL"]),
    ],
)
def test_how_an_attached_program_has_ended_is_said(status: int | None, runs_on: bool, said: list[str]) -> None:
    manifest = {"calls": 1, "called": 1, "functions": 1, "threads": 1, "processes": 1, "tids": 1, "pids": 1}
    result = Result(0, runs_on, 1, Refusals(), [], None, attached=True, attached_status=status)
    shown = summary_lines(Path("a.sgt"), result, manifest)
    assert [line for line in shown if "ended" in line] == said


def test_one_function_of_a_library_is_not_several(tmp_path: Path) -> None:
    (tmp_path / "one.c").write_text("int one(int x, int y) { return x * y + x / y; }\n")
    compile_files("gcc", [tmp_path / "one.c"], tmp_path / "libone.so", ("-shared", "-fPIC", "-nostdlib", "-O2"))
    assert len(functions_of(tmp_path / "libone.so")) == 1
    said = run([*recorder()[:3], "functions", os.fspath(tmp_path / "libone.so")]).output
    assert "libone.so: 1 function, 1 can be hooked (100 %)" in said
