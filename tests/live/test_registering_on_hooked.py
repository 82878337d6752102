"""A user of functions that are hooked already: what it takes does not grow with them, and the program is left alone.

What is counted is counted, not timed: steps of the interpreter, requests to the kernel, writes to the process.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any

import pytest

from shadowgraph import live
from shadowgraph.target import ptrace, stopping
from shadowgraph.target.memory import Memory
from tests.support.attached import Running
from tests.support.elf_files import compile_text

FEW, MANY = 200, 3_000
CALLED = f"called {FEW + MANY}"

_HANDLERS = """
#include <shadowgraph/ops.h>
int on_entry(struct sg_call *call) { (void)call; return 1; }
void on_exit(struct sg_call *call) { (void)call; }
"""
_MAIN = """
#include <stdio.h>
int main(void)
{
    char line[64];
    int (*const *all)(int) = table;
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        unsigned called = 0;
        for (; called < sizeof table / sizeof *table; called++)
            all[called]((int)called);
        printf("called %u\\n", called);
        fflush(stdout);
    }
    return 0;
}
"""


@cache
def many_functions() -> str:
    """A program that calls each of its functions few_0, …, many_0, … once for each line that it is given."""
    names = [f"few_{n}" for n in range(FEW)] + [f"many_{n}" for n in range(MANY)]
    functions = "".join(f"int {name}(int x) {{ return x * {at} + (x >> 3); }}\n" for at, name in enumerate(names))
    table = f"int (*const table[])(int) = {{{', '.join(names)}}};\n"
    return str(compile_text(functions + table + _MAIN, "-O1"))


def ops(functions: list[str]) -> live.Ops:
    """Handlers that are small and want both ends."""
    return live.Ops(functions, source=_HANDLERS, entry="on_entry", exit="on_exit")


KINDS: dict[str, Callable[[list[str]], live.User]] = {
    "counter": live.Counter,
    "totals": live.Totals,
    "histogram": live.Histogram,
    "handlers": ops,
}


def named(kind: str, how: str, number: int) -> list[str]:
    """Patterns for all functions of a kind that are alike in whatever they cost."""
    return {
        "exact names": [f"{kind}_{n}" for n in range(number)],
        "a glob": [f"{kind}_*"],
        "a glob with something before": [f"*{kind[1:]}_*"],
        "a glob with a wildcard inside": [f"{kind[:2]}*_*"],
        "a regular expression": [f"re:^{kind}_"],
        "one with a choice": [f"re:^{kind}_[0-9]+$"],
    }[how]


@contextmanager
def on_many() -> Iterator[tuple[Running, live.Target]]:
    """A program whose functions are all hooked, and in which handlers have been."""
    with Running([many_functions()]) as running, live.attach(running.pid) as target:
        target.register(live.Counter(["few_*", "many_*"]))
        target.register(ops(["few_0"])).unregister()
        yield running, target
        assert running.say("call") == CALLED
        assert running.end("") == [CALLED]


def steps(target: live.Target, user: live.User) -> int:
    """Steps of the interpreter (instructions of its byte code) that registering a user takes."""
    count, register = 0, target._register

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    def traced(user: live.User) -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            register(user)
        finally:
            sys.settrace(before)

    target._register = traced  # type: ignore[method-assign]
    try:
        target.register(user)
    finally:
        target._register = register  # type: ignore[method-assign]
    return count


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["exact names", "a glob", "a regular expression"])
def test_no_step_is_taken_for_each_function_of_a_selection_that_was_made_before(kind: str, how: str) -> None:
    with on_many() as (_, target):
        taken = {}
        for functions, number in (("few", FEW), ("many", MANY)):
            target.register(live.Counter(named(functions, how, number))).unregister()
            taken[functions] = steps(target, KINDS[kind](named(functions, how, number)))
        assert taken["few"] > 500, "they are counted"
        assert taken["many"] - taken["few"] < MANY - FEW, taken


@pytest.mark.parametrize(
    "how",
    [
        *("a glob", "a glob with something before", "a glob with a wildcard inside"),
        *("a regular expression", "one with a choice"),
    ],
)
def test_no_step_is_taken_for_each_function_of_a_pattern_that_is_new(how: str) -> None:
    with on_many() as (_, target):
        target.register(live.Counter(["few_1", "many_1"])).unregister()  # the index of names is there
        taken = {functions: steps(target, live.Counter(named(functions, how, 0))) for functions in ("few", "many")}
        assert taken["many"] - taken["few"] < MANY - FEW, taken


@pytest.mark.parametrize("kind", KINDS)
def test_the_process_is_not_stopped_and_nothing_is_written_but_small_handlers(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: Counter[str] = Counter()

    def counted(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def replacement(*arguments: Any, **named: Any) -> Any:
            done[name] += 1
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, replacement)

    with on_many() as (_, target):
        user = KINDS[kind](["many_*"])
        counted(ptrace, "_request")
        counted(stopping.StoppedProcess, "__enter__")
        counted(Memory, "write")
        target.register(user)
        # Of handlers code and data are written to the room that is there for them, and whose they are.
        assert done == ({"write": 4} if kind == "handlers" else {}), kind
        monkeypatch.undo()
        user.unregister()


def test_a_user_that_is_told_its_labels_later_has_those_of_one_that_was_first() -> None:
    with on_many() as (running, target):
        first = target.register(live.Counter(["few_*", "many_*"]))
        later = [
            target.register(live.Counter(patterns))
            for patterns in (["*few_*", "*any_*"], ["re:^(few|many)_[0-9]+$"], ["f?w_*", "m?ny_*"])
        ]
        gone = target.register(live.Totals(["*w_*", "*y_*"]))
        assert running.say("call") == CALLED
        gone.unregister()
        expected = dict.fromkeys(
            [f"program!few_{n}" for n in range(FEW)] + [f"program!many_{n}" for n in range(MANY)], 1
        )
        assert first.counts() == expected
        assert [user.counts() for user in later] == [expected] * len(later)
        assert {label: int(row["count"]) for label, row in gone.totals().items()} == expected
