"""A function of two bytes without padding around it, and a neighbour that can lend it a hole."""

from __future__ import annotations

__all__ = ["LENDING"]

LENDING = """
        .globl lender
        .type lender, @function
lender: .cfi_startproc
        push %rbx
        mov %rdi, %rbx
        lea 1(%rbx), %rax
        lea 1(%rax), %rax
        pop %rbx
        ret
        .cfi_endproc
        .size lender, . - lender
        .globl borrower
        .type borrower, @function
borrower: .cfi_startproc
        jmp lender
        .cfi_endproc
        .size borrower, . - borrower
        .globl neighbour
        .type neighbour, @function
neighbour: .cfi_startproc
        call lender
        ret
        .cfi_endproc
        .size neighbour, . - neighbour
"""
