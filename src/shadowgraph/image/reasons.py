"""Why a function is not hooked: one number for the tables, one sentence for the user.

The reasons below ``PLANNER_FIRST`` are known from what is on disk alone (symbols, unwind tables, names); the others are
found by the planner, which looks at the code, or later, in the running program. The numbers are stored in tables and in
traces: new reasons are added, old ones keep their number.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["PLANNER_FIRST", "SENTENCES", "Reason"]

PLANNER_FIRST = 64


class Reason(IntEnum):
    """Zero where nothing speaks against a function; see :data:`SENTENCES` for the words."""

    NONE = 0

    # Known from symbols and unwind tables.
    COLD_PART = 1
    FRAME_IN_PROGRESS = 2
    SIGNAL_FRAME = 3
    NO_CALLER = 4
    PLT_STUB = 5
    UNREADABLE_UNWIND = 6

    # Known by name (special.py).
    RETURNS_TWICE = 16
    SWITCHES_STACKS = 17
    LOOKS_AT_RETURN_ADDRESS = 18
    OWN_CONVENTION = 19
    DYNAMIC_LINKER = 20
    COMPILER_HOOK = 21
    MANAGED_STACK = 22
    SIGNAL_RETURN = 23
    SHADOWGRAPH_AGENT = 24
    UNWINDER = 25
    CALLED_BY_RUNTIME = 26

    # Found by the planner, which reads the code.
    TOO_SHORT = 64
    JUMPED_INTO = 65
    UNDECODABLE = 66
    NOT_CODE = 67
    NOT_RELOCATABLE = 68
    OVERLAPS = 69
    OUT_OF_REACH = 70

    # Found in the running program.
    FOREIGN_BYTES = 96
    NOT_CALLED = 97
    NOT_CHOSEN = 98
    PUSHED_CALL = 99
    PLACE_IN_USE = 100


SENTENCES: dict[Reason, str] = {
    Reason.NONE: "nothing speaks against it",
    Reason.COLD_PART: "it is the rarely run part of another function, reached by jumps and not by calls",
    Reason.FRAME_IN_PROGRESS: "by its unwind information, the return address is not on top of the stack at its start",
    Reason.SIGNAL_FRAME: "it is where signal handlers return to; the kernel enters it, nobody calls it",
    Reason.NO_CALLER: "it has no caller to return to: the kernel, or the start of a thread, jumps to it",
    Reason.PLT_STUB: "it is a linker-made stub that jumps to a function of another file",
    Reason.UNREADABLE_UNWIND: "its unwind information is damaged or of an unknown kind",
    Reason.RETURNS_TWICE: "it returns more than once for one call, the second time over a stack that has moved on",
    Reason.SWITCHES_STACKS: "it saves or restores a place on a stack by hand, return address included",
    Reason.LOOKS_AT_RETURN_ADDRESS: "it reads its own return address and would act upon ours",
    Reason.OWN_CONVENTION: "it is hand-written and called in a way of its own, not as the ABI says",
    Reason.DYNAMIC_LINKER: "the dynamic linker enters it by a jump, with its own values on the stack",
    Reason.COMPILER_HOOK: "compiled-in calls of every function lead to it, and it looks at where it was called from",
    Reason.MANAGED_STACK: "the language runtime it belongs to reads or moves the return addresses on its stack",
    Reason.SIGNAL_RETURN: "it ends a signal handler and never returns",
    Reason.SHADOWGRAPH_AGENT: "it belongs to the tracer's own agent",
    Reason.UNWINDER: "it unwinds the stack it runs on, and starts from its own return address",
    Reason.CALLED_BY_RUNTIME: "a language runtime calls it and finds its own stack again by the return address",
    Reason.TOO_SHORT: "it is too short for a jump of five bytes and no padding follows it",
    Reason.JUMPED_INTO: "code elsewhere jumps into the bytes that the jump would replace",
    Reason.UNDECODABLE: "its first bytes are not instructions that the decoder knows",
    Reason.NOT_CODE: "its address holds no code in the file",
    Reason.NOT_RELOCATABLE: "one of its first instructions cannot be moved to another place",
    Reason.OVERLAPS: "another function begins within its first bytes",
    Reason.OUT_OF_REACH: "no free memory is left within two gigabytes of it for its thunk",
    Reason.FOREIGN_BYTES: "its bytes in memory differ from the file: a debugger or another tool has changed them",
    Reason.NOT_CALLED: "nobody can call it in this program",
    Reason.NOT_CHOSEN: "it was not chosen",
    Reason.PUSHED_CALL: "it begins with a call that cannot be made in a way which the hardware shadow stack allows",
    Reason.PLACE_IN_USE: "it is short, and the place for its jump is in a function that is hooked already without it",
}
