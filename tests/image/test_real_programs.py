"""Real programs of this machine: every function that binutils sees is in the table, and nothing that is none."""

from __future__ import annotations

import pytest

from shadowgraph.image import FunctionTable, Reason, Source, open_image, read_functions
from tests.support.elf_files import installed, run

PROGRAMS = [
    "/usr/bin/node",
    "/usr/bin/bash",
    "/usr/bin/perl",
    "/usr/bin/python3",
    "/usr/bin/git",
    "/usr/bin/sqlite3",
    "/usr/lib*/gcc/x86_64-linux-gnu/*/cc1",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
]


def symbols(path) -> dict[int, set[str]]:
    """Address to names of the defined function symbols, from readelf."""
    found: dict[int, set[str]] = {}
    for line in run("readelf", "-sW", path).splitlines():
        parts = line.split()
        if len(parts) >= 8 and parts[0].endswith(":") and parts[3] in ("FUNC", "IFUNC") and parts[6] != "UND":
            found.setdefault(int(parts[1], 16), set()).add(parts[7].split("@")[0])
    return found


def from_file(functions: FunctionTable) -> list[int]:
    """The rows that the file's own symbol tables tell of."""
    return [row for row, source in enumerate(functions.source) if source in (Source.SYMTAB, Source.DYNSYM)]


@pytest.mark.parametrize("path", PROGRAMS)
def test_functions_are_those_of_readelf(path):
    program = installed(path)
    functions = read_functions(open_image(program), debug_roots=())
    expected, parts = symbols(program), {part.start for part in functions.parts}
    found = {int(functions.start[row]) for row in from_file(functions)}
    assert set(expected) - found - parts == set()
    untyped = found - set(expected)
    assert len(untyped) <= len(expected) // 50
    for row in from_file(functions)[:: max(len(functions) // 300, 1)]:
        address = int(functions.start[row])
        if address in expected:
            assert set(functions.names(row)) == expected[address]
            assert functions.name(row) in expected[address]


@pytest.mark.parametrize("path", PROGRAMS)
def test_ranges_lie_in_text_and_do_not_run_into_the_next_function(path):
    image = open_image(installed(path))
    functions = read_functions(image, debug_roots=())
    assert image.is_executable(functions.start).all()
    assert image.is_executable(functions.end - 1).all()
    overlapping = (functions.end[:-1] > functions.start[1:]).sum()
    assert overlapping <= len(functions) // 500


def test_parts_of_python_are_many_and_no_functions():
    functions = read_functions(open_image(installed("/usr/bin/python3")), debug_roots=())
    left_out = functions.left_out()
    assert left_out[Reason.COLD_PART] > 1000
    starts = set(functions.start.tolist())
    assert not any(part.start in starts for part in functions.parts)
