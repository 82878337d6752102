"""`record` in front of a command changes nothing that the command's user can see: streams, status, signals, terminal.

What a program itself can see of its state is in tests/target/test_launch_state.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import shadowgraph
from shadowgraph.view.names import Names
from tests.support.manners import prepared, program, recorder, run, usual_environment
from tests.support.terminal import CTRL_C, OnTerminal

CTRL_Z = b"\x1a"
SIGRTMIN_AND_3 = 37


@pytest.mark.parametrize("status", [0, 1, 2, 42, 125, 255])
def test_the_exit_status_is_the_programs(status: int) -> None:
    ended = run([*recorder(), "sh", "-c", f"exit {status}"])
    assert (ended.status, ended.output, ended.errors) == (status, "", "")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, SIGRTMIN_AND_3])
def test_the_end_by_a_signal_is_128_and_its_number_and_is_said(number: int, tmp_path: Path) -> None:
    command = [argument for argument in recorder(trace=tmp_path / "t.sgt") if argument != "-q"]
    ended = run([*command, "sh", "-c", f"kill -{int(number)} $$"])
    name = number.name if isinstance(number, signal.Signals) else f"signal {number}"
    assert ended.status == 128 + number
    assert f"shadowgraph: the program was ended by {name}\n" in ended.errors
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        assert trace.metadata["end"] == {"reason": "exited", "status": -number}


def test_streams_carry_every_byte(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4000
    command = [*recorder(), "sh", "-c", "cat; printf 'to stderr\\377' >&2"]
    done = subprocess.run(command, input=data, capture_output=True, env=usual_environment(), cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == (data, b"to stderr\xff", 0)


def test_a_reader_that_leaves_ends_the_program_as_ever() -> None:
    for setup in ("", "trap '' PIPE"):
        pipe = 'set -o pipefail 2>/dev/null; "$@" | head -1'
        plain = run(prepared(setup, ["bash", "-c", pipe, "bash", "seq", "1000000"]))
        traced = run(prepared(setup, ["bash", "-c", pipe, "bash", *recorder(), "seq", "1000000"]))
        assert (traced.output, traced.status) == (plain.output, plain.status)
        assert traced.errors == plain.errors


@pytest.mark.parametrize("line", ["#!/bin/sh", "#!/bin/sh -e", "#!/usr/bin/env sh", "#! /usr/bin/env -S sh -e"])
def test_scripts_run_and_their_interpreter_is_recorded(line: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f'{line}\necho "$0" "$#" "$1"\nexit 7\n')
    script.chmod(0o755)
    plain = run([str(script), "two words", ""])
    ended = run([*recorder(trace=tmp_path / "t.sgt"), str(script), "two words", ""])
    assert (ended.output, ended.status, ended.errors) == (plain.output, 7, "")
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        assert len(trace.calls) > 100
        names, own = Names(trace), os.path.basename(os.path.realpath("/bin/sh"))
        shown = {names.module(number): names.label(number) for number in names.ids}
    assert not shown[own].endswith("]") and shown["libc.so.6"].endswith(" [libc.so.6]")


def test_nohup_keeps_the_hangup_from_both(tmp_path: Path) -> None:
    script = "kill -HUP $PPID; kill -HUP $$; sleep 0.2; echo alive; exit 3"
    ended = run(["nohup", *recorder(trace=tmp_path / "t.sgt"), "sh", "-c", script])
    assert (ended.lines[-1], ended.status) == ("alive", 3)
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        assert trace.metadata["end"] == {"reason": "exited", "status": 3}


# --- at a terminal ---


def at_terminal(tmp_path: Path, script: str) -> OnTerminal:
    return OnTerminal([*recorder(trace=tmp_path / "t.sgt"), "sh", "-c", script], tmp_path)


def reason(tmp_path: Path) -> dict[str, object]:
    with shadowgraph.open(tmp_path / "t.sgt") as trace:
        assert len(trace.calls) > 0 and trace.metadata["state"] == "complete"
        end: dict[str, object] = trace.metadata["end"]
        return end


def test_ctrl_c_ends_the_program_and_keeps_the_trace(tmp_path: Path) -> None:
    with at_terminal(tmp_path, "echo ready; exec cat") as terminal:
        terminal.wait_for("ready")
        terminal.press(CTRL_C)
        assert terminal.status() == 128 + signal.SIGINT
    assert reason(tmp_path) == {"reason": "exited", "status": -signal.SIGINT}
    assert "Traceback" not in terminal.shown


def test_a_program_that_goes_on_after_ctrl_c_is_recorded_to_its_end(tmp_path: Path) -> None:
    with at_terminal(
        tmp_path, "trap 'echo caught' INT; echo ready; until read line; do :; done; echo got-$line; exit 5"
    ) as terminal:
        terminal.wait_for("ready")
        terminal.press(CTRL_C)
        terminal.wait_for("caught")
        terminal.press(b"hello\n")
        assert terminal.status() == 5
        assert "got-hello" in terminal.shown
    assert reason(tmp_path) == {"reason": "exited", "status": 5}


def test_a_second_ctrl_c_ends_the_recording_alone(tmp_path: Path) -> None:
    script = "trap 'echo caught' INT; echo ready; while :; do sleep 0.01; done"
    with at_terminal(tmp_path, script) as terminal:
        terminal.wait_for("ready")
        terminal.press(CTRL_C)
        terminal.wait_for("caught")
        # Two that come before the recorder has run at all are one for it: pressed until it works, as a user would.
        presses = 1
        while os.waitid(os.P_PID, terminal.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            terminal.press(CTRL_C)
            presses += 1
            assert presses < 100
            time.sleep(0.3)
    assert reason(tmp_path) == {"reason": "stopped"}


def test_ctrl_z_stops_the_job_and_fg_goes_on_with_it(tmp_path: Path) -> None:
    """The shell of a user sees one job, stopped and continued as a whole, and the recording loses nothing."""
    trace = tmp_path / "t.sgt"
    job = " ".join([*recorder(trace=trace), "sh", "-c", "'echo ready; read line; echo got-$line; exit 6'"])
    with OnTerminal(["bash", "--norc", "--noprofile", "-i"], tmp_path) as terminal:
        terminal.press(b"PS1='@@ '\n")
        terminal.wait_for("@@ ")
        terminal.press(job.encode() + b"\n")
        terminal.wait_for("\nready")
        terminal.press(CTRL_Z)
        terminal.wait_for("exit 6'\r\n@@ ")  # what is typed while the shell takes its terminal back may be lost
        assert "Stopped" in terminal.shown
        terminal.press(b"jobs -l; fg\n")
        terminal.wait_for("Stopped")
        terminal.press(b"hello\n")
        terminal.wait_for("got-hello")
        terminal.press(b"echo status-$?\n")
        terminal.wait_for("status-6")
        terminal.press(b"exit\n")
        terminal.status()
    assert reason(tmp_path) == {"reason": "exited", "status": 6}


def test_the_progress_of_writing_is_for_terminals(tmp_path: Path) -> None:
    ended = run([*recorder(trace=tmp_path / "t.sgt"), program("manners_counted", "o1", "-pthread"), "15000", "2"])
    assert ended.errors == ""
    command = [*recorder(trace=tmp_path / "u.sgt"), program("manners_counted", "o1", "-pthread"), "15000", "2"]
    with OnTerminal(command, tmp_path) as terminal:
        assert terminal.status() == 0
        assert "shadowgraph: writing the trace … " in terminal.shown
        assert terminal.shown.rstrip("\n").endswith("\033[K")  # and it is wiped away
