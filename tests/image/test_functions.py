"""The functions of an image: all of them, each once, with its names and what speaks against hooking it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from shadowgraph.image import FunctionTable, Reason, Source, open_image, read_functions, read_unwind_table
from tests.support.elf_files import compile_text, copy_of, run, symbol_addresses

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((noinline)) int visible(int x) { return 3 * x; }
static __attribute__((noinline)) int hidden(int x) { return visible(x) + 1; }
int main(int count, char **words) { printf("%d\\n", hidden(count)); return 0; }
"""
ALIASES = """
int __dull(int x) { return x + 1; }
int pleasant(int) __attribute__((alias("__dull")));
int pleasant_and_long(int) __attribute__((alias("__dull")));
int weak(int) __attribute__((weak, alias("__dull")));
static int p(int) __attribute__((alias("__dull"), used));
"""
COLD = """
#include <cstdio>
#include <stdexcept>
#include <string>
extern "C" __attribute__((noinline)) int risky(int x, const char *text) {
    std::string copy(text);
    try { if (x > 3) throw std::runtime_error(copy); puts(copy.c_str()); }
    catch (const std::exception &problem) { puts(problem.what()); return 1; }
    return 0;
}
int main(int count, char **words) { return risky(count, words[0]); }
"""
IFUNC = """
static int slow(int x) { return x; }
static int fast(int x) { return x + 0; }
static void *choose(void) { return __builtin_cpu_supports("avx2") ? fast : slow; }
int work(int x) __attribute__((ifunc("choose")));
int main(int count, char **words) { return work(count); }
"""
ASSEMBLY = """
        .text
        .globl  by_hand
by_hand:
        .cfi_startproc
        lea     1(%rdi), %eax
inner_label:
        ret
        .cfi_endproc
        .globl  sizeless
        .type   sizeless, @function
sizeless:
        mov     %edi, %eax
        ret
        .globl  without_cfi
without_cfi:
        lea     2(%rdi), %eax
        ret
local_label:
        nop
        .globl  main
        .type   main, @function
main:
        .cfi_startproc
        push    %rbx
        .cfi_adjust_cfa_offset 8
        .globl  second_entry
        .type   second_entry, @function
second_entry:
        xor     %eax, %eax
        pop     %rbx
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
        .size   main, . - main
        .section .note.GNU-stack, "", @progbits
"""


def functions_of(path) -> FunctionTable:
    return read_functions(open_image(path))


def by_name(functions: FunctionTable) -> dict[str, int]:
    return {name: row for row in range(len(functions)) for name in functions.names(row)}


@pytest.mark.parametrize("flags", ["-O2", "-O0 -no-pie", "-O2 -static", "-O2 -static-pie", "-O2 -fcf-protection=full"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_symbols_are_found_where_nm_sees_them(flags, compiler):
    path = compile_text(PROGRAM, flags, compiler)
    rows, functions = by_name(functions_of(path)), functions_of(path)
    addresses = symbol_addresses(path)
    for name in ("visible", "hidden", "main", "_start"):
        assert functions.start[rows[name]] == addresses[name]
        assert functions.source[rows[name]] == Source.SYMTAB
    assert functions.refused[rows["visible"]] == functions.refused[rows["main"]] == Reason.NONE
    assert functions.refused[rows["_start"]] == Reason.NO_CALLER


def test_starts_ascend_and_no_row_repeats():
    functions = functions_of(compile_text(PROGRAM, "-O2 -static"))
    assert (np.diff(functions.start.astype(np.int64)) > 0).all()
    assert (functions.size > 0).all()


def test_a_stripped_program_shows_every_function_by_address():
    whole = compile_text(PROGRAM, "-O2")
    stripped = copy_of(whole)
    run("strip", stripped)
    functions = functions_of(stripped)
    addresses = symbol_addresses(whole)
    for name in ("visible", "hidden", "main"):
        row = functions.find(addresses[name])
        assert functions.start[row] == addresses[name]
        assert functions.name(row) == f"sub_{addresses[name]:x}"
        assert functions.names(row) == [functions.name(row)]
        assert functions.source[row] == Source.UNWIND
        assert functions.refused[row] == Reason.NONE
    assert functions.refused[functions.find(addresses["_start"])] == Reason.NO_CALLER


def test_exported_and_nameless_functions_stand_side_by_side():
    path = compile_text(PROGRAM, "-O2 -s -rdynamic")
    functions = functions_of(path)
    assert functions.source[by_name(functions)["visible"]] == Source.DYNSYM
    assert (functions.source == Source.UNWIND).sum() >= 1


def test_aliases_are_one_function_with_the_pleasant_name_first():
    functions = functions_of(compile_text(ALIASES, "-O2 -shared -fPIC"))
    rows = by_name(functions)
    assert rows["__dull"] == rows["pleasant"] == rows["pleasant_and_long"] == rows["p"]
    assert functions.names(rows["pleasant"]) == ["pleasant", "pleasant_and_long", "weak", "__dull", "p"]


def test_versions_are_no_part_of_a_name():
    script = compile_text("", "-E", name="unused").with_name("versions.map")
    script.write_text("V1 { global: old; }; V2 { global: new_name; local: *; };")
    source = "int old(int x) { return x; } int new_impl(int x) { return x + 1; }\n"
    source += '__asm__(".symver new_impl, new_name@@V2");'
    path = compile_text(source, f"-O2 -shared -fPIC -Wl,--version-script={script}")
    functions = functions_of(path)
    assert "new_name@@V2" in run("nm", path)
    (row,) = functions.find_name("new_name")
    assert functions.name(row) == "new_name"


@pytest.mark.parametrize("strip", [False, True])
def test_cold_parts_are_not_functions_but_known(strip):
    whole = compile_text(COLD, "-O2", "g++")
    addresses = symbol_addresses(whole)
    path = whole
    if strip:
        path = copy_of(whole)
        run("strip", path)
    functions = functions_of(path)
    assert addresses["risky.cold"] not in functions.start
    assert functions.left_out()[Reason.COLD_PART] == 1
    part = functions.find_part(addresses["risky.cold"] + 1)
    assert part is not None
    assert part.start == addresses["risky.cold"]
    assert part.reason == Reason.COLD_PART
    assert functions.find(addresses["risky"]) >= 0


def test_plt_stubs_are_left_out_and_counted():
    functions = functions_of(compile_text(PROGRAM, "-O2 -Wl,-z,lazy"))
    assert functions.left_out()[Reason.PLT_STUB] >= 1
    plt = [text for text in open_image(compile_text(PROGRAM, "-O2 -Wl,-z,lazy")).text if text.is_plt]
    assert all(functions.find(text.address) == -1 for text in plt)
    found = functions.find_part(plt[0].address)
    assert found is not None
    assert found.reason == Reason.PLT_STUB


def test_resolvers_of_indirect_functions_are_marked():
    functions = functions_of(compile_text(IFUNC, "-O2"))
    rows = by_name(functions)
    assert functions.is_ifunc[rows["work"]]
    assert functions.names(rows["work"]) == ["choose", "work"]
    assert not functions.is_ifunc[rows["main"]]


def test_hand_written_functions_get_a_size_and_labels_are_none():
    path = compile_text(ASSEMBLY, "", "as")
    functions, addresses = functions_of(path), symbol_addresses(path)
    rows = by_name(functions)
    ends = {name: int(functions.end[rows[name]]) for name in ("by_hand", "sizeless", "without_cfi")}
    assert ends["by_hand"] == addresses["sizeless"]
    assert ends["sizeless"] == addresses["without_cfi"]
    assert ends["without_cfi"] == addresses["main"]
    assert not {"inner_label", "local_label"} & set(rows)
    assert functions.has_unwind[rows["by_hand"]]
    assert not functions.has_unwind[rows["sizeless"]]


def test_an_entry_where_the_stack_has_grown_is_refused():
    functions = functions_of(compile_text(ASSEMBLY, "", "as"))
    rows = by_name(functions)
    assert functions.refused[rows["second_entry"]] == Reason.FRAME_IN_PROGRESS
    assert functions.refused[rows["main"]] == functions.refused[rows["by_hand"]] == Reason.NONE


def test_padding_before_a_function_is_no_function():
    source = """
        .text
        .globl main
        .p2align 5
        ret
        .cfi_startproc
        .p2align 5
        .type main, @function
main:   ret
        .size main, . - main
        .cfi_endproc
        .section .note.GNU-stack, "", @progbits
    """
    path = compile_text(source, "", "as")
    functions = functions_of(path)
    main = symbol_addresses(path)["main"]
    assert read_unwind_table(open_image(path)).index(main - 8) >= 0
    assert functions.find(main - 8) == -1
    assert functions.name(functions.find(main)) == "main"


def test_signal_frames_are_refused():
    source = """
        .text
        .globl main
main:   .cfi_startproc
        xor %eax, %eax
        ret
        .cfi_endproc
        .cfi_startproc
        .cfi_signal_frame
        .globl comes_back
        .type comes_back, @function
comes_back:
        mov $15, %eax
        syscall
        .cfi_endproc
        .section .note.GNU-stack, "", @progbits
    """
    functions = functions_of(compile_text(source, "", "as"))
    assert functions.refused[by_name(functions)["comes_back"]] == Reason.SIGNAL_FRAME


def test_functions_are_found_by_address_inside_and_not_between():
    path = compile_text(ASSEMBLY, "", "as")
    functions, addresses = functions_of(path), symbol_addresses(path)
    assert functions.name(functions.find(addresses["inner_label"])) == "by_hand"
    assert functions.find(0) == -1
    assert functions.find(1 << 46) == -1
    # second_entry nests in main: the innermost is meant.
    assert functions.name(functions.find(addresses["second_entry"])) == "second_entry"


def test_names_are_found_without_reading_the_others():
    functions = functions_of(compile_text(PROGRAM, "-O2 -static"))
    (row,) = functions.find_name("visible")
    assert functions.name(row) == "visible"
    assert functions.find_name("visibl") == functions.find_name("isible") == functions.find_name("") == []
    assert functions.preferred_names == [functions.name(row) for row in range(len(functions))]


def test_a_file_without_section_headers_keeps_its_functions():
    path = copy_of(compile_text(PROGRAM, "-O2 -rdynamic -Wl,--hash-style=gnu"))
    with_sections = functions_of(path)
    data = bytearray(path.read_bytes())
    data[0x28:0x30], data[0x3C:0x40] = bytes(8), bytes(4)  # e_shoff, then e_shnum and e_shstrndx
    path.write_bytes(data)
    functions = functions_of(path)
    assert not open_image(path).elf.sections
    by_symbol = {name for name in by_name(functions) if not re.match("sub_", name)}
    assert by_symbol >= {"visible", "main", "_start"}
    known = set(with_sections.start.tolist())
    text = next(text for text in open_image(compile_text(PROGRAM, "-O2 -rdynamic")).text if text.name == ".text")
    found = {start for start in functions.start.tolist() if text.address <= start < text.end}
    assert found <= known


def test_no_symbols_and_no_unwind_table_is_an_empty_table():
    source = 'void _start(void) { __asm__ volatile("mov $60, %eax; xor %edi, %edi; syscall"); }'
    flags = "-O2 -nostdlib -static -s -fno-asynchronous-unwind-tables -fno-unwind-tables -Wl,--build-id=none"
    functions = functions_of(compile_text(source, flags))
    assert len(functions) == 0
    assert functions.preferred_names == []
    assert functions.find(0x401000) == -1
    assert functions.left_out() == {}
