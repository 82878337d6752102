"""Source lines of addresses, where libdw and debug information are there, and a sentence where they are not."""

from __future__ import annotations

import re

import pytest

from shadowgraph.image import libdw, open_image, read_functions
from shadowgraph.image.lines import read_lines
from tests.support.elf_files import compile_text, copy_of, installed, run, symbol_addresses

PROGRAM = """#include <stdio.h>
static __attribute__((noinline))
int first(int x)
{
    return printf("%d\\n", x);
}

int main(int count, char **words) { return first(count); }
"""


pytestmark = pytest.mark.usefixtures("needs_libdw")


@pytest.mark.parametrize("flags", ["-g", "-g -O2", "-g -gdwarf-4", "-g -O2 -gz", "-g -gsplit-dwarf"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_functions_know_their_lines(flags, compiler):
    path = compile_text(PROGRAM, flags, compiler)
    lines, addresses = read_lines(open_image(path)), symbol_addresses(path)
    assert lines.remark == ""
    first, main = lines.find([addresses["first"], addresses["main"]])
    assert first is not None and main is not None
    assert first.file == main.file == str(path.with_name("source.c"))
    assert first.line in (3, 4)
    assert str(main) == f"{main.file}:8"


def test_addresses_without_debug_information_have_no_line():
    path = compile_text(PROGRAM, "-g")
    lines = read_lines(open_image(path))
    assert lines.find([symbol_addresses(path)["_start"], 0, 1 << 46]) == [None, None, None]
    assert lines.find([]) == []


def test_lines_agree_with_addr2line():
    path = compile_text(PROGRAM * 1 + "\n".join(f"int f{i}(int x)\n{{ return x + {i}; }}" for i in range(50)), "-g -O1")
    names = [f"f{i}" for i in range(50)]
    addresses = [symbol_addresses(path)[name] for name in names]
    mine = [str(line) for line in read_lines(open_image(path)).find(addresses)]
    told = run("addr2line", "-e", path, *map(hex, addresses)).splitlines()
    assert mine == [re.sub(r" \(discriminator \d+\)", "", line) for line in told]


def test_a_separate_debug_file_is_used(tmp_path):
    path = copy_of(compile_text(PROGRAM, "-g"))
    address, build_id = symbol_addresses(path)["main"], open_image(path).build_id
    debug = tmp_path / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    run("objcopy", "--only-keep-debug", path, debug)
    run("strip", path)
    (line,) = read_lines(open_image(path), debug_roots=(str(tmp_path),)).find([address])
    assert line is not None and line.line == 8


def test_what_is_missing_is_said(monkeypatch):
    plain = open_image(compile_text(PROGRAM, "-O2"))
    assert "no debug information" in read_lines(plain, debug_roots=()).remark
    assert read_lines(plain, debug_roots=()).find([plain.entry]) == [None]

    def nothing(name, *rest):
        raise OSError(f"{name}: cannot open shared object file")

    libdw.load_libdw.cache_clear()
    monkeypatch.setattr(libdw.ctypes, "CDLL", nothing)
    try:
        assert "libdw1" in read_lines(open_image(compile_text(PROGRAM, "-g"))).remark
    finally:
        libdw.load_libdw.cache_clear()


def test_libc_is_read_where_its_debug_file_is_installed():
    image = open_image(installed("/lib/x86_64-linux-gnu/libc.so.6"))
    lines = read_lines(image)
    if lines.remark:
        pytest.skip(lines.remark)
    functions = read_functions(image)
    (row,) = functions.find_name("qsort")
    (line,) = lines.find(functions.start[[row]])
    assert line is not None and line.file.endswith(("msort.c", "qsort.c"))
