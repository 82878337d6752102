"""A recording in which nothing was called says where the program's code may be."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.build import compile_files, scratch_folder
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
