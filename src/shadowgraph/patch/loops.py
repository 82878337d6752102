"""Functions that jump back to their own first instructions: loops that begin where the function begins.

A hook at the entry would count every turn of such a loop as a call, if the loop's head is the patch address itself,
or be run over by it, if the head lies among the overwritten bytes. The calls of such a function are still well
defined, and so is the remedy: everything from the entry to the last jump back is displaced. The loop then turns
within the thunk, where its jumps lead to copies, and the patched entry is reached by calls alone.

That holds if nothing but falling out of it leads from the thunk to the original copy of the loop, and nothing leads
into the original copy from outside:

- no call in it (the callee would return to the original) and no indirect jump in the whole function (a jump table names
  originals);
- no jump from other code into it: jumps from further down in the function widen it until they are in it, others are a
  reason to leave it alone;
- it stays small, and within one function.

What is left are jumps to the patch address around a call or a stack frame. With the frame gone again these are tail
calls of the function to itself and are traced as such (PlanFlag.SELF_JUMP). That the frame is gone is what the unwind
table says: it knows one stack depth for each place, and at the entry that is the depth of a call. Without an unwind
entry nothing says so, and the function is refused; so is one that keeps values below rsp, where a hook at the entry
works. A tail call to itself may also have been a loop in the source: the two are the same machine code.
"""

from __future__ import annotations

from shadowgraph.patch.decode import Kind, Step, decode_steps

__all__ = ["LARGEST_LOOP", "whole_loop"]

# The longest stretch that is moved, and the longest function that is looked through for it.
LARGEST_LOOP = 512
_LARGEST_FUNCTION = 8192
_BRANCHES = (Kind.JUMP, Kind.CONDITIONAL, Kind.LOOP)
_LEAVE_ALONE = (Kind.CALL, Kind.CALL_INDIRECT, Kind.TRANSACTION, Kind.BREAKPOINT, Kind.IMMOVABLE)


def whole_loop(code: bytes, entry: int, window: int) -> list[Step] | None:
    """The instructions from a function's patch address to its last jump back; None without one, or if they cannot move.

    ``code`` is the function from its patch address on; ``entry`` is its first byte as a distance from there; ``window``
    is how many bytes are displaced in any case.
    """
    if len(code) > _LARGEST_FUNCTION:
        return None
    steps = decode_steps(code, len(code))
    if not steps or any(step.kind == Kind.JUMP_INDIRECT for step in steps):
        return None
    size = _closed_size(steps, entry, window)
    if size == window:
        return None
    moved = [step for step in steps if step.end <= size]
    if size > LARGEST_LOOP or any(step.kind in _LEAVE_ALONE for step in moved):
        return None
    return moved


def _closed_size(steps: list[Step], entry: int, window: int) -> int:
    """The least size from ``window`` on such that no jump from behind it leads into it (the entry included)."""
    jumps = [(step.target, step.end) for step in steps if step.kind in _BRANCHES]
    size = window
    while True:
        ends = [end for target, end in jumps if entry <= target < size < end]
        if not ends:
            return size
        size = max(ends)
