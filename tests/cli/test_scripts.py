"""Scripts, and programs that are there to execute others: functions of what runs in the end are meant."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.live import SHADOWGRAPH, result, started
from tests.support.manners import program, recorder, run


def script(folder: Path, line: str) -> str:
    """A script with this first line."""
    path = folder / "script"
    path.write_text(f"{line}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("kind", ["script", "timeout"])
def test_what_env_and_its_like_execute_may_be_the_first_that_has_the_functions(kind: str, tmp_path: Path) -> None:
    path = program("live_execs", "o2", "-pthread")
    words = [script(tmp_path, f"#!/usr/bin/env -S {path} 3")] if kind == "script" else ["timeout", "60", path, "3"]
    found = result(started("count", "-f", "step", "--json", "--", *words))
    assert found["functions"] == [{"function": "step", "module": "live_execs", "calls": 3}]
    trace = tmp_path / "t.sgt"
    ended = run([*recorder("-f", "step", trace=trace), *words])
    assert (ended.status, ended.errors) == (0, "")
    (row,) = json.loads(run([*SHADOWGRAPH, "report", "--json", str(trace)]).output)["functions"]
    assert (row["function"], row["calls"]) == ("step", 3)


def test_that_nothing_of_it_has_the_functions_is_said_in_the_end(tmp_path: Path) -> None:
    words = ["env", program("live_execs", "o2", "-pthread"), "3"]
    said = "no function matched stepp; the nearest names are step"
    problems = result(started("count", "-f", "stepp", "--json", "--", *words))["problems"]
    assert problems[0].startswith(said)
    assert problems[1] == "stepp: no such function is in env, live_execs, which were executed"
    command = ["record", "-f", "stepp", "-o", str(tmp_path / "t.sgt"), "--"]
    assert said in run([*SHADOWGRAPH, *command, *words]).errors
    ended = run([*SHADOWGRAPH, "count", "-f", "stepp", "--no-follow", "--", *words])
    assert "env: no function matches stepp" in ended.sentence and ended.status == 2


@pytest.mark.parametrize("command", ["count", "record"])
def test_a_refusal_names_the_script_and_what_interprets_it(command: str, tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh")
    ended = run([*SHADOWGRAPH, command, "-f", "no_such_function", "--", path])
    assert ended.sentence.startswith(f"{path} is a script for {os.path.realpath('/bin/sh')}: no function matches ")
    assert ended.status == 2
