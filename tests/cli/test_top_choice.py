"""`shadowgraph top` where it is not said which functions to show: few or none that are called, or too many."""

from __future__ import annotations

import json
from pathlib import Path

from shadowgraph import live
from shadowgraph.image import open_image, read_functions
from shadowgraph.live import Totals
from tests.attach.conftest import built
from tests.support.attached import Running
from tests.support.build import compile_files, scratch_folder
from tests.support.live import SHADOWGRAPH
from tests.support.manners import run

LIBRARY = """
#include <unistd.h>
__attribute__((noipa)) int step(int x) { usleep(1000); return x + 1; }
int lives_here(void) { int x = 0; for (;;) x = step(x); return x; }
"""
SPAWNING = """
#include <sys/wait.h>
#include <unistd.h>
int lives_here(void)
{
    for (;;) {
        if (!fork()) { /* during a vfork nobody could go over to other functions */
            execl("/bin/true", "true", (char *)0);
            _exit(1);
        }
        wait(0);
        usleep(100000);
    }
}
"""
SHELL = """
#include <stdio.h>
int lives_here(void);
int main(void) { puts("ready"); fflush(stdout); return lives_here(); }
"""


def test_an_executable_that_only_starts_a_library_is_shown_with_it() -> None:
    folder = Path(scratch_folder())
    (folder / "inner.c").write_text(LIBRARY)
    (folder / "shell.c").write_text(SHELL)
    library, program = folder / "libinner.so", folder / "shell"
    compile_files("gcc", [folder / "inner.c"], library, ("-O1", "-shared", "-fPIC"))
    compile_files("gcc", [folder / "shell.c", library], program, (f"-Wl,-rpath,{folder}",))
    with Running([str(program)]) as running:
        words = [*SHADOWGRAPH, "top", str(running.pid), "--interval", "500ms", "--iterations", "2"]
        first, second = run(words).output.split("\n\n")
        remark = "(none of the executable's few functions was called: libinner.so "
        assert first.splitlines()[-1] == remark + "follows)"
        assert second.splitlines()[-1] == remark + "is shown, too)"
        assert second.splitlines()[1].endswith("step [libinner.so]")
        ended = run([*words, "--json"])
        assert [row["function"] for row in json.loads(ended.lines[1])["functions"]] == ["step"]
        asked_for = run([*words, "-f", "*"]).output
        assert "libinner.so!*" in asked_for and "follows" not in asked_for, "-f is taken at its word"


def test_what_children_execute_does_not_hide_that_the_executable_is_silent() -> None:
    folder = Path(scratch_folder())
    (folder / "spawns.c").write_text(SPAWNING)
    (folder / "outer.c").write_text(SHELL)
    library, program = folder / "libspawns.so", folder / "outer"
    compile_files("gcc", [folder / "spawns.c"], library, ("-O1", "-shared", "-fPIC"))
    compile_files("gcc", [folder / "outer.c", library], program, (f"-Wl,-rpath,{folder}",))
    with Running([str(program)]) as running:
        ended = run([*SHADOWGRAPH, "top", str(running.pid), "--json", "--interval", "3s", "--iterations", "1"])
        remark = "none of the executable's few functions was called: libspawns.so follows"
        assert remark in json.loads(ended.lines[-1])["problems"]


def test_of_too_many_functions_the_shortest_are_left_out_and_counted() -> None:
    path = built("attach_busy")
    table = read_functions(open_image(path))
    sizes = {name: int(table.size[row]) for row in range(len(table)) for name in table.names(row)}
    with Running([path, "1"]) as running, live.attach(running.pid) as target:
        every = target.register(Totals(["attach_busy!*"]))
        some = target.register(Totals(["attach_busy!*"], most=3))
        names = [label.partition("!")[2] for label in every.totals()]
        kept = [label.partition("!")[2] for label in some.totals()]
        assert len(kept) == 3 and (every.left_out, some.left_out) == (0, len(names) - 3)
        assert min(sizes[name] for name in kept) >= max(sizes[name] for name in names if name not in kept)
        target.unregister(every)
        target.unregister(some)
    with Running([path, "1"]) as running, live.attach(running.pid) as target:
        enough = target.register(Totals(["attach_busy!*"], most=len(names)))
        assert (len(enough.totals()), enough.left_out) == (len(names), 0)
