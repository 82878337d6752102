"""Why a process cannot be traced, or a program not be started, is said in one sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shadowgraph.errors import EXIT_CANNOT_START, StartError
from shadowgraph.target import ptrace
from shadowgraph.target.launch import EndedBeforeEntry, find_program, launch, run_to_entry
from shadowgraph.target.vet import vet_program
from tests.support.manners import program

SOURCE = Path(__file__).resolve().parents[2] / "src"


@contextmanager
def sleeper() -> Iterator[int]:
    """A process that waits for its stdin to be closed."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        yield process.pid
    finally:
        process.communicate()


@contextmanager
def traced_by(command: list[str]) -> Iterator[None]:
    """A tracer that says so in one line, and ends when its stdin is closed."""
    tracer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert tracer.stdout is not None
        while "attached" not in (line := tracer.stdout.readline()):
            assert line, "the tracer has ended"
        yield
    finally:
        tracer.communicate()


SEIZE = """
import sys
from shadowgraph.target import ptrace
ptrace.seize(int(sys.argv[1]))
print("attached", flush=True)
sys.stdin.read()
"""


def why_not(pid: int) -> str:
    """What is said of a process that cannot be traced."""
    with pytest.raises(StartError) as refused:
        ptrace.seize(pid)
    return str(refused.value)


def test_a_process_that_is_traced_already_names_its_tracer() -> None:
    with sleeper() as pid, traced_by(["env", f"PYTHONPATH={SOURCE}", sys.executable, "-c", SEIZE, str(pid)]):
        said = why_not(pid)
    assert re.fullmatch(rf"process {pid} is traced by process \d+ \(.+\) already; end that first", said)


@pytest.mark.skipif(not shutil.which("gdb"), reason="gdb is not installed")
def test_gdb_is_named_as_the_tracer() -> None:
    gdb = ["gdb", "-nx", "-q", "-batch", "-p"]
    with sleeper() as pid, traced_by([*gdb, str(pid), "-ex", "echo attached\\n", "-ex", "shell cat >/dev/null"]):
        said = why_not(pid)
    assert re.match(rf"process {pid} is traced by process \d+ \(gdb\) already", said)


def test_a_zombie_is_called_one() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(StartError, match=rf"^process {pid} has ended already \(it is a zombie"):
        ptrace.seize(pid)
    os.waitpid(pid, 0)


def test_a_process_that_does_not_exist_is_said_not_to() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    with pytest.raises(StartError, match=f"^there is no process {pid}$"):
        ptrace.seize(pid)


def test_a_process_that_may_not_be_traced_is_said_so_with_a_remedy() -> None:
    remedy = "run shadowgraph as root" if os.geteuid() else "a sandbox may forbid it even to root"
    with pytest.raises(StartError, match=rf"^process {os.getpid()} may not be traced by this user: .*; {remedy}"):
        ptrace.seize(os.getpid())  # nobody may trace himself


def test_all_these_end_with_the_exit_code_for_programs_that_cannot_be_started() -> None:
    assert StartError("").exit_code == EXIT_CANNOT_START == 125


# --- programs ---


def executable(path: Path, content: bytes, mode: int = 0o755) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_a_program_is_looked_up_like_execvp_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, mode in (("first", 0o644), ("second", 0o755), ("third", 0o755)):
        (tmp_path / name).mkdir()
        executable(tmp_path / name / "tool", b"\x7fELF", mode)
    (tmp_path / "zeroth" / "tool").mkdir(parents=True)
    monkeypatch.setenv(
        "PATH", ":".join(str(tmp_path / name) for name in ("none", "zeroth", "first", "second", "third"))
    )
    assert find_program("tool") == str(tmp_path / "second" / "tool")
    monkeypatch.chdir(tmp_path / "third")
    assert find_program("./tool") == "./tool"
    monkeypatch.setenv("PATH", "")  # an empty entry is the current folder
    assert find_program("tool") == "./tool"
    with pytest.raises(StartError, match=r"^first: no such program in PATH; give a path"):
        find_program("first")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("./missing", r"^\./missing: no such program$"),
        (".", "^.: no such program in PATH"),
        ("./", r"^\./: is a folder, not a program$"),
        ("./plain", r"^\./plain: is not executable \(chmod \+x it"),
        ("./pipe", r"^\./pipe: is not a regular file, so it cannot be run$"),
        ("./dangling", r"^\./dangling: no such program$"),
        ("", "^'': no such program in PATH"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(
    name: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    executable(tmp_path / "plain", b"", 0o644)
    os.mkfifo(tmp_path / "pipe", 0o755)
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(StartError, match=sentence):
        find_program(name)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty|not an ELF|neither"),
        (b"just text\n", "not an ELF|neither"),
        (b"#!\n", "names no interpreter|neither|not an ELF"),
        (
            b"#!/no/such/interpreter\n",
            "file is a script for /no/such/interpreter, which cannot be run: .*no such program",
        ),
        (b"\x7fELF", "cut|short|damaged|not an ELF"),
    ],
)
def test_files_that_are_no_programs_are_refused_before_anything_is_started(
    content: bytes, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(StartError, match=sentence):
        vet_program(str(executable(tmp_path / "file", content)))


def test_scripts_that_lead_to_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "circle"
    with pytest.raises(StartError, match="circle"):
        vet_program(str(executable(path, f"#!{path}\n".encode())))


def test_a_program_that_ends_before_its_entry_point_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "needy"
    shutil.copy(program("manners_state"), path)
    broken = path.read_bytes().replace(b"libc.so.6\0", b"libx.so.6\0")
    path.write_bytes(broken)
    pid = launch(str(path), [str(path)])
    with pytest.raises(EndedBeforeEntry) as ended:
        run_to_entry(pid)
    assert os.waitstatus_to_exitcode(ended.value.status) == 127


def test_what_execve_itself_refuses_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="is neither an ELF program nor a script"):
        launch(str(executable(tmp_path / "text", b"text")), ["text"])
    with pytest.raises(StartError, match=r"its interpreter .* does not exist"):
        launch(str(executable(tmp_path / "script", b"#!/no/such\n")), ["script"])
    with pytest.raises(StartError, match="cannot be started: argument list too long"):
        launch(program("manners_state"), ["x" * (1 << 18)])
