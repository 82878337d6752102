"""Which words of data are taken for addresses of code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from shadowgraph.image import Reason, open_image, read_functions
from shadowgraph.patch import plan_module
from tests.support.elf_files import symbol_addresses

SOURCE = """
    .globl f
    .type f, @function
    .text
f:  .cfi_startproc
    push %rbx
    .cfi_adjust_cfa_offset 8
inside:
    nop
    nop
    nop
    nop
    pop %rbx
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
    .size f, . - f
    .data
    .balign 8
    .quad 0
{words}
    .quad 0
    .section .note.GNU-stack, "", @progbits
"""
PIE = ("-shared", "-nostdlib")
FIXED = ("-no-pie", "-nostdlib", "-static", "-Wl,-e,f")


def link(folder: Path, words: list[str], flags: tuple[str, ...]) -> Path:
    path = folder / "program"
    text = SOURCE.format(words="".join(f"    .quad {word}\n" for word in words))
    subprocess.run(["gcc", *flags, "-xassembler", "-", "-o", path], input=text.encode(), check=True)
    return path


def reason(path: Path) -> Reason:
    functions = read_functions(open_image(path), debug_roots=())
    (row,) = functions.find_name("f")
    functions.refused[row] = Reason.NONE  # the entry point of a program without start-up code
    return Reason(int(plan_module(open_image(path), functions).reason[row]))


@pytest.mark.parametrize("flags", [PIE, (*PIE, "-Wl,-z,pack-relative-relocs")], ids=["rela", "relr"])
def test_one_relocated_word_is_a_reference(flags: tuple[str, ...], tmp_path: Path) -> None:
    assert reason(link(tmp_path, ["f"], flags)) is Reason.NONE
    assert reason(link(tmp_path, ["inside"], flags)) is Reason.JUMPED_INTO


def test_words_that_are_not_relocated_are_no_references_in_what_may_be_loaded_anywhere(tmp_path: Path) -> None:
    inside = symbol_addresses(link(tmp_path, ["1", "1"], PIE))["inside"]
    path = link(tmp_path, [hex(inside), hex(inside)], PIE)
    assert symbol_addresses(path)["inside"] == inside
    assert reason(path) is Reason.NONE


def test_words_are_references_at_fixed_addresses_if_two_lead_to_one_function(tmp_path: Path) -> None:
    assert reason(link(tmp_path, ["inside"], FIXED)) is Reason.NONE
    assert reason(link(tmp_path, ["inside", "inside"], FIXED)) is Reason.JUMPED_INTO
