"""What an image imports, and through which slots; what it exports, and where."""

from __future__ import annotations

import re

import pytest

from shadowgraph.image import SlotKind, lookup_dynamic, open_image, read_imports
from shadowgraph.image.hashed_names import read_hashed_names
from shadowgraph.image.symbols import DT_GNU_HASH, SHN_UNDEF, dynamic_symbols
from tests.support.elf_files import compile_text, installed, run

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <math.h>
extern int missing_maybe(void) __attribute__((weak));
double (*table[])(double) = { sin, cos };
int main(int count, char **words) {
    if (missing_maybe) return missing_maybe();
    printf("%f\\n", table[count & 1](atof(words[0])));
    fputs(words[0], stdout);
    return 0;
}
"""
_ROW = re.compile(
    r"([0-9a-f]{12,16})\s+[0-9a-f]+\s+R_X86_64_(JUMP_SLOT?|GLOB_DAT|64)\s+[0-9a-f]+ (\S+?)(?:@@?(\S+))? \+ "
)
_KINDS = {"JUMP_SLO": "JUMP_SLOT", "JUMP_SLOT": "JUMP_SLOT", "GLOB_DAT": "GLOB_DAT", "64": "POINTER"}


def relocations(path) -> set[tuple[int, str, str, str]]:
    """(slot, name, version, kind) of all symbolic relocations of undefined functions, as readelf sees them."""
    functions = {
        parts[7].split("@")[0]
        for parts in map(str.split, run("readelf", "--dyn-syms", "-W", path).splitlines())
        if len(parts) >= 8 and parts[6] == "UND" and parts[3] in ("FUNC", "NOTYPE", "IFUNC")
    }
    rows = (_ROW.match(line) for line in run("readelf", "-rW", path).splitlines())
    found = ((int(row[1], 16), row[3], row[4] or "", _KINDS[row[2]]) for row in rows if row)
    return {item for item in found if item[1] in functions}


def mine(path) -> set[tuple[int, str, str, str]]:
    return {(found.slot, found.name, found.version, found.kind.name) for found in read_imports(open_image(path))}


@pytest.mark.parametrize(
    "flags", ["-O2", "-O2 -Wl,-z,now", "-O2 -fno-plt", "-O2 -no-pie", "-O2 -fuse-ld=gold", "-O2 -s"]
)
def test_imports_are_those_that_readelf_sees(flags):
    path = compile_text(PROGRAM, f"{flags} -lm")
    assert mine(path) == relocations(path)


@pytest.mark.parametrize(
    "path", ["/usr/bin/bash", "/usr/bin/git", "/usr/bin/perl", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"]
)
def test_imports_of_real_files_are_those_that_readelf_sees(path):
    assert mine(installed(path)) == relocations(path)


def test_kinds_versions_and_libraries_are_told():
    imports = read_imports(open_image(compile_text(PROGRAM, "-O2 -lm")))
    found = {(item.name, item.kind): item for item in imports}
    assert found["printf", SlotKind.JUMP_SLOT].provider == "libc.so.6"
    assert found["printf", SlotKind.JUMP_SLOT].version.startswith("GLIBC_2.")
    assert found["sin", SlotKind.POINTER].provider == "libm.so.6"
    assert found["missing_maybe", SlotKind.GLOB_DAT].is_weak
    assert not found["printf", SlotKind.JUMP_SLOT].is_weak
    assert found["missing_maybe", SlotKind.GLOB_DAT].version == ""


def test_imported_data_is_left_out():
    assert "stdout" not in {item.name for item in read_imports(open_image(compile_text(PROGRAM, "-O2 -lm")))}


def test_calls_without_plt_go_through_the_got():
    kinds = {item.name: item.kind for item in read_imports(open_image(compile_text(PROGRAM, "-O2 -fno-plt -lm")))}
    assert kinds["printf"] == SlotKind.GLOB_DAT


def test_a_static_program_imports_nothing():
    assert read_imports(open_image(compile_text("int main(void) { return 0; }", "-O2 -static"))) == []


@pytest.mark.parametrize("hashes", ["gnu", "sysv", "both"])
def test_exported_functions_are_found(hashes):
    path = compile_text("int twice(int x) { return 2 * x; }", f"-O2 -shared -fPIC -Wl,--hash-style={hashes}")
    image = open_image(path)
    address = next(int(line.split()[0], 16) for line in run("nm", "-D", path).splitlines() if line.endswith(" twice"))
    assert lookup_dynamic(image, "twice") == address
    assert lookup_dynamic(image, "wice") is None
    assert lookup_dynamic(image, "printf") is None


def test_the_default_version_is_preferred():
    path = installed("/lib/x86_64-linux-gnu/libc.so.6")
    defaults = {}
    for line in run("nm", "-D", path).splitlines():
        parts = line.split()
        if len(parts) == 3 and "@@" in parts[2]:
            defaults[parts[2].split("@@")[0]] = int(parts[0], 16)
    image = open_image(path)
    for name in ("memcpy", "dlopen", "pthread_cond_wait", "realpath", "fopen", "posix_spawn"):
        assert lookup_dynamic(image, name) == defaults[name]


@pytest.mark.parametrize("library", ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"])
def test_the_hash_table_finds_what_a_look_at_every_name_finds(library):
    image = open_image(installed(library))
    symbols = dynamic_symbols(image)
    hashed = read_hashed_names(image, image.dynamic_value(DT_GNU_HASH), len(symbols))
    exported = symbols.rows["section"] != SHN_UNDEF
    by_name = {}
    for row, name in enumerate(symbols.raw_names(range(len(symbols)))):
        if exported[row] and name:
            by_name.setdefault(name, []).append(row)
    assert len(by_name) > 1000
    for name, rows in by_name.items():
        assert [row for row in hashed.rows(name) if symbols.raw_name(row) == name] == rows
        assert symbols.raw_name(rows[0]) not in [symbols.raw_name(row) for row in hashed.rows(name + b"_")]
