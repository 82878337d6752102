"""What cannot be attached to is refused in one sentence, before anything is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shadowgraph.agent import layout
from shadowgraph.agent.inject import Settings
from shadowgraph.errors import StartError
from shadowgraph.ops import processes
from shadowgraph.ops.processes import alone_with
from shadowgraph.ops.recorder_slot import claim_place, give_back_recorder_slot
from shadowgraph.target import ptrace
from tests.attach.conftest import built
from tests.support.attached import Running, attached
from tests.support.build import PROGRAMS, BuildError, compile_files, scratch_folder
from tests.support.manners import Ended, run, usual_environment

THREAD_OF_KERNEL = 2  # kthreadd


def attach_to(pid: int, *options: str) -> Ended:
    """`record --pid`, for a process that it will refuse."""
    folder = scratch_folder() / "refused.sgt"
    command = [sys.executable, "-m", "shadowgraph.cli.main", "record", "-q", "-o", str(folder), "--pid", str(pid)]
    ended = run([*command, *options])
    assert not folder.exists()
    return ended


def test_a_process_that_does_not_exist() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    ended = attach_to(child.pid)
    assert (ended.sentence, ended.status) == (f"there is no process {child.pid}", 125)


def test_a_thread_that_is_not_a_process() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        tid = next(int(name) for name in os.listdir(f"/proc/{running.pid}/task") if int(name) != running.pid)
        ended = attach_to(tid)
        assert ended.sentence == f"{tid} is a thread of process {running.pid}; attach to that (--pid {running.pid})"
        assert ended.status == 125
        assert running.end() == ["wrong 0 worked 1"]


def test_a_process_whose_hooks_another_controller_is_changing_is_waited_for() -> None:
    with Running([built("attach_busy"), "1"]) as running:
        folder = scratch_folder() / "waited.sgt"
        command = [sys.executable, "-m", "shadowgraph.cli.main", "record", "-q", "--force", "--for", "100ms"]
        with alone_with(running.pid):
            recorder = subprocess.Popen([*command, "-o", str(folder), "--pid", str(running.pid)])
            with pytest.raises(subprocess.TimeoutExpired):
                recorder.wait(timeout=2)
        assert recorder.wait(timeout=120) == 0
        assert running.end() == ["wrong 0 worked 1"]


def test_a_controller_that_never_gets_done_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_LOCK_SECONDS", 0.1)
    with Running([built("attach_busy"), "1"]) as running:
        sentence = "another controller has been changing its hooks"
        with alone_with(running.pid), pytest.raises(StartError, match=sentence), alone_with(running.pid):
            raise AssertionError
        assert running.end() == ["wrong 0 worked 1"]


def test_of_several_recorders_at_once_one_attaches_and_the_process_runs_on() -> None:
    with Running([built("attach_busy"), "2"]) as running:
        folders = [scratch_folder() / f"at_once_{number}.sgt" for number in range(3)]
        command = [sys.executable, "-m", "shadowgraph.cli.main", "record", "-q", "--force", "--for", "1s"]
        recorders = [
            subprocess.Popen([*command, "-o", str(folder), "--pid", str(running.pid)], stderr=subprocess.DEVNULL)
            for folder in folders
        ]
        assert sorted(recorder.wait(timeout=120) for recorder in recorders)[0] == 0
        assert {recorder.returncode for recorder in recorders} <= {0, 125}
        assert running.end() == ["wrong 0 worked 1"]


def test_a_zombie() -> None:
    child = subprocess.Popen(["true"])
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2][0] != "Z":
        time.sleep(0.001)
    ended = attach_to(child.pid)
    child.wait()
    assert ended.sentence == f"process {child.pid} has ended already (it is a zombie waiting for its parent)"
    assert ended.status == 125


@pytest.mark.skipif(not os.path.exists(f"/proc/{THREAD_OF_KERNEL}"), reason="the kernel's threads are not shown here")
def test_a_thread_of_the_kernel() -> None:
    ended = attach_to(THREAD_OF_KERNEL)
    assert "is a thread of the kernel, not a program" in ended.sentence
    assert ended.status == 125


def test_a_process_that_is_traced_already_names_the_tracer() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        ptrace.seize(running.pid)
        ended = attach_to(running.pid)
        assert f"process {running.pid} is traced by process {os.getpid()}" in ended.sentence
        assert ended.sentence.endswith("already; end that first")
        assert ended.status == 125
        ptrace.interrupt(running.pid)
        ptrace.wait_stop(running.pid)
        ptrace.detach(running.pid)
        assert running.end() == ["wrong 0 worked 1"]


def test_a_process_that_has_as_many_recorders_as_there_can_be() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running, attached(running.pid) as process:
        places = [claim_place(process.agent, Settings(segments=4)) for _ in range(layout.RECORDERS - 1)]
        ended = attach_to(running.pid)
        assert ended.sentence == (
            f"{layout.RECORDERS} recorders are in this process, and no more can be; end one of them first"
        )
        assert ended.status == 125
        for place in places:
            give_back_recorder_slot(place.agent, place.slot)


def test_a_static_program() -> None:
    path = scratch_folder() / "static_busy"
    try:
        compile_files("gcc", [PROGRAMS / "attach_busy.c"], path, ("-static", "-pthread"))
    except BuildError:
        pytest.skip("the C library cannot be linked statically here")
    with Running([str(path), "1", "nap"]) as running:
        ended = attach_to(running.pid)
        assert "is statically linked; only dynamically linked programs can be traced so far" in ended.sentence
        assert ended.status == 125


def test_a_program_of_32_bits() -> None:
    path = scratch_folder() / "small_busy"
    try:
        compile_files("gcc", [PROGRAMS / "attach_busy.c"], path, ("-m32", "-pthread"))
    except BuildError:
        pytest.skip("programs of 32 bits cannot be built here")
    with Running([str(path), "1", "nap"]) as running:
        ended = attach_to(running.pid)
        assert "32-bit" in ended.sentence
        assert ended.status == 125


def test_the_recorder_itself() -> None:
    source = (
        "import os, sys; sys.argv = ['shadowgraph', 'record', '-q', '--pid', str(os.getpid())];"
        "from shadowgraph.cli.main import main; main()"
    )
    ended = run([sys.executable, "-c", source])
    assert "is this very one; in Python, attach_self() traces the process that calls it" in ended.sentence
    assert ended.status == 125


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root to become somebody else")
def test_a_process_of_another_user() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]
        command = [sys.executable, "-m", "shadowgraph.cli.main", "record", "-q", "-o", "/tmp/refused.sgt"]
        readable = subprocess.run([*other, *command[:3], "--version"], env=usual_environment(), capture_output=True)
        if readable.returncode:
            pytest.skip("the recorder cannot be run by another user here")
        ended = run([*other, *command, "--pid", str(running.pid)])
        assert f"process {running.pid}" in ended.sentence
        assert ended.status == 125
        assert running.end() == ["wrong 0 worked 1"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--pid", "1", "--", "true"], "no program can be named with it"),
        ([], "name a program to record, or a process with --pid"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], sentence: str) -> None:
    ended = run([sys.executable, "-m", "shadowgraph.cli.main", "record", *arguments])
    assert sentence in ended.sentence
    assert ended.status == 2


def test_functions_that_do_not_exist_leave_the_process_untouched() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        ended = attach_to(running.pid, "-f", "no_such_function")
        assert "no function matches no_such_function" in ended.sentence
        assert "agent" not in Path(f"/proc/{running.pid}/maps").read_text()
        assert running.end() == ["wrong 0 worked 1"]


@pytest.mark.parametrize("more", [[], ["thread"]])
def test_a_thread_that_stays_in_the_loader_keeps_the_agent_out_for_a_bounded_time(more: list[str]) -> None:
    with Running([built("attach_loader"), *more]) as running:
        ended = attach_to(running.pid)
        assert "has been in its loader (dl_iterate_phdr) for 10 seconds" in ended.sentence
        assert ended.sentence.endswith("nothing was changed")
        assert ended.status == 125
        assert "agent" not in Path(f"/proc/{running.pid}/maps").read_text()
        assert running.end() == ["saw objects 1"]
