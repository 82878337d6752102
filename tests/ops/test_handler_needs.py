"""What handlers given as source need is found out by the compiler: they are spared what they do not look at."""

from __future__ import annotations

import pytest

from shadowgraph.errors import UsageError
from shadowgraph.ops.handler_needs import Need, compile_for_needs

_SOURCE = """
#include <shadowgraph/ops.h>
static volatile uint64_t kept;
{more}
int on_entry(struct sg_call *call) {{ {entry} return call->function != 0; }}
void on_exit(struct sg_call *call) {{ {exit} (void)call; }}
"""


def needs(entry: str = "", exit: str = "", more: str = "") -> Need:
    """What handlers with these statements need."""
    return compile_for_needs(_SOURCE.format(entry=entry, exit=exit, more=more), "on_entry", "on_exit")[1]


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("", Need.NONE),
        ("kept += sg_arg(call, 2) + call->thread + call->return_address;", Need.NONE),
        ("struct { uint64_t time, duration, vectors; } own = {1, 2, 3}; kept += own.time + own.vectors;", Need.NONE),
        ("kept = call->time;", Need.TIME),
        ("struct sg_call *same = call; kept = same -> duration;", Need.TIME),
        ("kept = call->vectors[1][0];", Need.VECTORS),
        ("kept = sg_farg_bits(call, 1);", Need.VECTORS),
        ("kept = sg_fresult_bits(call);", Need.VECTORS),
        ("kept = (uint64_t)(1.5 * (double)sg_arg(call, 0));", Need.VECTOR_CODE),
        ("kept = (uint64_t)sg_farg(call, 0);", Need.VECTORS | Need.VECTOR_CODE),
        ("kept = (uint64_t)((double)call->time * 0.5);", Need.TIME | Need.VECTOR_CODE),
        ("kept = call->time + sg_farg_bits(call, 0);", Need.TIME | Need.VECTORS),
        ("kept = (uint64_t)(sg_fresult(call) * (double)call->duration);", Need.ALL),
    ],
)
def test_only_what_a_handler_looks_at_is_needed(statement: str, found: Need) -> None:
    assert needs(entry=statement) == found
    assert needs(exit=statement) == found


def test_what_a_macro_or_another_function_looks_at_is_needed_too() -> None:
    helper = "static uint64_t when(const struct sg_call *call) { return call->time; }"
    assert needs(entry="kept = when(call);", more=helper) == Need.TIME
    assert needs(exit="kept = LENGTH(call);", more="#define LENGTH(c) ((c)->duration)") == Need.TIME


def test_a_mistake_is_told_as_the_compiler_sees_it_with_everything_there() -> None:
    with pytest.raises(UsageError) as raised:
        needs(entry="kept = call->tim;")
    assert "no member named 'tim'" in str(raised.value).replace("‘", "'").replace("’", "'")
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_what_is_told_of_a_call_is_not_for_handlers_to_change() -> None:
    for statement in ("call->time = 1;", "call->function = 0;", "call->data = 0;"):
        with pytest.raises(UsageError, match="read-only"):
            needs(entry=statement)
