"""R23, R24: unwinders that walk the stack of the thread they run on, at every instruction of the agent's paths."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from shadowgraph.ops import entering
from shadowgraph.ops.selection import LibraryCalls, Rule, Selection, function_rule
from tests.support.build import PROGRAMS, build
from tests.support.stopped import Stopped
from tests.support.thunk_objects import ObjectHooks

# What looks at the stack is not traced itself; the handler's own calls on the way there may be.
STEPPING = function_rule("step_*", include=False)
LOOKING = function_rule("look_*", include=False)


@dataclass
class Steps:
    """What tests/programs/stack_single_step.c has written: walks by module, and the wrong ones among them."""

    steps: int
    walks: Counter[str]
    wrong: dict[str, list[str]]


def read_steps(path: Path) -> Steps:
    result = Steps(0, Counter(), {})
    for line in path.read_text().splitlines():
        word, *rest = line.split()
        if word == "wrong":
            result.wrong.setdefault(rest[0], []).append(line)
        elif word == "walked":
            result.walks[rest[0]] = int(rest[1])
        elif word == "steps":
            result.steps = int(rest[0])
    return result


@pytest.fixture(scope="module")
def program() -> Path:
    return build(PROGRAMS / "stack_single_step.c", "now")


@pytest.mark.parametrize(
    "rules", [pytest.param([STEPPING, LOOKING], id="alone"), pytest.param([STEPPING], id="handler traced too")]
)
def test_libgcc_is_right_at_each_instruction(program: Path, tmp_path: Path, rules: list[Rule]) -> None:
    output = tmp_path / "steps"
    selection = Selection(rules, libcalls=LibraryCalls.NONE)
    with Stopped(program, "libgcc_s.so.1", str(output), selection=selection) as stopped:
        assert stopped.run_free() == 0
    steps = read_steps(output)
    assert steps.steps > 10_000
    assert steps.walks["agent.so"] > 2_000
    assert steps.wrong.get("agent.so", []) == []
    assert steps.wrong.get("program", []) == []


def test_libgcc_is_right_in_thunks_that_the_loader_knows(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entering, "hook", ObjectHooks(tmp_path).hook)
    output = tmp_path / "steps"
    selection = Selection([STEPPING, LOOKING], libcalls=LibraryCalls.NONE)
    with Stopped(program, "libgcc_s.so.1", str(output), selection=selection) as stopped:
        assert stopped.run_free() == 0
    steps = read_steps(output)
    thunks = [name for name in steps.walks if name.endswith(".thunks")]
    assert sum(steps.walks[name] for name in thunks) > 100
    assert steps.walks["none"] == 0
    for name in ["agent.so", "program", *thunks]:
        assert steps.wrong.get(name, []) == []


def test_the_oracle_agrees_without_tracing(program: Path, tmp_path: Path) -> None:
    output = tmp_path / "steps"
    with Stopped(program, "libgcc_s.so.1", str(output), selection=None) as stopped:
        assert stopped.run_free() == 0
    steps = read_steps(output)
    assert steps.walks["program"] > 200
    assert steps.wrong.get("program", []) == []
