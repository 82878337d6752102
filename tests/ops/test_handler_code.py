"""What a handler's instructions do is known before a process runs them: what it reads, and that it is frugal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shadowgraph.agent import layout
from shadowgraph.image import image_from_bytes
from shadowgraph.ops.handler_code import HandlerCode, PairCode, look_at_handler, look_at_pair
from shadowgraph.ops.handler_needs import Need, compile_for_needs
from shadowgraph.ops.handler_source import INCLUDE, load_handlers

_SOURCE = """
#include <string.h>
#include <shadowgraph/ops.h>
static volatile uint64_t kept;
uint64_t table[64] __attribute__((visibility("hidden")));
{more}
int on_entry(struct sg_call *call) {{ {entry}; (void)call; return 1; }}
void on_exit(struct sg_call *call) {{ {exit}; (void)call; }}
"""
_HASH = (
    "uint64_t hash = 5381; for (const char *s = (char *)sg_arg(call, 1); *s; s++) hash = hash * 33 + *s; kept = hash"
)


def pair(entry: str = "", exit: str = "", more: str = "") -> PairCode:
    """What is known of handlers with these statements."""
    source = _SOURCE.format(entry=entry, exit=exit, more=more)
    handlers, needs = compile_for_needs(source, "on_entry", "on_exit")
    return look_at_pair(handlers, see_time=Need.TIME in needs)


@pytest.mark.parametrize(
    ("statement", "reads"),
    [
        ("", set()),
        ("kept++", set()),
        ("kept += sg_arg(call, 0)", {"arguments"}),
        ("kept += sg_arg(call, 7)", {"stack"}),
        ("kept = sg_result(call)", {"result"}),
        ("table[call->result_high & 63]++", {"result_high"}),
        ("kept += call->time", {"time"}),
        ("kept += call->duration / 3", {"duration"}),
        ("kept += call->thread * 7 + call->process", {"thread", "process"}),
        ("kept ^= call->return_address ^ call->function", {"return_address", "function"}),
        ("if (sg_arg(call, 0) == 5) __builtin_trap()", {"arguments"}),
        ("*(volatile int *)(call->result | 8) = 1", {"result"}),
        ("*(uint64_t *)call->data = 1", {"data"}),
        ("kept = call->data_size", {"data_size"}),
    ],
)
def test_short_handlers_are_frugal_and_told_what_they_read(statement: str, reads: set[str]) -> None:
    for found in (pair(entry=statement).entry, pair(exit=statement).exit):
        assert found == HandlerCode(frozenset(reads), True)


def test_what_is_kept_has_its_place_from_the_entry_on_even_if_only_the_exit_looks() -> None:
    assert not pair(entry="kept++", exit="kept += sg_result(call)").keeps_data
    keeping = pair(entry="kept++", exit="kept += *(uint64_t *)call->data")
    assert keeping.keeps_data and keeping.is_frugal
    assert keeping.flags & layout.USER_ENTRY_LOOKS and keeping.flags & layout.USER_EXIT_LOOKS


@pytest.mark.parametrize(
    ("statement", "reads"),
    [
        ("kept = (uint64_t)call->instance", {"instance"}),
        ("struct { uint64_t time; } own = {call->time}; sg_emit(call, &own, sizeof own)", {"time", "emit"}),
        ("kept = sg_emit(call, table, 16) + call->duration", {"duration", "emit"}),
        ('kept++; __asm__ volatile("xor %%r12d, %%r12d" : : : "r12")', set()),
        ('kept++; __asm__ volatile("xor %%r8d, %%r8d" : : : "r8", "cc")', set()),
        ('__asm__ volatile("std\\n\\tcld")', set()),
        ('__asm__ volatile("syscall" : : "a"(39L) : "rcx", "r11", "memory")', None),
        ("((void (*)(void))0x1000)()", None),
        ("kept = (uint64_t)call", None),
        ("struct sg_call same = *call; memcpy(table, &same, sizeof same)", None),
        ("kept = helper(call)", None),
        ("kept = ((uint64_t *)call)[call->result & 7]", None),
        ("*(uint64_t *)&call->result = 1", None),
        ("kept = strlen((const char *)sg_arg(call, 0))", None),
    ],
)
def test_what_is_not_frugal_or_not_understood_is_taken_for_the_worst(statement: str, reads: set[str] | None) -> None:
    helper = "__attribute__((noipa)) static uint64_t helper(struct sg_call *call) { return call->thread; }"
    more = helper if "helper" in statement else ""
    for found in (pair(entry=statement, more=more).entry, pair(exit=statement, more=more).exit):
        assert not found.is_frugal
        # With time left out of the header, what the compiler has accepted cannot ask for it.
        everything = {"function", "vectors", "result", "data", "emit", "instance_size"}
        assert found.reads == reads if reads is not None else found.reads >= everything


def test_more_registers_than_five_are_not_frugal() -> None:
    many = "; ".join(f"uint64_t v{n} = sg_arg(call, {n}) * table[{n}]" for n in range(6))
    uses = " ^ ".join(f"(v{n} << (v{(n + 1) % 6} & 63))" for n in range(6))
    assert not pair(entry=f"{many}; kept = {uses}").entry.is_frugal
    assert pair(entry=_HASH).entry.is_frugal


@pytest.mark.parametrize(
    ("entry", "exit", "told", "start", "end"),
    [
        ("", "", False, False, False),
        ("kept = call->time", "", True, False, False),
        ("", "kept = call->time", False, True, False),
        ("", "kept = call->duration", False, True, True),
        ("kept = call->duration", "", False, False, False),  # which there is none of yet
        ("kept = call->time", "kept = call->duration", True, True, True),
        ("kept++", "uint64_t own[2] = {call->time, 1}; sg_emit(call, own, sizeof own)", False, True, False),
        ("kept = (uint64_t)call", "kept = (uint64_t)call", False, False, False),
        ("kept = (uint64_t)call", "kept = call->duration", True, True, True),
        ("kept = call->time", "kept = (uint64_t)call", True, True, True),
    ],
)
def test_the_clock_is_read_where_a_handler_asks_for_it_and_nowhere_else(
    entry: str, exit: str, told: bool, start: bool, end: bool
) -> None:
    found = pair(entry, exit)
    assert (found.time_is_told, found.start_is_timed, found.end_is_timed) == (told, start, end)
    assert bool(found.flags & layout.USER_ENTRY_LOOKS) == bool(found.entry.reads)
    assert bool(found.flags & layout.USER_EXIT_LOOKS) == bool(found.exit.reads)


def test_one_handler_alone_asks_for_nothing_at_the_other_end() -> None:
    handlers, _ = compile_for_needs(_SOURCE.format(entry="", exit="kept = call->duration", more=""), "on_entry", "")
    found = look_at_pair(handlers)
    assert found.exit == HandlerCode(frozenset(), True)
    assert not found.end_is_timed


def test_of_a_shared_object_that_others_can_change_nothing_is_known(tmp_path: Path) -> None:
    source, built = tmp_path / "handlers.c", tmp_path / "handlers.so"
    source.write_text(_SOURCE.format(entry="", exit="", more=""))
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", f"-I{INCLUDE}", "-o", built, source], check=True)
    handlers = load_handlers(os.fspath(built), "on_entry", "on_exit")
    found = look_at_pair(handlers, is_known=False)
    assert not found.is_frugal
    assert found.time_is_told and found.start_is_timed and found.end_is_timed


def test_members_lie_where_the_header_puts_them() -> None:
    """Each is read by itself, and found by its name."""
    members = ["function", "result", "result_high", "return_address", "data_size", "time", "duration", "thread"]
    members += ["process", "user", "instance_size"]
    source = "#include <shadowgraph/ops.h>\nstatic volatile uint64_t kept;\n#pragma GCC visibility push(default)\n"
    source += "\n".join(f"int get_{m}(struct sg_call *call) {{ kept = call->{m}; return 1; }}" for m in members)
    for member in members:
        handlers, _ = compile_for_needs(source, f"get_{member}", "")
        assert handlers.entry is not None
        image = image_from_bytes(handlers.content, "members")
        assert look_at_handler(image, handlers.entry).reads == {member}
