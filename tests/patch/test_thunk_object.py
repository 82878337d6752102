"""Thunks as a loadable object: every instruction has the unwind row of its original, and the loader accepts it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from shadowgraph.image import Image, UnwindTable, open_image, read_functions, read_unwind_table
from shadowgraph.image.unwind_rows import UnwindRow, row_at
from shadowgraph.patch import ModulePlan, ThunkBlock, encode_thunks, plan_module, thunk_space
from shadowgraph.patch.thunk_object import ObjectLayout, build_thunk_object, lay_out
from shadowgraph.patch.thunk_unwind import ThunkRows, thunk_rows

BASE = 0x7800_0000_0000
PROGRAMS = [path for path in ("/bin/bash", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6") if Path(path).exists()]


@dataclass(frozen=True)
class Built:
    """The thunks of a whole module, and the object made of them."""

    unwind: UnwindTable
    plan: ModulePlan
    block: ThunkBlock
    rows: ThunkRows
    place: ObjectLayout
    content: bytes


def build(image: Image) -> Built:
    functions = read_functions(image)
    unwind = read_unwind_table(image)
    plan = plan_module(image, functions)
    chosen = plan.with_lenders(np.flatnonzero(plan.hookable))
    code_size = thunk_space(plan, chosen)
    place = lay_out(BASE, code_size, len(chosen))
    bias = BASE + (64 << 20)
    ids = np.arange(1, len(chosen) + 1)
    block = encode_thunks(plan, chosen, bias, place.thunk_base, 0x10_0000, ids)
    rows = thunk_rows(plan, unwind, block.chosen)
    names = [functions.name(row) for row in block.chosen.tolist()]
    content = build_thunk_object(block, rows, place.thunk_base, names, "some.thunks")
    return Built(unwind, plan, block, rows, place, content)


@pytest.fixture(scope="module", params=PROGRAMS)
def built(request: pytest.FixtureRequest) -> Built:
    return build(open_image(request.param))


def expected_row(built: Built, row: np.void) -> UnwindRow:
    original = int(row["original"]) - (BASE + (64 << 20))
    fde = built.unwind.find(int(built.plan.patch_address[built.block.chosen[row["function"]]]))
    assert fde is not None
    expected = row_at(fde, min(original, fde.start + fde.size - 1)).copy()
    if expected.cfa_register == 7:
        expected.cfa_offset += int(row["pushed"])
    return expected


def test_each_instruction_of_a_thunk_has_the_row_of_its_original(built: Built, tmp_path: Path) -> None:
    path = tmp_path / "some.thunks"
    path.write_bytes(built.content)
    table = read_unwind_table(open_image(path))
    assert len(table) == len(built.block.thunk)
    unknown = set(built.rows.unknown.tolist())
    step = max(1, len(built.block.pc_map) // 20_000)
    compared = 0
    for row in built.block.pc_map[::step]:
        if int(row["function"]) in unknown:
            continue
        fde = table.find(int(row["thunk"]))
        assert fde is not None
        assert row_at(fde, int(row["thunk"])) == expected_row(built, row)
        compared += 1
    assert compared > len(built.block.thunk) // 2


def test_bodies_of_functions_without_unwind_information_are_not_described(built: Built, tmp_path: Path) -> None:
    path = tmp_path / "some.thunks"
    path.write_bytes(built.content)
    table = read_unwind_table(open_image(path))
    for index in built.rows.unknown.tolist():
        assert table.find(int(built.block.thunk[index])) is not None
        assert table.find(int(built.block.body[index])) is None


def test_symbols_name_the_functions(built: Built, tmp_path: Path) -> None:
    path = tmp_path / "some.thunks"
    path.write_bytes(built.content)
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".symtab")
        assert symbols.num_symbols() == len(built.block.thunk) + 1
        last = symbols.get_symbol(symbols.num_symbols() - 1)
        assert last.name.endswith("@thunk")
        assert last.entry.st_value == int(built.block.thunk[-1])


def test_the_size_that_is_set_aside_is_enough(built: Built) -> None:
    with_symbols = built.content.find(b"@thunk")
    assert built.place.unwind_base < BASE + len(built.content)
    assert built.place.size >= built.place.unwind_base - BASE
    assert with_symbols > 0


LOADS = """
import ctypes, sys
path, base = sys.argv[1], int(sys.argv[2])
handle = ctypes.CDLL(path)
maps = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith(path)]
lowest = min(int(fields[0].split("-")[0], 16) for fields in maps)
assert lowest == base, hex(lowest)
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), *((name, ctypes.c_void_p) for name in ("base", "name", "at"))]
info = Info()
assert ctypes.CDLL(None).dladdr(ctypes.c_void_p(base + 0x1000), ctypes.byref(info))
assert info.file.decode() == path
find = ctypes.CDLL("libgcc_s.so.1")._Unwind_Find_FDE
find.restype = ctypes.c_void_p
bases = (ctypes.c_void_p * 3)()
assert find(ctypes.c_void_p(base + 0x1000), bases)
assert bases[2] == base + 0x1000
"""


def test_the_loader_puts_it_where_it_belongs_and_libgcc_finds_its_entries(tmp_path: Path) -> None:
    found = build(open_image("/bin/bash"))
    path = tmp_path / "bash.thunks"
    path.write_bytes(found.content)
    done = subprocess.run([sys.executable, "-c", LOADS, str(path), str(BASE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
