"""Symbols that were moved out of a program are found again, and only those of that very build."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from shadowgraph.image import FunctionTable, Source, open_image, read_functions
from tests.support.elf_files import compile_text, copy_of, run

PROGRAM = """
#include <stdio.h>
static __attribute__((noinline)) int hidden(int x) { return printf("%d\\n", x); }
int main(int count, char **words) { return hidden(count); }
"""
OTHER = PROGRAM.replace("hidden", "concealed")


def built(source: str = PROGRAM) -> Path:
    return copy_of(compile_text(source, "-O2 -g"))


def source_of(functions: FunctionTable, name: str) -> int | None:
    rows = functions.find_name(name)
    return int(functions.source[rows[0]]) if rows else None


def split(path: Path, debug: Path) -> None:
    """Move symbols and debug information of a program into a file of their own."""
    debug.parent.mkdir(parents=True, exist_ok=True)
    run("objcopy", "--only-keep-debug", path, debug)
    run("strip", path)


def test_debugdata_within_the_program_is_read(tmp_path):
    path, symbols = built(), tmp_path / "symbols"
    run("objcopy", "--only-keep-debug", path, symbols)
    run("objcopy", "--strip-debug", symbols)
    packed = tmp_path / "packed.xz"
    packed.write_bytes(lzma.compress(symbols.read_bytes()))
    run("strip", path)
    run("objcopy", f"--add-section=.gnu_debugdata={packed}", path)
    functions = read_functions(open_image(path), debug_roots=())
    assert source_of(functions, "hidden") == Source.DEBUGDATA


def test_damaged_debugdata_is_remarked_upon(tmp_path):
    path, packed = built(), tmp_path / "packed.xz"
    packed.write_bytes(b"this is not xz")
    run("strip", path)
    run("objcopy", f"--add-section=.gnu_debugdata={packed}", path)
    image = open_image(path)
    assert source_of(read_functions(image, debug_roots=()), "hidden") is None
    assert any(".gnu_debugdata" in remark for remark in image.elf.remarks)


def test_a_debug_file_is_found_by_build_id(tmp_path):
    path = built()
    build_id = open_image(path).build_id
    split(path, tmp_path / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug")
    assert source_of(read_functions(open_image(path), debug_roots=(str(tmp_path),)), "hidden") == Source.DEBUGFILE
    assert source_of(read_functions(open_image(path), debug_roots=()), "hidden") is None


def test_a_debug_file_of_another_build_is_not_taken(tmp_path):
    path, other = built(), built(OTHER)
    build_id = open_image(path).build_id
    debug = tmp_path / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    split(other, debug)
    run("strip", path)
    functions = read_functions(open_image(path), debug_roots=(str(tmp_path),))
    assert source_of(functions, "hidden") is source_of(functions, "concealed") is None


@pytest.mark.parametrize("place", ["beside", "in .debug", "under the root"])
def test_a_debug_file_is_found_by_link(tmp_path, place):
    path = built()
    folder = path.parent
    root = tmp_path / "root"
    debug = {
        "beside": folder / "program.debug",
        "in .debug": folder / ".debug" / "program.debug",
        "under the root": root.joinpath(*folder.resolve().parts[1:]) / "program.debug",
    }[place]
    split(path, debug)
    run("objcopy", "--remove-section=.note.gnu.build-id", f"--add-gnu-debuglink={debug}", path)
    assert open_image(path).build_id == ""
    assert source_of(read_functions(open_image(path), debug_roots=(str(root),)), "hidden") == Source.DEBUGFILE


def test_a_linked_debug_file_that_has_changed_is_not_taken():
    path = built()
    debug = path.parent / "program.debug"
    split(path, debug)
    run("objcopy", "--remove-section=.note.gnu.build-id", f"--add-gnu-debuglink={debug}", path)
    split(built(OTHER), debug)
    functions = read_functions(open_image(path), debug_roots=())
    assert source_of(functions, "hidden") is source_of(functions, "concealed") is None
