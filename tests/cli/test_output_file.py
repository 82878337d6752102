"""`-o FILE`: what is measured goes to a file, and standard output is the program's alone."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests.support.build import scratch_folder
from tests.support.live import SHADOWGRAPH
from tests.support.manners import program, run

PROBE = ["probe", "--code", "int on_entry(struct sg_call *call) { sg_emit(call, 0, 0); return 0; }"]
COMMANDS = [["count"], ["hist"], PROBE]


def on_threads(words: list[str], *options: str) -> list[str]:
    """A command of ours on a program that calls `work` five times and says so."""
    return [*SHADOWGRAPH, *words, "-f", "work", *options, "--", program("live_threads", "o2", "-pthread"), "5"]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
def test_the_programs_output_and_ours_are_apart(words: list[str], form: tuple[str, ...]) -> None:
    file = Path(scratch_folder()) / "measured"
    file.write_text("what was there before is gone\n")
    ended = run(on_threads(words, *form, "-o", str(file)))
    assert (ended.status, ended.lines) == (0, ["work 5 step 10", "OK"])
    lines = file.read_text().splitlines()
    assert any("work" in line for line in lines) and not any("before" in line for line in lines)
    if form:
        last = [json.loads(line) for line in lines][-1]
        assert last["end"] == "exit"
        functions = last.get("functions", [{}])[0]
        assert last.get("events") or functions.get("calls") or functions.get("count") == 5


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_a_file_that_cannot_be_made_is_refused_before_anything_runs(words: list[str]) -> None:
    ended = run(on_threads(words, "-o", "/no/such/folder/measured"))
    assert (ended.status, ended.output) == (2, "")
    assert ended.sentence == "/no/such/folder/measured cannot be written to: no such file or directory"


@pytest.mark.parametrize("name", ["/dev/stderr", "/dev/fd/2", "/proc/self/fd/2"])
def test_what_is_open_already_is_written_on_and_not_emptied(name: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("a") as errors:
        ended = subprocess.run(on_threads(["count"], "-o", name), stdout=subprocess.PIPE, stderr=errors, text=True)
    assert (ended.returncode, ended.stdout) == (0, "work 5 step 10\nOK\n")
    assert log.read_text().splitlines() == ["before", "Calls  Function", "    5  work"]


def test_standard_errors_that_are_a_socket_are_written_to() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = on_threads(["count"], "-o", "/dev/stderr")
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs)
        assert ended.returncode == 0
        assert ours.recv(4096).decode().splitlines() == ["Calls  Function", "    5  work"]


def test_a_full_disk_is_said_and_the_program_has_run() -> None:
    ended = run(on_threads(["count"], "-o", "/dev/full"))
    assert (ended.status, ended.lines) == (2, ["work 5 step 10", "OK"])
    assert ended.sentence == "/dev/full cannot be written to: no space left on device"
