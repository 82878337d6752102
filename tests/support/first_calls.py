"""Functions that begin with a call, packed so tightly that no padding lies within a short jump's reach.

Each is named for the bytes before the last four of its call: the jump that hooks it shares the rest with that.
"""

from __future__ import annotations

__all__ = ["FIRST_CALLS", "SHARING"]

# Name: instructions before the call, the call, instructions behind it.
SHARING = {
    "one_byte": ("", "call callee", ""),
    "one_byte_again": ("", "call callee", "add $1, %rax"),
    "two_bytes": ("push %rbx", "call callee", "pop %rbx"),
    "two_bytes_memory": ("", "call *pointer(%rip)", ""),
    "two_bytes_again": ("push %rdi", "call callee", "pop %rdi"),
    "three_bytes": ("push %r12", "call callee", "pop %r12"),
    "four_bytes": ("push %rbx\n push %r12", "call callee", "pop %r12\n pop %rbx"),
}
_FUNCTION = """
 .globl {name}
 .type {name}, @function
{name}:
 {before}
 {call}
 {behind}
 .rept 40
 lea 3(%rax), %rax
 .endr
 ret
 .size {name}, . - {name}
"""
FIRST_CALLS = (
    " .text\n .p2align 4\n"
    + _FUNCTION.format(name="callee", before="lea 1(%rdi), %rax", call="", behind="nop")
    + "".join(
        _FUNCTION.format(name=name, before=before, call=call, behind=behind)
        for name, (before, call, behind) in SHARING.items()
    )
    + _FUNCTION.format(name="last", before="lea 2(%rdi), %rax", call="", behind="nop")
    + " .data\npointer: .quad callee\n"
)
