"""What the patcher of a running program should know about a planned function."""

from __future__ import annotations

from enum import IntFlag

__all__ = ["PlanFlag"]


class PlanFlag(IntFlag):
    """Properties of a planned function.

    A thread that stands anywhere within the displaced bytes, but not at the very patch address, must go on in the
    copy (pc map). MULTI_INSTRUCTION, WHOLE_LOOP and LENDS tell where one may stand, and so what to look for in stacks
    and signal frames.

    MULTI_INSTRUCTION  an instruction begins within the overwritten bytes, behind the first
    PADDING            the function is shorter than its jump: padding behind it is overwritten too
    EMULATED_CALL      a displaced call pushes its return address: not to be used where a hardware shadow stack is on
    CALL_IN_PLACE      the last four bytes of a displaced call are overwritten by another, which the thunk jumps to
    REAL_CALL          a displaced call returns into the thunk
    OVERLAPPING        the jump and a call in its place share bytes: it leads to a trampoline (overlaps.py)
    SELF_JUMP          it jumps to its own entry at the entry's stack depth; each such jump is traced as a tail call
    BEHIND_ENDBR64     the patch address is four bytes behind the function's start
    WHOLE_LOOP         a loop at the entry is displaced as a whole (loops.py)
    SHORT_JUMP         two bytes at the patch address jump to a hole that holds the real jump (short_jumps.py)
    REDIRECTED         jumps into its first bytes are led to the copy: they are patched as well (redirects.py)
    LENDS              five more displaced bytes behind its jump are the hole of another function
    """

    NONE = 0
    MULTI_INSTRUCTION = 1
    PADDING = 2
    EMULATED_CALL = 4
    SELF_JUMP = 8
    BEHIND_ENDBR64 = 16
    WHOLE_LOOP = 32
    SHORT_JUMP = 64
    LENDS = 128
    REDIRECTED = 256
    CALL_IN_PLACE = 512
    REAL_CALL = 1024
    OVERLAPPING = 2048
