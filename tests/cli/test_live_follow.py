"""`count`, `hist` and `probe` go along into programs that are executed, unless they are told not to."""

from __future__ import annotations

import json

import pytest

from tests.support.live import SHADOWGRAPH, result, started
from tests.support.manners import program, run

CODE = "int on_entry(struct sg_call *call) { uint64_t n = sg_arg(call, 0); sg_emit(call, &n, sizeof n); return 0; }"


def tree() -> list[str]:
    """A shell whose children, and it itself in the end, execute a program; 21 calls of step() in all."""
    path = program("live_execs", "o2", "-pthread")
    return ["sh", "-c", f"{path} 5 && {path} 1 exec 6 && exec {path} 9"]


@pytest.mark.parametrize(("options", "calls"), [([], 21), (["--no-follow"], 0)], ids=["follow", "no-follow"])
def test_a_shell_and_all_that_it_executes_is_counted(options: list[str], calls: int) -> None:
    found = result(started("count", "--json", "-f", "*", *options, "--", *tree()))
    assert sum(row["calls"] for row in found["functions"] if row["function"] == "step") == calls
    assert found["end"] == "exit"


def test_distributions_are_those_of_all_programs() -> None:
    found = result(started("hist", "--json", "--value", "arg(0)", "-f", "*", "--", *tree()))
    (row,) = [row for row in found["functions"] if row["function"] == "step"]
    assert (row["count"], row["max"]) == (21, 9)


def test_handlers_are_loaded_into_each_program() -> None:
    words = [*SHADOWGRAPH, "probe", "--json", "--code", CODE, "--event", "n:u8", "-f", "step"]
    path = program("live_execs", "o2", "-pthread")
    ended = run([*words, "--", path, "2", "spawn", "1", "exec", "3"])
    assert ended.status == 0, ended.errors
    *events, last = [json.loads(line) for line in ended.lines if line.startswith("{")]
    events.sort(key=lambda event: event["time"])  # those of one program come after the other
    assert [(event["function"], event["module"], event["event"]["n"]) for event in events] == [
        ("step", "live_execs", number) for number in (2, 1, 1, 3, 2, 1)
    ]
    assert (last["events"], last["dropped"], last["missed"], last["problems"]) == (6, 0, 0, [])


def test_calls_that_a_child_of_vfork_makes_first_are_missed_and_it_is_said_why() -> None:
    path = program("processes_vfork_exec", "o2", "-pthread")
    words = ["count", "--json", "--no-follow", "--when", "arg(0) != 0", "-f", "libc.so*!execl"]
    found = result(started(*words, "--", path, "3"))
    assert found["without_calls"] == 1
    assert found["problems"] == [
        "12 calls could not be served, missing from these numbers: "
        "made by children of vfork() whose parents had made no traced call before"
    ]
    words += ["-f", "spawns"]
    found = result(started(*words, "--", path, "3"))
    assert {one["function"]: one["calls"] for one in found["functions"]} == {"spawns": 12, "execl": 12}
    assert found["problems"] == []
