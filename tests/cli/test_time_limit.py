"""`record --for` on a program that it starts: the recording ends, the program does not, and its status is ours."""

from __future__ import annotations

import json
import os
import shlex
import signal
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

import shadowgraph as sg
from tests.support.build import scratch_folder
from tests.support.live import SHADOWGRAPH, started, until
from tests.support.terminal import CATCHING, CTRL_C, OnTerminal

STOPPED = "shadowgraph: recording stopped after 0.1 s (--for); the program runs on\n"
# It answers each line with itself and ends with what the last one says.
ANSWERING = "echo began; read line; echo $line; read line; exit $line"


def record(folder: Path, *words: str, time: str = "100ms") -> list[str]:
    """The words of a command that records the beginning of what follows."""
    return ["record", "--force", "-o", str(folder / "limited.sgt"), "--for", time, *words]


def errors_until(command: Popen[str], beginning: str) -> list[str]:
    """What a command says on stderr, up to a line that begins so."""
    assert command.stderr is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith(beginning):
        lines.append(command.stderr.readline())
        assert lines[-1], lines
    return lines


def manifest_in(folder: Path) -> Any:
    """The manifest of the trace, as it is now."""
    return json.loads((folder / "limited.sgt" / "manifest.json").read_text())


def answer(command: Popen[str], line: str) -> str:
    """Send the program a line; the one that comes back."""
    assert command.stdin is not None and command.stdout is not None
    command.stdin.write(line + "\n")
    command.stdin.flush()
    return command.stdout.readline()


def test_the_trace_is_there_at_once_and_the_programs_end_is_waited_for() -> None:
    folder = Path(scratch_folder())
    command = started(*record(folder, "sh", "-c", ANSWERING), typing=True)
    said = errors_until(command, "shadowgraph: trace in")
    assert STOPPED in said
    manifest = manifest_in(folder)
    assert (manifest["state"], manifest["end"]["reason"]) == ("complete", "stopped")
    assert command.stdout is not None and command.stdout.readline() == "began\n"
    assert answer(command, "still there") == "still there\n"
    assert command.communicate("7\n", timeout=120) == ("", "")
    assert command.returncode == 7


def test_a_signal_that_ends_the_program_afterwards_is_passed_on() -> None:
    command = started(*record(Path(scratch_folder()), "sh", "-c", "read line; kill -USR1 $$"), typing=True)
    assert STOPPED in errors_until(command, "shadowgraph: trace in")
    assert command.communicate("now\n", timeout=120) == ("", "")
    assert command.returncode == 128 + signal.SIGUSR1


def test_ctrl_c_is_the_programs_own_afterwards_however_often() -> None:
    command = shlex.join([*SHADOWGRAPH, *record(Path(scratch_folder()), *CATCHING)])
    with OnTerminal(["bash", "-c", f"trap : INT; {command}; echo status $?"]) as terminal:
        terminal.wait_for_all("began\r\n", "shadowgraph: trace in")
        for _ in range(3):
            terminal.press(CTRL_C)
            terminal.wait_for("caught")
        assert terminal.status() == 0
        assert "status 7" in terminal.shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_told_to_end_it_leaves_the_program_running(number: signal.Signals) -> None:
    script = "echo $$; read line; echo $line"
    command = started(*record(Path(scratch_folder()), "sh", "-c", script), typing=True)
    errors_until(command, "shadowgraph: trace in")
    assert command.stdout is not None
    program = int(command.stdout.readline())
    command.send_signal(number)
    assert command.wait(timeout=120) == 0
    assert Path(f"/proc/{program}/comm").read_text() == "sh\n"
    assert answer(command, "still there") == "still there\n"
    until(lambda: not Path(f"/proc/{program}").exists())
    command.communicate()


def test_a_program_that_is_faster_is_recorded_to_its_end() -> None:
    folder = Path(scratch_folder())
    command = started(*record(folder, "sh", "-c", "exit 3", time="600s"))
    _, errors = command.communicate(timeout=120)
    assert command.returncode == 3 and "--for" not in errors
    assert manifest_in(folder)["end"]["reason"] == "exited"


def test_of_what_the_program_has_started_and_left_behind_the_end_is_not_waited_for() -> None:
    script = "exec 3<&0; (read line <&3; echo $line) & exit 3"
    command = started(*record(Path(scratch_folder()), "sh", "-c", script, time="3s"), typing=True)
    said = errors_until(command, "shadowgraph: trace in")
    assert "shadowgraph: recording stopped after 3 s (--for); what the program has started runs on\n" in said
    assert command.wait(timeout=120) == 3
    assert answer(command, "still there") == "still there\n"
    command.communicate()


def test_a_program_that_is_about_to_execute_others_all_the_time_goes_on() -> None:
    """Its children (vfork) ask to be followed, and it waits for them where it cannot be stopped."""
    script = "trap 'stop=1' TERM; while [ -z $stop ]; do /bin/true; done; exit 11"
    folder = Path(scratch_folder())
    command = started(*record(folder, "sh", "-c", script, time="700ms"))
    said = errors_until(command, "shadowgraph: trace in")
    assert "keeps its hooks" not in said
    program = manifest_in(folder)
    pid = int(sg.open(folder / "limited.sgt").processes["pid"][0].as_py())
    assert program["end"]["reason"] != "exited"
    before = Path(f"/proc/{pid}/stat").read_text().split()[10]  # page faults of its children: it starts more of them
    until(lambda: Path(f"/proc/{pid}/stat").read_text().split()[10] != before)
    os.kill(pid, signal.SIGTERM)
    assert command.wait(timeout=120) == 11
    command.communicate()
