"""What handlers given as source can do without: found out by compiling them without it.

Saving vector registers costs a call more than all the rest, and looking at the clock more than a short handler does.
"""

from __future__ import annotations

from enum import Flag, auto

from shadowgraph.agent import layout
from shadowgraph.errors import UsageError
from shadowgraph.ops.handler_object import HandlerObject
from shadowgraph.ops.handler_source import compile_handlers

__all__ = ["Need", "compile_for_needs", "flags_of"]


class Need(Flag):
    """What an agent has to do for handlers beside calling them."""

    NONE = 0
    VECTOR_CODE = auto()  # they use vector registers or floating point themselves
    VECTORS = auto()  # they look at the program's vector registers
    TIME = auto()  # they look at time or duration of the call
    ALL = VECTOR_CODE | VECTORS | TIME


# The option by which a compiler leaves each of them out (include/shadowgraph/ops.h).
_WITHOUT = {
    Need.VECTOR_CODE: "-mgeneral-regs-only",
    Need.VECTORS: "-DSG_WITHOUT_VECTORS",
    Need.TIME: "-DSG_WITHOUT_TIME",
}


def compile_for_needs(source: str, entry: str, exit: str, file: str = "") -> tuple[HandlerObject, Need]:
    """Compile handlers, and tell what they need. UsageError, with the compiler's own words, if they do not compile."""

    def made(needs: Need) -> HandlerObject:
        options = [option for need, option in _WITHOUT.items() if need not in needs]
        return compile_handlers(source, entry, exit, options, file)

    def tried(needs: Need) -> HandlerObject | None:
        try:
            return made(needs)
        except UsageError:
            return None

    if (least := tried(Need.NONE)) is not None:
        return least, Need.NONE
    most = made(Need.ALL)
    needs = Need.NONE
    for need in _WITHOUT:
        needs |= need if tried(Need.ALL & ~need) is None else Need.NONE
    best = tried(needs)
    return (most, Need.ALL) if best is None else (best, needs)


def flags_of(needs: Need) -> int:
    """Those of struct sg_user."""
    code = layout.USER_VECTORS if Need.VECTOR_CODE in needs else 0
    return code | (layout.USER_SEES_VECTORS if Need.VECTORS in needs else 0)
