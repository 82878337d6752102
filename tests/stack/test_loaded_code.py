"""What is known of code by the files that it comes from."""

from __future__ import annotations

import pytest

from shadowgraph.image import open_image, read_functions
from shadowgraph.stack.code import LoadedCode
from tests.support.elf_files import compile_text, symbol_addresses

SOURCE = """
    .text
    .balign 64
runs_on:
    .cfi_startproc
    push %rbx
    .cfi_adjust_cfa_offset 8
    pop %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_endproc
nops:
    {between}
    .balign 64, 0x90
reached:
    .cfi_startproc
    mov %rdi, %rax
    ret
    .cfi_endproc
    .section .note.GNU-stack, "", @progbits
"""


def rows(between: str, first: str, second: str) -> list[object]:
    path = compile_text(SOURCE.format(between=between), "-shared -nostdlib", "as")
    image, addresses = open_image(path), symbol_addresses(path)
    bias = 0x7000_0000_0000
    code = LoadedCode("program", bias, image, read_functions(image))
    assert not code.is_described(bias + addresses["nops"])
    return [code.row(bias + addresses[name]) for name in (first, second)]


@pytest.mark.parametrize("between", ["nop", ".byte 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0", "xchg %ax, %ax"])
def test_among_nops_a_thread_is_as_good_as_in_the_function_that_it_runs_into(between: str) -> None:
    among, behind = rows(between, "nops", "reached")
    assert among is not None
    assert among == behind


def test_code_that_nobody_describes_is_not_taken_for_nops() -> None:
    among, behind = rows("push %rax", "nops", "reached")
    assert among is None
    assert behind is not None
