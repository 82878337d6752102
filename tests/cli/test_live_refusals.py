"""What the commands on running programs refuse, each in one sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from shadowgraph.target import ptrace
from tests.attach.conftest import built
from tests.support.attached import Running
from tests.support.build import PROGRAMS, BuildError, compile_files, scratch_folder
from tests.support.live import SHADOWGRAPH, until
from tests.support.manners import Ended, run, usual_environment

ATTACHING = [["count", "-f", "leaf"], ["hist", "-f", "leaf"], ["top"]]
ALL = [*ATTACHING, ["users"], ["detach"]]
_NAMES = [words[0] for words in ALL]


def refused(*words: object) -> Ended:
    """A command that ends with one sentence."""
    return run([*SHADOWGRAPH, *map(str, words)])


@pytest.mark.parametrize("words", ALL, ids=_NAMES)
def test_a_process_that_does_not_exist(words: list[str]) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    ended = refused(*words, child.pid)
    assert (ended.sentence, ended.status) == (f"there is no process {child.pid}", 125)


@pytest.mark.parametrize("words", ALL, ids=_NAMES)
def test_a_zombie(words: list[str]) -> None:
    child = subprocess.Popen(["true"])
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(") ")[2][0] != "Z":
        time.sleep(0.001)
    ended = refused(*words, child.pid)
    child.wait()
    assert ended.sentence == f"process {child.pid} has ended already (it is a zombie waiting for its parent)"
    assert ended.status == 125


@pytest.mark.parametrize("words", ALL, ids=_NAMES)
def test_a_process_whose_first_thread_has_ended_is_no_zombie(words: list[str]) -> None:
    code = "import ctypes, threading; threading.Thread(target=input).start(); print('ready', flush=True)"
    with Running([sys.executable, "-c", f"{code}; ctypes.CDLL(None).pthread_exit(0)"]) as running:
        until(lambda: Path(f"/proc/{running.pid}/stat").read_text().rpartition(") ")[2][0] == "Z")
        ended = refused(*words, running.pid)
        said = f"the first thread of process {running.pid} has ended before the others: nothing can be attached then"
        assert (ended.sentence, ended.status) == (said, 125)


@pytest.mark.parametrize("words", ATTACHING, ids=_NAMES[:3])
@pytest.mark.skipif(not os.path.exists("/proc/2"), reason="the kernel's threads are not shown here")
def test_a_thread_of_the_kernel(words: list[str]) -> None:
    ended = refused(*words, 2)
    assert "is a thread of the kernel, not a program" in ended.sentence
    assert ended.status == 125


@pytest.mark.parametrize("words", ATTACHING, ids=_NAMES[:3])
def test_a_process_that_is_traced_already_names_the_tracer(words: list[str]) -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        ptrace.seize(running.pid)
        ended = refused(*words, running.pid)
        assert f"process {running.pid} is traced by process {os.getpid()}" in ended.sentence
        assert ended.status == 125
        assert refused("users", running.pid).output == f"nobody uses process {running.pid}\n"
        ptrace.interrupt(running.pid)
        ptrace.wait_stop(running.pid)
        ptrace.detach(running.pid)
        assert running.end() == ["wrong 0 worked 1"]


@pytest.mark.parametrize("words", ALL, ids=_NAMES)
def test_a_thread_that_is_not_a_process(words: list[str]) -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        tid = next(int(name) for name in os.listdir(f"/proc/{running.pid}/task") if int(name) != running.pid)
        ended = refused(*words, tid)
        assert ended.sentence.startswith(f"{tid} is a thread of process {running.pid}; ")
        assert ended.status == 125


@pytest.mark.parametrize("flags", ["-static", "-m32"])
def test_a_program_that_cannot_be_traced_running_or_not(flags: str) -> None:
    path = scratch_folder() / f"busy{flags}"
    try:
        compile_files("gcc", [PROGRAMS / "attach_busy.c"], path, (flags, "-pthread"))
    except BuildError:
        pytest.skip(f"programs cannot be built with {flags} here")
    what = {"-static": "is statically linked", "-m32": "32-bit"}[flags]
    with Running([str(path), "1", "nap"]) as running:
        for words in (["count", "-f", "leaf", running.pid], ["count", "-f", "leaf", "--", path, "1"]):
            ended = refused(*words)
            assert what in ended.sentence
            assert ended.status == 125


@pytest.mark.parametrize("words", ALL, ids=_NAMES)
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root to become somebody else")
def test_a_process_of_another_user(words: list[str]) -> None:
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]
    readable = subprocess.run([*other, *SHADOWGRAPH, "--version"], env=usual_environment(), capture_output=True)
    if readable.returncode:
        pytest.skip("we cannot be run by another user here")
    with Running([built("attach_busy"), "1", "nap"]) as running:
        ended = run([*other, *SHADOWGRAPH, *words, str(running.pid)])
        assert f"process {running.pid}" in ended.sentence
        assert ended.status == 125
        assert running.end() == ["wrong 0 worked 1"]


BY_PID = [
    *ALL,
    ["record", "--pid"],
    ["probe", "-f", "leaf", "--code", "int on_entry(struct sg_call *call) { return 0; }"],
]


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root to become somebody else")
def test_another_users_process_is_refused_alike_by_all_commands_and_says_why() -> None:
    somebody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *SHADOWGRAPH]
    with subprocess.Popen([*somebody, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        other.stdin.write(b"ready\n")
        other.stdin.flush()
        assert other.stdout.readline() == b"ready\n"  # it is cat now
        refusals = {run([*powerless, *words, str(other.pid)]).sentence for words in BY_PID}
        other.stdin.close()
    assert len(refusals) == 1
    sentence = refusals.pop()
    assert sentence.startswith(f"process {other.pid} may not be traced by this user: it belongs to ")
    assert "(uid 65534), and we are root (uid 0) without CAP_SYS_PTRACE" in sentence


@pytest.mark.parametrize("words", BY_PID, ids=lambda words: words[0])
def test_a_name_is_no_process_but_those_that_have_it_are_told(words: list[str]) -> None:
    path = shutil.copy(built("attach_busy"), scratch_folder() / "named_so")
    with Running([path, "1", "nap"]) as running:
        ended = refused(*words, "named_so")
        assert f"processes of this name: {running.pid}" in ended.sentence
        assert ended.status == 2
        assert running.end() == ["wrong 0 worked 1"]


def test_a_program_in_place_of_a_pid_is_to_be_started_first() -> None:
    path = shutil.copy(built("attach_busy"), scratch_folder() / "nobody_runs_it")
    for text in (str(path), "factor"):
        ended = refused("top", text)
        said = f"{text!r} is not the number of a process; it is a program: start it, and give the number of its process"
        assert said in ended.sentence


@pytest.mark.parametrize("text", ["abc", "0", "12x", "\u0661"])
def test_what_is_no_pid_is_said_to_be_none(text: str) -> None:
    for words in (["top"], ["users"], ["detach"], ["count", "-f", "leaf", "--pid"], ["record", "--pid"]):
        ended = refused(*words, text)
        assert f"{text!r} is not the number of a process" in ended.sentence
        assert ended.status == 2


@pytest.mark.parametrize("name", ["count", "hist"])
@pytest.mark.parametrize(
    ("words", "sentence", "status"),
    [
        (["-f", "leef", "PID"], "no function matches leef; the nearest names are leaf", 2),
        (["PID"], "-f PATTERN (-f '*' for all of the executable)", 2),
        (["PROGRAM", "1", "-f", "leaf"], "is an option of PROGRAM, write ours before it", 2),
        (["-f", "leaf"], "name a process by its pid, or a program to run", 2),
        (["-f", "leaf", "--pid", "PID", "--", "true"], "no program can be named with it", 2),
        (["-f", "leaf", "--for", "soon", "PID"], "'soon' is not a time; write one like 250us, 1.5ms, 2s or 5m", 2),
        (["-f", "leaf", "--for", "0s", "PID"], "'0s' is no time at all", 2),
        (
            ["-f", "leaf", "PID", "--for", "100", "ms"],
            "is followed by 'ms': name one process, and write the values of",
            2,
        ),
        (["-f", "leaf", "PID", "PID"], "name one process, and write the values of options without spaces", 2),
        (["-f", "re:(", "PID"], "re:(: is not a regular expression", 2),
        (["-f", "agent.so!*", "PID"], "nothing of agent.so can be hooked", 2),
        (["-f", "leaf", "--", "no_such_program_anywhere"], "no_such_program_anywhere: no such program in PATH", 125),
        (["-f", "leef", "--", "PROGRAM", "1"], "no function matches leef; the nearest names are leaf", 2),
    ],
)
def test_what_makes_no_sense(name: str, words: list[str], sentence: str, status: int) -> None:
    path = built("attach_busy")
    with Running([path, "1", "nap"]) as running:
        ended = refused(name, *(word.replace("PID", str(running.pid)).replace("PROGRAM", path) for word in words))
        assert sentence.replace("PROGRAM", path) in ended.sentence
        assert ended.status == status
        assert "agent" not in Path(f"/proc/{running.pid}/maps").read_text()
        assert running.end() == ["wrong 0 worked 1"]


@pytest.mark.parametrize(
    ("value", "said"), [("arg0", "arg0: is no value of a call; write arg(0)"), ("", "'': is no value of a call; try d")]
)
def test_a_value_that_no_call_has(value: str, said: str) -> None:
    ended = refused("hist", "-f", "leaf", "--value", value, "--", "true")
    assert ended.sentence.startswith(said)
    assert len(ended.sentence) < 120
    assert ended.status == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["hist", "--value", "result", "--value", "duration"], "--value is given 2 times; each `hist` shows one value"),
        (["count", *["--when", "depth < 3"] * 3, "--"], "--when is given 3 times; join the conditions: --when '(…)"),
        (["record", "--when", "depth < 3", "--when", "result == 1"], "--when is given 2 times; join the conditions"),
    ],
)
def test_what_would_replace_another_option_in_silence_is_refused(words: list[str], sentence: str) -> None:
    ended = refused(*words, "true")
    assert ended.sentence.startswith(sentence)
    assert ended.status == 2


def test_a_process_that_nobody_uses_is_no_error() -> None:
    with Running([built("attach_busy"), "1", "nap"]) as running:
        for words in (["users"], ["detach"]):
            ended = refused(*words, running.pid)
            assert (ended.output, ended.errors, ended.status) == (f"nobody uses process {running.pid}\n", "", 0)
        ended = refused("users", "--json", running.pid)
        assert ended.output == f'{{"pid": {running.pid}, "hooked": false, "users": []}}\n'
        ended = refused("detach", "--user", "count", running.pid)
        assert ended.sentence == f"process {running.pid} has no user count; nobody uses it"
        assert ended.status == 2


WITHOUT_RESOURCES = ["setpriv", "--bounding-set", "-sys_resource", "--inh-caps=-all"]
SOMEBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]


@pytest.mark.parametrize("limit", ["", "--fsize=1000000:1000000", "--nofile=4:4"])
@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root to become somebody else")
def test_limits_of_another_users_process_that_may_not_be_raised(limit: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # that of the tests is for their user alone
        program = shutil.copy(built("attach_busy"), folder)
        words = [*SOMEBODY, *(["prlimit", limit] if limit else []), program, "1", "nap"]
        _attach_without_raising(words, is_too_low=bool(limit))


def _attach_without_raising(words: list[str], *, is_too_low: bool) -> None:
    with Running(words) as running:
        command = [*WITHOUT_RESOURCES, *SHADOWGRAPH, "count", "-f", "leaf", "--for", "100ms", str(running.pid)]
        ended = run(command)
        if is_too_low:
            assert "is too low and cannot be raised without the capability CAP_SYS_RESOURCE" in ended.sentence
            assert ended.status == 125
        else:
            assert (ended.status, ended.errors) == (0, "")
        assert running.end() == ["wrong 0 worked 1"]
