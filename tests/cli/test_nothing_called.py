"""A recording in which nothing was called says where the program's code may be."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.attach.conftest import built
from tests.support.attached import Running
from tests.support.build import compile_files, scratch_folder
from tests.support.live import SHADOWGRAPH, until
from tests.support.manners import run

LIBRARY = "int more(int x) { return x + 1; }\n"
PROGRAM = "int more(int x);\nint unused(int x) { return x + 1; }\nint main(void) { return more(1) < 0; }\n"


def test_where_nothing_was_called_the_largest_library_is_named_that_the_program_itself_asks_for() -> None:
    folder = Path(scratch_folder())
    (folder / "elsewhere.c").write_text(LIBRARY)
    (folder / "calls_elsewhere.c").write_text(PROGRAM)
    library, program = folder / "libelsewhere.so", folder / "calls_elsewhere"
    compile_files("gcc", [folder / "elsewhere.c"], library, ("-shared", "-fPIC"))
    compile_files("gcc", [folder / "calls_elsewhere.c", library], program, (f"-Wl,-rpath,{folder}",))
    trace = folder / "elsewhere.sgt"
    record = [sys.executable, "-m", "shadowgraph.cli.main", "record", "--force", "-o", str(trace)]
    nothing = run([*record, "-f", "unused", str(program)])
    assert "0 calls of 0 functions (1 hooked) in" in nothing.errors
    hint = "none of them was called: what ran may be a library (-m libelsewhere.so); --all traces every module"
    assert hint in nothing.errors
    something = run([*record, str(program)])
    assert "none of them was called" not in something.errors


def test_count_and_hist_say_so_and_where_to_look_if_all_of_the_executable_was_meant() -> None:
    with Running(["sh", "-c", "echo ready; exec sleep 1000"]) as running:
        until(lambda: Path(f"/proc/{running.pid}/exe").resolve().name == "sleep")
        place = [str(running.pid), "--for", "100ms"]
        idle = ": the process waits, it has not run meanwhile"
        where = "; most code of its libraries is in libc.so.6 (-f 'libc.so.6!*')"
        for words, said in (
            (["count", "-f", "*"], f"none of these was called{idle}{where}"),
            (["count", "-f", "libc.so.6!read"], f"none of these was called{idle}"),
            (["hist", "-f", "*"], f"no call of these has ended meanwhile{idle}{where}"),
            (["hist", "-f", "libc.so.6!read"], f"no call of these has ended meanwhile{idle}"),
        ):
            ended = run([*SHADOWGRAPH, *words, *place])
            assert (ended.status, ended.lines[-1].replace("it has hardly", "it has not")) == (0, said)
            assert all("could not be hooked" in line for line in ended.errors.splitlines())
        table = run([*SHADOWGRAPH, "top", "-f", "libc.so.6!read", "--iterations", "1", "-p", str(running.pid)]).lines
        assert table[-1].replace("it has hardly", "it has not") == f"(no call of these has ended so far{idle})"
        words = ["probe", "-f", "libc.so.6!read", "--code", "int on_entry(struct sg_call *call) { return !call; }"]
        said = run([*SHADOWGRAPH, *words, *place]).errors
        assert said.replace("it has hardly", "it has not").endswith(f"{idle}\n")
    with Running([built("attach_busy"), "1"]) as running:
        ended = run([*SHADOWGRAPH, "count", "-f", "main", "-p", str(running.pid), "--for", "1s"])
        assert "none of these was called" in ended.output and "waits" not in ended.output
        ended = run([*SHADOWGRAPH, "count", "-f", "*", "-p", str(running.pid), "--for", "1s"])
        assert "none of these" not in ended.output
