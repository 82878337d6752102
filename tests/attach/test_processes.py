"""Forks, execs and signals while a process is attached to, and when it is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shadowgraph.agent.inject import AGENT_PATH
from tests.attach.conftest import built
from tests.attach.test_recording import SHADOWGRAPH, recorder, report, wait_until_recorded
from tests.support.attached import Running, Seen, attached, recorded_calls
from tests.support.build import scratch_folder
from tests.support.manners import usual_environment


def test_forked_children_are_recorded_and_left_without_hooks_too() -> None:
    path, folder = built("attach_processes"), scratch_folder() / "forked.sgt"
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        recording = recorder(running.pid, folder)
        wait_until_attached(running.pid, path, before, recording)
        child = int(running.say("fork").split()[1])
        wait_until_recorded(folder, recording)
        assert Seen.of(child, path).code != before.code
        recording.terminate()
        _, errors = recording.communicate(timeout=120)
        assert recording.returncode == 0, errors
        for pid in (running.pid, child):
            seen = Seen.of(pid, path)
            assert (seen.code, seen.tracer) == (before.code, "0")
        assert running.say("join") == "child 7"
        assert running.end() == ["wrong 0 ticked 0"]
    assert report(folder)["middle"]["calls"] > 100
    processes = subprocess.run(
        [*SHADOWGRAPH, "report", "--by", "process", "--json", str(folder)],
        env=usual_environment(), capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert str(child) in processes.stdout


def test_a_program_that_a_child_executes_is_followed() -> None:
    path, folder = built("attach_processes"), scratch_folder() / "executed.sgt"
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        recording = recorder(running.pid, folder)
        wait_until_attached(running.pid, path, before, recording)
        assert running.say("exec") == "executed 9"
        recording.terminate()
        _, errors = recording.communicate(timeout=120)
        assert recording.returncode == 0, errors
        assert running.end() == ["wrong 0 ticked 0"]
    functions = report(folder)
    assert functions["works"]["calls"] == 1
    assert functions["middle"]["calls"] == 1000


def test_handlers_that_call_functions_run_through_many_rounds() -> None:
    path = built("attach_processes")
    with Running([path]) as running:
        before = Seen.of(running.pid, path)
        assert running.say("signals") == "ticking"
        for _ in range(30):
            with attached(running.pid) as process:
                while not recorded_calls(process):
                    pass
            assert Seen.of(running.pid, path).code == before.code
        assert running.end() == ["wrong 0 ticked 1"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to make a namespace")
def test_a_process_with_another_file_system_is_lent_the_agent() -> None:
    path = built("attach_busy")
    script = 'mount -t tmpfs none /opt && mount --bind /opt "$(dirname "$1")" && exec "$0" 2'
    command = ["unshare", "--mount", "sh", "-c", script, path, str(AGENT_PATH)]
    probe = subprocess.run([*command[:2], "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("namespaces cannot be made here")
    with Running(command) as running:
        assert not os.path.exists(f"/proc/{running.pid}/root{AGENT_PATH}")
        for _ in range(3):
            with attached(running.pid) as process:
                while not recorded_calls(process):
                    pass
        assert Path(f"/proc/{running.pid}/maps").read_text().count("/memfd:shadowgraph-agent.so") > 0
        assert running.end() == ["wrong 0 worked 1"]


def wait_until_attached(pid: int, path: str, before: Seen, recording: subprocess.Popen[str]) -> None:
    """Until the process has hooks."""
    while Seen.of(pid, path).code == before.code:
        assert recording.poll() is None, recording.communicate()[1]
