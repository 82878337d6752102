"""Very many functions: all of them are counted, and what is too much is a mistake of the user's."""

from __future__ import annotations

from functools import cache

import pytest

from shadowgraph import live
from shadowgraph.agent import layout
from shadowgraph.errors import EXIT_USAGE, UsageError
from tests.support.attached import Running
from tests.support.elf_files import compile_text
from tests.support.live import result, started
from tests.support.manners import program

COUNT = 70_000  # more than 16 bits number
_FUNCTION = ".p2align 4\n.type f{0}, @function\nf{0}: lea {0}(%rdi), %eax\nmov %eax, %eax\nret\n.size f{0}, . - f{0}\n"


@cache
def _many() -> str:
    """A program that calls each of its functions f0, f1, … once."""
    functions = "".join(_FUNCTION.format(number) for number in range(COUNT))
    table = "".join(f".quad f{number}\n" for number in range(COUNT))
    main = f"""
.globl main
main: push %rbx
push %r12
push %r12
lea table(%rip), %rbx
lea {8 * COUNT}(%rbx), %r12
again: mov $1, %edi
call *(%rbx)
add $8, %rbx
cmp %r12, %rbx
jb again
xor %eax, %eax
pop %r12
pop %r12
pop %rbx
ret
"""
    text = f'.text\n{functions}{main}.data\n.p2align 3\ntable:\n{table}.section .note.GNU-stack,"",@progbits\n'
    return str(compile_text(text, compiler="as"))


def test_each_of_more_functions_than_sixteen_bits_number_is_counted() -> None:
    found = result(started("count", "--json", "-f", "re:^f[0-9]+$", "--", _many()))
    assert {one["function"]: one["calls"] for one in found["functions"]} == {f"f{n}": 1 for n in range(COUNT)}
    assert found["problems"] == []


def test_so_many_may_be_measured_if_few_of_them_are_called() -> None:
    """A condition that no call of most functions meets: they touch no cells."""
    words = ["hist", "--json", "-f", "re:^f[0-9]+$", "--value", "u32(result)", "--when", "u32(result) >= 69991"]
    found = result(started(*words, "--", _many()))
    assert {one["function"]: (one["count"], one["max"]) for one in found["functions"]} == {
        f"f{n}": (1, n + 1) for n in range(COUNT - 10, COUNT)
    }
    assert (found["without_calls"], found["problems"]) == (COUNT - 10, [])


def test_more_than_there_is_room_for_is_a_mistake_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    with Running([program("live_short")]) as running, live.attach(running.pid) as target:
        monkeypatch.setattr(layout, "COUNTER_CELLS", 3)
        with pytest.raises(UsageError, match=r"measured in a process \(2\); choose fewer functions") as refused:
            target.register(live.Counter(["*"]))
        assert refused.value.exit_code == EXIT_USAGE
        monkeypatch.undo()
        monkeypatch.setattr(layout, "PAGE_NUMBERS", layout.COUNTER_CELLS // layout.PAGE_CELLS + 2)
        with pytest.raises(UsageError, match=r"histograms of 2 functions at most, .*; choose fewer functions"):
            target.register(live.Histogram(["*"]))
        target.register(live.Histogram(["sum", "tiny"]))
        with pytest.raises(UsageError, match="histograms of 2 functions"):
            target.register(live.Histogram(["other"]))
        assert running.end("") == ["done", "OK"]


def test_room_that_has_been_left_is_room_again_for_those_who_come(monkeypatch: pytest.MonkeyPatch) -> None:
    with Running([program("live_short")]) as running, live.attach(running.pid) as target:
        monkeypatch.setattr(layout, "PAGE_NUMBERS", layout.COUNTER_CELLS // layout.PAGE_CELLS + 2)
        for _ in range(5):
            target.register(live.Histogram(["sum", "tiny"])).unregister()
        assert running.end("") == ["done", "OK"]
