"""The unwind table: every FDE, found by address, with what an interpreter of its instructions needs."""

from __future__ import annotations

import numpy as np
import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from shadowgraph.image import Reason, open_image, read_unwind_table
from tests.support.elf_files import compile_text, copy_of, installed, run, symbol_addresses

PROGRAM = """
#include <stdexcept>
#include <cstdio>
__attribute__((noinline)) int throws(int x) { if (x > 1) throw std::runtime_error("x"); return x; }
int main(int count, char **words) { try { return throws(count); } catch (...) { puts("caught"); return 0; } }
"""
REAL = ["/usr/bin/bash", "/usr/bin/perl", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]


def oracle_entries(path) -> dict[int, FDE]:
    with open(path, "rb") as stream:
        frames = ELFFile(stream).get_dwarf_info(relocate_dwarf_sections=False).EH_CFI_entries()
        return {entry["initial_location"]: entry for entry in frames if isinstance(entry, FDE)}


@pytest.mark.parametrize("path", REAL)
def test_every_entry_of_real_files_is_listed(path):
    table, oracle = read_unwind_table(open_image(installed(path))), oracle_entries(path)
    assert dict(zip(table.start.tolist(), table.size.tolist(), strict=True)) == {
        start: entry["address_range"] for start, entry in oracle.items()
    }
    assert table.skipped == 0


@pytest.mark.parametrize("flags", ["-O2", "-O2 -static", "-O2 -fuse-ld=gold", "-O2 -no-pie -fno-pie", "-O0"])
def test_entries_agree_with_a_second_reader(flags):
    path = compile_text(PROGRAM, flags, "g++")
    table, oracle = read_unwind_table(open_image(path)), oracle_entries(path)
    assert sorted(oracle) == np.unique(table.start).tolist()
    for row in range(0, len(table), max(len(table) // 200, 1)):
        mine, other = table.fde(row), oracle[int(table.start[row])]
        assert mine.cie.augmentation == other.cie["augmentation"].decode()
        assert mine.cie.code_alignment == other.cie["code_alignment_factor"]
        assert mine.cie.data_alignment == other.cie["data_alignment_factor"]
        assert mine.cie.return_register == other.cie["return_address_register"] == 16
        assert (mine.lsda or None) == (other.lsda_pointer or None)
        assert mine.instructions.hex() == raw_instructions(path, mine.address)


def raw_instructions(path, address: int) -> str:
    """The end of the entry at an address of .eh_frame, by its own length fields."""
    with open(path, "rb") as stream:
        section = ELFFile(stream).get_section_by_name(".eh_frame")
        data = section.data()[address - section["sh_addr"] :]
    length = int.from_bytes(data[:4], "little")
    return data[4 + 4 + 8 + 1 + data[16] : 4 + length].hex()


def test_an_entry_is_found_by_any_address_in_it():
    path = compile_text(PROGRAM, "-O2", "g++")
    table = read_unwind_table(open_image(path))
    row = table.index(symbol_addresses(path)["main"])
    start, end = int(table.start[row]), int(table.end[row])
    for address in (start, start + 1, end - 1):
        entry = table.find(address)
        assert entry is not None
        assert (entry.start, entry.size) == (start, end - start)
    assert table.find(0) is None
    assert table.find(1 << 46) is None
    assert table.indexes(np.array([0, start, end - 1], np.uint64)).tolist() == [-1, row, row]


def test_language_data_and_personality_are_known():
    path = compile_text(PROGRAM, "-O2", "g++")
    image = open_image(path)
    entry = read_unwind_table(image).find(symbol_addresses(path)["main"])
    assert entry is not None
    assert entry.cie.augmentation == "zPLR"
    assert entry.cie.personality_indirect
    table = next(section for section in image.elf.sections if section.name == ".gcc_except_table")
    assert table.address <= entry.lsda < table.address + table.size


def test_the_table_is_walked_where_no_header_leads_into_it():
    path = compile_text(PROGRAM, "-O2", "g++")
    without = compile_text(PROGRAM, "-O2 -Wl,--no-eh-frame-hdr", "g++")
    walked = read_unwind_table(open_image(without))
    assert open_image(without).eh_frame_header is None
    assert sorted(oracle_entries(without)) == walked.start.tolist()
    assert len(walked) == len(read_unwind_table(open_image(path)))


def test_a_file_without_sections_is_read_through_the_header():
    path = copy_of(compile_text(PROGRAM, "-O2", "g++"))
    expected = read_unwind_table(open_image(path)).start.tolist()
    data = bytearray(path.read_bytes())
    data[0x28:0x30], data[0x3C:0x40] = bytes(8), bytes(4)
    path.write_bytes(data)
    assert read_unwind_table(open_image(path)).start.tolist() == expected


def test_no_table_is_an_empty_table():
    path = compile_text("int one(void) { return 1; }", "-O2 -shared -nostdlib -fno-asynchronous-unwind-tables")
    table = read_unwind_table(open_image(path))
    assert len(table) == 0
    assert table.find(0x1000) is None
    assert table.indexes(np.array([0x1000], np.uint64)).tolist() == [-1]


ROWS = """
        .text
        .globl main
main:   .cfi_startproc
        push %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        mov %rsp, %rbp
        .cfi_def_cfa_register %rbp
        xor %eax, %eax
        .cfi_remember_state
        pop %rbp
        .cfi_def_cfa %rsp, 8
        .cfi_restore %rbp
        ret
        .cfi_restore_state
        leave
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
nobody: .cfi_startproc
        .cfi_undefined %rip
        hlt
        .cfi_endproc
lower:  .cfi_startproc
        .cfi_def_cfa_offset 48
        ret
        .cfi_endproc
long:   .cfi_startproc
        .cfi_def_cfa_offset 96
        .cfi_offset %rbx, -16
        .cfi_offset %rbp, -24
        .cfi_offset %r12, -32
        .cfi_offset %r13, -40
        .cfi_offset %r14, -48
        .cfi_offset %r15, -56
        .cfi_escape 0x16, 0x06, 0x02, 0x77, 0x08
        .cfi_escape 0x16, 0x06, 0x02, 0x77, 0x08
        .cfi_escape 0x16, 0x06, 0x02, 0x77, 0x08
        .cfi_escape 0x16, 0x06, 0x02, 0x77, 0x08
        ret
        .cfi_endproc
odd:    .cfi_startproc
        .cfi_escape 0x0f, 0x03, 0x77, 0x08, 0x06
        ret
        .cfi_endproc
        .section .note.GNU-stack, "", @progbits
"""


ROW_NAMES = ("main", "nobody", "lower", "long", "odd")


def test_each_address_is_judged_by_its_row():
    path = compile_text(ROWS, "", "as")
    table, main = read_unwind_table(open_image(path)), symbol_addresses(path)["main"]
    # push is one byte, mov three, xor two, pop and ret one each, leave one.
    verdicts = [table.judge(main + distance) for distance in range(10)]
    busy, fine = Reason.FRAME_IN_PROGRESS, Reason.NONE
    assert verdicts == [fine, busy, busy, busy, busy, busy, busy, fine, busy, fine]


def test_first_rows_tell_who_cannot_be_called():
    path = compile_text(ROWS, "", "as")
    table, addresses = read_unwind_table(open_image(path)), symbol_addresses(path)
    verdict = {name: int(table.first_row[table.index(addresses[name])]) for name in ROW_NAMES}
    assert verdict == {
        "main": Reason.NONE,
        "nobody": Reason.NO_CALLER,
        "lower": Reason.FRAME_IN_PROGRESS,
        "long": Reason.FRAME_IN_PROGRESS,
        "odd": Reason.FRAME_IN_PROGRESS,
    }


def test_the_return_trampoline_of_signals_is_known_by_its_entry():
    image = open_image(installed("/lib/x86_64-linux-gnu/libc.so.6"))
    table = read_unwind_table(image)
    rows = np.flatnonzero(table.first_row == Reason.SIGNAL_FRAME)
    assert len(rows) == 1
    assert table.fde(int(rows[0])).cie.is_signal_frame
    # mov $15, %rax; syscall
    assert image.read(int(table.start[rows[0]]) + 1, 9) == bytes.fromhex("48c7c00f0000000f05")


def test_deepest_is_a_bound_for_every_row():
    path = compile_text(PROGRAM, "-O2 -static", "g++")
    table = read_unwind_table(open_image(path))
    for row in range(0, len(table), 7):
        start, end = int(table.start[row]), int(table.end[row])
        rules = [table.rule_at(pc) for pc in range(start, min(end, start + 400), 3)]
        from_rsp = [rule.offset for rule in rules if rule is not None and rule.register == 7]
        assert max(from_rsp, default=8) <= table.deepest[row]
        if any(rule is not None and rule.register == 6 for rule in rules):
            assert table.may_use_rbp[row]


def test_readelf_sees_as_many_entries():
    path = installed("/usr/bin/git")
    listed = run("readelf", "--debug-dump=frames", "-wN", path).count(" FDE cie=")
    assert len(read_unwind_table(open_image(path))) == listed
