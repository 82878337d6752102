"""`record --pid` from start to end: what is in the trace, and what becomes of the process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import shadowgraph
from tests.attach.conftest import built
from tests.support.attached import Running, Seen, attached, recorded_calls
from tests.support.build import scratch_folder
from tests.support.manners import usual_environment

SHADOWGRAPH = [sys.executable, "-m", "shadowgraph.cli.main"]


def recorder(pid: int, folder: Path, *options: str) -> subprocess.Popen[str]:
    """`record --pid`, started."""
    command = [*SHADOWGRAPH, "record", "--force", "-o", str(folder), "--pid", str(pid), *options]
    return subprocess.Popen(command, env=usual_environment(), stderr=subprocess.PIPE, text=True)


def report(folder: Path) -> dict[str, dict[str, int]]:
    """`report --json`, by function."""
    command = [*SHADOWGRAPH, "report", "--json", str(folder)]
    done = subprocess.run(command, env=usual_environment(), capture_output=True, check=True)
    content = json.loads(done.stdout)
    return {row["function"]: row for row in content["functions"]}


def wait_until_recorded(folder: Path, recording: subprocess.Popen[str]) -> None:
    """Until the recording has written something."""
    spool = folder / "calls.spool"
    deadline = time.monotonic() + 60
    while not spool.exists() or spool.stat().st_size < 1 << 17:
        assert recording.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def test_a_recording_ends_with_its_time_and_the_process_runs_on_as_it_was() -> None:
    path, folder = built("attach_busy"), scratch_folder() / "timed.sgt"
    with Running([path, "2"]) as running:
        before = Seen.of(running.pid, path)
        recording = recorder(running.pid, folder, "--for", "300ms", "--libcalls", "none")
        _, errors = recording.communicate(timeout=120)
        assert recording.returncode == 0, errors
        after = Seen.of(running.pid, path)
        assert (after.code, after.files, after.tracer) == (before.code, before.files, "0")
        assert running.end() == ["wrong 0 worked 1"]
    assert "the process stood still for" in errors
    assert "the program runs on" in errors
    functions = report(folder)
    middle, leaf, tail = functions["middle"], functions["leaf"], functions["tail"]
    assert middle["calls"] > 100
    # A round calls middle, tail and begins_with_call, and each of them leaf; the first and the last ones are not whole.
    assert abs(middle["calls"] - tail["calls"]) <= 4
    assert abs(3 * middle["calls"] - leaf["calls"]) <= 12
    assert sum(row["open"] for row in functions.values()) <= 2 * 12


def test_an_interrupt_ends_the_recording_and_keeps_the_trace() -> None:
    path, folder = built("attach_busy"), scratch_folder() / "interrupted.sgt"
    with Running([path, "2"]) as running:
        recording = recorder(running.pid, folder)
        wait_until_recorded(folder, recording)
        recording.send_signal(signal.SIGINT)
        _, errors = recording.communicate(timeout=120)
        assert recording.returncode == 0, errors
        assert running.end() == ["wrong 0 worked 1"]
    assert report(folder)["middle"]["calls"] > 100


def test_a_recording_ends_with_the_process() -> None:
    path, folder = built("attach_busy"), scratch_folder() / "ended.sgt"
    with Running([path, "2"]) as running:
        recording = recorder(running.pid, folder)
        wait_until_recorded(folder, recording)
        assert running.end() == ["wrong 0 worked 1"]
        _, errors = recording.communicate(timeout=120)
        assert recording.returncode == 0, errors
    assert report(folder)["middle"]["calls"] > 100
    assert "the program has ended" in errors and "runs on" not in errors


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_that_a_signal_has_ended_the_process_is_said(number: signal.Signals) -> None:
    path, folder = built("attach_busy"), scratch_folder() / "signalled.sgt"
    with Running([path, "2"]) as running:
        recording = recorder(running.pid, folder)
        wait_until_recorded(folder, recording)
        running.process.send_signal(number)
        _, errors = recording.communicate(timeout=120)
    assert recording.returncode == 0, errors  # the recording has gone well
    assert f"shadowgraph: the program was ended by {number.name}\n" in errors
    with shadowgraph.open(folder) as trace:
        assert trace.metadata["end"] == {"reason": "exited", "status": -number}
        assert trace.processes["exit_status"].to_pylist() == [-number]


def test_what_a_killed_recorder_leaves_is_cleared_away_by_the_next() -> None:
    path, folder = built("attach_busy"), scratch_folder() / "killed.sgt"
    with Running([path, "2"]) as running:
        before = Seen.of(running.pid, path)
        recording = recorder(running.pid, folder)
        wait_until_recorded(folder, recording)
        recording.kill()
        recording.wait()
        assert recording.stderr is not None
        recording.stderr.close()
        assert Seen.of(running.pid, path).code != before.code
        with attached(running.pid) as process:
            while not recorded_calls(process):
                pass
        assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 worked 1"]


def test_a_launched_program_runs_on_without_hooks_when_its_recording_is_stopped() -> None:
    path, folder = built("attach_busy"), scratch_folder() / "launched.sgt"
    command = [*SHADOWGRAPH, "record", "--force", "-o", str(folder), "--", path, "2"]
    recording = subprocess.Popen(
        command,
        env=usual_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert recording.stdin is not None and recording.stdout is not None
    assert recording.stdout.readline() == "ready\n"
    wait_until_recorded(folder, recording)
    pid = int(Path(f"/proc/{recording.pid}/task/{recording.pid}/children").read_text().split()[-1])
    assert os.readlink(f"/proc/{pid}/exe") == path
    hooked = Seen.of(pid, path).code
    recording.terminate()
    assert recording.wait(timeout=120) == 0
    plain = Seen.of(pid, path).code
    assert plain != hooked
    with Running([path, "1", "nap"]) as other:
        others = Seen.of(other.pid, path).code
        ours = [code for (name, _), code in sorted(plain.items()) if name == path]
        assert ours == [code for (name, _), code in sorted(others.items()) if name == path]
        other.end()
    recording.stdin.write("end\n")
    recording.stdin.close()
    assert recording.stdout.read() == "wrong 0 worked 1\n"
    recording.stdout.close()
    assert recording.stderr is not None
    recording.stderr.close()


def test_exceptions_pass_through_calls_in_flight_while_hooks_come_and_go() -> None:
    path = built("attach_throwing")
    with Running([path]) as running:
        for _ in range(25):
            with attached(running.pid) as process:
                while not recorded_calls(process):
                    pass
        assert running.end() == ["wrong 0 worked 1"]
